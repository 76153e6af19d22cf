"""The four verbs of SAM 2.1, one graph each: encode, recall, decode, memorize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labeler import preprocess, prompts
from labeler.bundle import Bundle, read_constant
from labeler.prompts import Prompt
from labeler.types import Array, Box, Candidates, Features, Point, Runtime

if TYPE_CHECKING:
    from PIL import Image

    from labeler.memory import MemoryInputs
    from labeler.types import Rgb


class Sam2:
    """One bundle's model over a runtime. `stills`: use the pair of graphs that serves pictures."""

    def __init__(self, runtime: Runtime, *, stills: bool = False) -> None:
        self.runtime = runtime
        bundle = runtime.bundle
        self.encode_role, self.decode_role = bundle.still_roles() if stills else ("encode", "decode")
        self._encode_spec = bundle.graphs[self.encode_role]
        self._decode_spec = bundle.graphs[self.decode_role]
        self.tokens = self._decode_spec.input("sparse").shape[0]
        self._constants = _prompt_constants(bundle, self.decode_role)
        if self._decode_spec.has_input("mask_input"):
            self._no_mask = np.zeros(self._decode_spec.input("mask_input").shape, np.float32)
        self._flags = {value: np.full(1, value, np.float32) for value in (False, True)}

    def encode(self, image: Image.Image | Rgb, *, orientation: int = 1) -> Features:
        """Features of an RGB picture: PIL, or uint8 [height, width, 3]. `orientation`: EXIF's, still to be applied."""
        _, height, width = self._encode_spec.input("image").shape
        chw = preprocess.model_input(image, height=height, width=width, orientation=orientation)
        out = self.runtime.run(self.encode_role, image=chw)
        return Features(out["pix"], out["hi0"], out["hi1"])

    def prompt(self, points: Sequence[Point], box: Box | None = None, *, height: int, width: int) -> Prompt:
        """Tokens for a seed in pixels of the upright picture."""
        return prompts.encode(points, box, self._constants, height=height, width=width, tokens=self.tokens)

    def no_prompt(self) -> Prompt:
        """Tokens of a tracked frame, which nobody clicked."""
        track_sparse = read_constant(self.runtime.bundle, "track_sparse")["track_sparse"]
        sparse_nc = np.zeros((self.tokens, track_sparse.shape[1]), track_sparse.dtype)
        sparse_nc[: len(track_sparse)] = track_sparse
        return Prompt(sparse_nc, (np.arange(self.tokens) < len(track_sparse)).astype(sparse_nc.dtype), ambiguous=True)

    def decode(
        self, features: Features, prompt: Prompt, *, pix: Array | None = None, mask_hw: Array | None = None
    ) -> Candidates:
        """Candidate masks. `pix`: memory-conditioned features [256, 64, 64]; None for a prompted frame.

        `mask_hw`: logits [256, 256] of an earlier mask to refine; the bundle's decoder must take `mask_input`.
        """
        spec = self._decode_spec
        parts: dict[str, Array] = {
            "pix": features.pix_chw if pix is None else pix,
            "hi0": features.hi0_chw,
            "hi1": features.hi1_chw,
            "sparse": prompt.sparse_nc,
        }
        if spec.has_input("no_memory"):
            parts["no_memory"] = self._flags[pix is None]
        if spec.has_input("token_mask"):
            parts["token_mask"] = prompt.token_mask_n
        if spec.has_input("mask_input"):
            parts["mask_input"] = self._no_mask if mask_hw is None else mask_hw
            parts["has_mask"] = self._flags[mask_hw is not None]
        out = self.runtime.run(self.decode_role, **parts)
        score = out.get("object_score")
        return Candidates(
            out["masks"], out.get("iou"), out.get("pointers"), None if score is None else float(score.reshape(-1)[0])
        )

    def recall(self, features: Features, inputs: MemoryInputs) -> Array:
        """Features conditioned on the memory bank: [256, 64, 64]."""
        out = self.runtime.run(
            f"memcond{inputs.slots}",
            pix=features.pix_chw,
            memory=inputs.memory,
            temporal=inputs.temporal,
            pointers=inputs.pointers,
            pointer_positions=inputs.pointer_positions,
            key_mask=inputs.key_mask,
        )
        return out["pix"]

    def memorize(self, features: Features, mask_hw: Array, *, occluded: bool) -> Array:
        """Memory tokens [4096, 64] of a frame and the object's mask for memory, [1024, 1024] in -10..10."""
        out = self.runtime.run("memorize", pix=features.pix_chw, mask=mask_hw, occluded=self._flags[occluded])
        return out["memory"]


def _prompt_constants(bundle: Bundle, decode_role: str) -> dict[str, NDArray[Any]]:
    """gaussian, positive, not_a_point and what else the bundle knows: negative, box corners."""
    roles = ("prompt", "box") if decode_role == "decode" else ("prompt", "box", "image_prompt")
    known = [read_constant(bundle, role) for role in roles if role in bundle.constants]
    return {name: values for constant in known for name, values in constant.items()}
