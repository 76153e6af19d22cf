"""sam2label: pictures, clips and a few seed points become dataset annotations.

    import labeler

    for record in labeler.label_images("data", "seeds.json"):
        print(record.key, [annotation.area for annotation in record.annotations])

Importing this package is cheap: what a name needs is loaded when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labeler.clip import label_video
    from labeler.images import ImageLabeler, ImageOptions
    from labeler.library import label_images
    from labeler.masks import decode as decode_mask
    from labeler.model import ModelSpec, find_model, load_model
    from labeler.types import Annotation, Point, Record, Seed

__version__ = "0.1.0"

__all__ = [
    "Annotation",
    "ImageLabeler",
    "ImageOptions",
    "ModelSpec",
    "Point",
    "Record",
    "Seed",
    "decode_mask",
    "find_model",
    "label_images",
    "label_video",
    "load_model",
]

_HOMES = {
    "Annotation": "labeler.types:Annotation",
    "ImageLabeler": "labeler.images:ImageLabeler",
    "ImageOptions": "labeler.images:ImageOptions",
    "ModelSpec": "labeler.model:ModelSpec",
    "Point": "labeler.types:Point",
    "Record": "labeler.types:Record",
    "Seed": "labeler.types:Seed",
    "decode_mask": "labeler.masks:decode",
    "find_model": "labeler.model:find_model",
    "label_images": "labeler.library:label_images",
    "label_video": "labeler.clip:label_video",
    "load_model": "labeler.model:load_model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
