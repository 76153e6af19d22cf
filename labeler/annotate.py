"""One mask with its scores becomes one JSON-ready annotation."""

from __future__ import annotations

from labeler import masks, prompts
from labeler.types import Annotation, Array, Candidates, Seed


def annotation(
    candidates: Candidates,
    candidate: int,
    *,
    rule: str,
    seed: Seed,
    height: int,
    width: int,
    frame: int = 0,
    prompted: bool = True,
    chosen: bool = True,
    logits_hw: Array | None = None,
) -> Annotation:
    """The annotation of `candidates[candidate]` on an upright picture of `height` x `width`.

    `logits_hw` replaces the candidate's own logits (an absent object's mask is empty). `prompted`: the seed's
    points and box were given on this very frame.
    """
    logits = candidates.logits_nhw[candidate] if logits_hw is None else logits_hw
    mask = masks.encode(logits, height=height, width=width)
    iou_n, score = candidates.iou_n, candidates.object_score
    return Annotation(
        object_id=seed.object_id,
        category=seed.category,
        frame=frame,
        rle=mask.rle,
        area=mask.area,
        bbox=mask.bbox,
        predicted_iou=None if iou_n is None else float(iou_n[candidate]),
        stability=prompts.stability(logits),
        object_score=score,
        visible=score is None or score > 0,
        candidate=candidate,
        selection=rule,
        points=tuple((point.x, point.y, int(point.positive)) for point in seed.points) if prompted else (),
        box=seed.box if prompted else None,
        chosen=chosen,
    )
