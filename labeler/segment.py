"""One picture: encode once, decode a mask for every object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from labeler import prompts
from labeler.annotate import annotation
from labeler.bundle import Bundle
from labeler.errors import SeedError
from labeler.sam2 import Sam2
from labeler.types import Annotation, Candidates, Features, Point, Seed

if TYPE_CHECKING:
    from PIL import Image

    from labeler.types import Rgb

Keep = Literal["best", "all"]
"""`best`: one annotation per object. `all`: every candidate, the chosen one first."""


def segment(
    image: Image.Image | Rgb,
    seeds: Sequence[Seed],
    model: Sam2,
    *,
    height: int,
    width: int,
    orientation: int = 1,
    keep: Keep = "best",
) -> Iterator[Annotation]:
    """Annotations of `seeds`, in their order, on an RGB picture whose upright size is `height` x `width`.

    `orientation`: the EXIF orientation that still has to be applied to `image` (1: it is upright).
    """
    if not seeds:
        return
    features = model.encode(image, orientation=orientation)
    for seed in seeds:
        candidates, candidate, rule = decide(features, seed, model, height=height, width=width)
        others = [i for i in range(len(candidates.logits_nhw)) if i != candidate] if keep == "all" else []
        for i in (candidate, *others):
            yield annotation(candidates, i, rule=rule, seed=seed, height=height, width=width, chosen=i == candidate)


def decide(features: Features, seed: Seed, model: Sam2, *, height: int, width: int) -> tuple[Candidates, int, str]:
    """The decode that answers a seed, which of its candidates, and by which rule."""
    if faults := unservable(seed, model.runtime.bundle, model.decode_role):
        raise SeedError(faults)
    if prompts.needed_tokens(seed.points, seed.box) <= model.tokens:
        prompt = model.prompt(seed.points, seed.box, height=height, width=width)
        candidates = model.decode(features, prompt)
        choice = prompts.choose(candidates, ambiguous=prompt.ambiguous)
        return candidates, choice.candidate, choice.rule
    return _select(features, seed, model, height, width)


def unservable(seed: Seed, bundle: Bundle, decode_role: str) -> str | None:
    """Why a bundle's decoder cannot serve a seed, or None. Points can always be selected among."""
    tokens, boxes = bundle.graphs[decode_role].input("sparse").shape[0], "box" in bundle.constants
    if seed.box is None or (boxes and prompts.needed_tokens(seed.points, seed.box) <= tokens):
        return None
    lack = f"it takes {tokens} tokens" if boxes else "it knows points only"
    return (
        f"object {seed.object_id}: has a box, which this bundle's decoder cannot take ({lack}); "
        "give a point inside the object instead, or convert a checkpoint with --prompt-tokens"
    )


def _select(features: Features, seed: Seed, model: Sam2, height: int, width: int) -> tuple[Candidates, int, str]:
    """Decode each positive point by itself and take the candidate that agrees best with all points.

    Ties go to the better predicted IoU, then to the earlier candidate of the earlier point.
    """
    best: tuple[tuple[int, float], Candidates, int] | None = None
    for point in (point for point in seed.points if point.positive):
        candidates = _decode_one(features, point, model, height, width)
        first = 0 if candidates.iou_n is None else 1
        for i in range(first, len(candidates.logits_nhw)):
            agreeing = prompts.agreement(candidates.logits_nhw[i], seed.points, height=height, width=width)
            rank = agreeing, 0.0 if candidates.iou_n is None else float(candidates.iou_n[i])
            if best is None or rank > best[0]:
                best = rank, candidates, i
    assert best is not None, "seeds without a positive point or a box are refused when they are read"
    (agreeing, _), candidates, i = best
    return candidates, i, f"selected_among_single_clicks_{agreeing}_of_{len(seed.points)}_points"


def _decode_one(features: Features, point: Point, model: Sam2, height: int, width: int) -> Candidates:
    return model.decode(features, model.prompt([point], height=height, width=width))
