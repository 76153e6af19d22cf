"""Open a `transformers` checkpoint folder of SAM 2.1, and say plainly why another one cannot be taken."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from labeler.convert.silence import silence
from labeler.errors import ConvertError

WANTED = "expected the folder of a transformers SAM 2.1 checkpoint: config.json with its model.safetensors"
SIZES = {
    (96, (1, 2, 7, 2)): "tiny",
    (96, (1, 2, 11, 2)): "small",
    (112, (2, 3, 16, 3)): "base-plus",
    (144, (2, 6, 36, 4)): "large",
}


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a SAM 2.1 video checkpoint. Raises ConvertError for every other model."""
    path = folder / "config.json"
    if folder.is_file():
        raise ConvertError(f"{folder}: is a file; {WANTED}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConvertError(f"{path}: cannot be read ({error.strerror}); {WANTED}") from None
    except ValueError as error:
        raise ConvertError(f"{path}: is not JSON ({error}); {WANTED}") from None
    if fault := config_fault(config):
        raise ConvertError(f"{folder}: {fault}; {WANTED}")
    return dict(config)


def config_fault(config: Any) -> str | None:
    """Why a config is not SAM 2.1's, or None."""
    kind = config.get("model_type") if isinstance(config, dict) else None
    if isinstance(kind, str) and kind.startswith("sam3"):
        return f"is SAM 3 ({kind}), whose graphs are others"
    if kind == "sam2":
        return "holds the image model only, without memory"
    if kind != "sam2_video":
        return f"is no SAM 2.1 checkpoint (model_type {kind!r})"
    flags = ("enable_occlusion_spatial_embedding", "enable_temporal_pos_encoding_for_object_pointers")
    if missing := [flag for flag in flags if config.get(flag, True) is False]:
        return f"is SAM 2.0, not 2.1 ({', '.join(missing)} off)"
    if config.get("image_size", 1024) not in (1024, [1024, 1024]):
        return f"takes pictures of {config['image_size']} instead of 1024 pixels"
    return None


def load_model(folder: Path) -> Any:
    """The checkpoint's Sam2VideoModel in float32. Raises ConvertError for missing or damaged weights."""
    read_config(folder)
    try:
        with silence():
            import torch
            from transformers import Sam2VideoModel

            load: Any = Sam2VideoModel.from_pretrained
            model, report = load(folder, local_files_only=True, dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # safetensors, pickle and transformers each raise their own kinds
        raise ConvertError(
            f"{folder}: its weights cannot be loaded ({first_line(error)}); copy the checkpoint again"
        ) from error
    if missing := sorted({*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])}):
        raise ConvertError(
            f"{folder}: lacks {len(missing)} weights of SAM 2.1, first {missing[0]}; the checkpoint is incomplete"
        )
    return model.eval().requires_grad_(False)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def size_name(model: Any) -> str:
    """tiny, small, base-plus or large; custom for another trunk."""
    trunk = model.config.vision_config.backbone_config
    return SIZES.get((trunk.hidden_size, tuple(trunk.blocks_per_stage)), "custom")


def checkpoint_hash(folder: Path) -> str:
    """sha256 over the names and contents of config and weights."""
    digest = hashlib.sha256()
    for path in sorted((folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin"))):
        with path.open("rb") as stream:
            digest.update(path.name.encode() + b"\0" + hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
