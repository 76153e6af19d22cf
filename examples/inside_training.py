"""The labeler inside a training loop: masks come from clicks while the model learns, and no file is written.

`python examples/inside_training.py` trains a small colour classifier (object or background) with numpy alone. The same
two calls serve a PyTorch, JAX or TensorFlow loop: `label_images` where pictures lie in a folder, and an `ImageLabeler`
as the map function of whatever already holds arrays.
"""
# ruff: noqa: T201  # a script: it prints what a training log would

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from render import click_point, render_picture

import labeler

EXAMPLES = Path(__file__).parent
PICTURES = EXAMPLES / "pictures"
Rgb = NDArray[np.uint8]
Mask = NDArray[np.bool_]


def from_folder(model: Any) -> Iterator[tuple[Rgb, Mask]]:
    """Pictures of a folder with the union of their objects' masks: the seeds file says where the objects are."""
    for record in labeler.label_images(PICTURES, PICTURES / "seeds.json", model=model):
        if record.status == "failed":
            print(f"{record.key}: {record.error}")
            continue
        with Image.open(PICTURES / record.key) as picture:
            rgb = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
        yield rgb, union(record)


def from_memory(model: Any, count: int) -> Iterator[tuple[Rgb, Mask]]:
    """Pictures that exist as arrays only, labelled by a map function."""
    rendered = [render_picture(seed, 240, 320, 2) for seed in range(count)]
    clicks = [
        [labeler.Seed(number, (labeler.Point(*click_point(labels == number)),)) for number in (1, 2)]
        for _, labels in rendered
    ]
    pictures = [rgb for rgb, _ in rendered]
    records = map(labeler.ImageLabeler(model), pictures, clicks)
    yield from zip(pictures, map(union, records), strict=True)


def union(record: labeler.Record) -> Mask:
    """True where any object of the record is; the areas are printed on the way."""
    print(f"{record.key}: mask areas {[annotation.area for annotation in record.annotations]}")
    mask = np.zeros((record.height, record.width), bool)
    for annotation in record.annotations:
        mask |= labeler.decode_mask(dict(annotation.rle))
    return mask


class ColourClassifier:
    """Logistic regression on a pixel's colour: small enough to read, and trained as larger models are."""

    def __init__(self) -> None:
        self.weights = np.zeros(10)

    def step(self, rgb: Rgb, mask: Mask, *, rate: float = 0.5) -> float:
        """One step of gradient descent on every 50th pixel; the mean cross entropy before it."""
        features, wanted = self._features(rgb.reshape(-1, 3)[::50]), mask.reshape(-1)[::50]
        probability = 1 / (1 + np.exp(-features @ self.weights))
        self.weights -= rate * features.T @ (probability - wanted) / len(wanted)
        return float(-np.log(np.where(wanted, probability, 1 - probability) + 1e-9).mean())

    @staticmethod
    def _features(rgb_nc: Rgb) -> NDArray[np.float64]:
        x = rgb_nc / 127.5 - 1
        pairs = np.stack([x[:, 0] * x[:, 1], x[:, 0] * x[:, 2], x[:, 1] * x[:, 2]], axis=1)
        return np.concatenate([np.ones((len(x), 1)), x, x * x, pairs], axis=1)


def main() -> None:
    """Label once, learn for many epochs."""
    model = labeler.load_model("mini")
    batches = [*from_folder(model), *from_memory(model, 4)]
    classifier = ColourClassifier()
    for epoch in range(30):
        losses = [classifier.step(rgb, mask) for rgb, mask in batches]
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    main()
