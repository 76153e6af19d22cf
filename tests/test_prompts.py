"""Tokens and the choice of candidates against the PyTorch modules of transformers."""

from __future__ import annotations

import numpy as np
import pytest

from labeler import prompts
from labeler.errors import UsageError
from labeler.types import Candidates, Point

RNG = np.random.default_rng(7)


def constants() -> dict[str, np.ndarray]:
    names = ("positive", "negative", "not_a_point", "top_left", "bottom_right")
    values = {name: RNG.standard_normal(256).astype(np.float32) for name in names}
    return values | {"gaussian": RNG.standard_normal((2, 128)).astype(np.float32)}


def by_hand(x: float, y: float, label: str, values: dict[str, np.ndarray], height: int, width: int) -> np.ndarray:
    """One token, value by value, from GRAPHS: model space, half-pixel centre, -1..1, sine then cosine."""
    cx, cy = (2 * (p + 0.5) / 1024 - 1 for p in (x * 1024 / width, y * 1024 / height))
    angles = [2 * np.pi * (cx * values["gaussian"][0, i] + cy * values["gaussian"][1, i]) for i in range(128)]
    return np.array([np.sin(a) for a in angles] + [np.cos(a) for a in angles]) + values[label]


@pytest.mark.parametrize(("height", "width"), [(480, 640), (1024, 1024), (3000, 1000), (1, 7)])
def test_tokens_of_a_click(height: int, width: int) -> None:
    values = constants()
    point = Point(width * 0.37, height * 0.81)
    prompt = prompts.encode([point], None, values, height=height, width=width, tokens=2)
    assert np.abs(prompt.sparse_nc[0] - by_hand(point.x, point.y, "positive", values, height, width)).max() < 1e-5
    assert np.array_equal(prompt.sparse_nc[1], values["not_a_point"])
    assert prompt.token_mask_n.tolist() == [1, 1]
    assert prompt.ambiguous


def test_tokens_of_points_and_a_box_are_padded() -> None:
    values = constants()
    points = [Point(10, 20), Point(30, 5, positive=False)]
    prompt = prompts.encode(points, (4, 3, 40, 33), values, height=50, width=60, tokens=8)
    expected = [
        by_hand(10, 20, "positive", values, 50, 60),
        by_hand(30, 5, "negative", values, 50, 60),
        by_hand(4, 3, "top_left", values, 50, 60),
        by_hand(40, 33, "bottom_right", values, 50, 60),
        values["not_a_point"],
    ]
    assert np.abs(prompt.sparse_nc[:5] - expected).max() < 1e-5
    assert not prompt.sparse_nc[5:].any()
    assert prompt.token_mask_n.tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    assert not prompt.ambiguous


def test_too_many_points_for_the_decoder_are_refused() -> None:
    with pytest.raises(UsageError, match="needs 3 tokens"):
        prompts.encode([Point(1, 1), Point(2, 2)], None, constants(), height=9, width=9, tokens=2)


def candidates(masks: np.ndarray, iou: list[float] | None) -> Candidates:
    return Candidates(masks, None if iou is None else np.array(iou, np.float32), None, None)


def test_one_click_takes_the_best_of_the_three() -> None:
    masks = RNG.standard_normal((4, 8, 8)).astype(np.float32)
    choice = prompts.choose(candidates(masks, [0.99, 0.2, 0.7, 0.6]), ambiguous=True)
    assert (choice.candidate, choice.rule) == (2, "best_predicted_iou")


@pytest.mark.parametrize(("wobble", "expected"), [(5.0, 0), (0.04, 3)])
def test_several_points_take_candidate_0_if_it_is_stable(wobble: float, expected: int) -> None:
    masks = np.full((4, 10, 10), -5, np.float32)
    masks[0, :5] = 5
    masks[0, 5, :8] = wobble  # at 0.04, 8 of 58 pixels lie inside the band of doubt
    choice = prompts.choose(candidates(masks, [0.1, 0.2, 0.3, 0.9]), ambiguous=False)
    assert choice.candidate == expected


def test_a_decoder_without_scores_gives_its_first() -> None:
    assert prompts.choose(candidates(np.zeros((3, 4, 4)), None), ambiguous=True).candidate == 0


def test_stability_of_nothing_is_one() -> None:
    assert prompts.stability(np.full((4, 4), -3.0)) == 1.0


def test_agreement_looks_where_the_upsampled_mask_is() -> None:
    from labeler import masks

    logits_hw = RNG.standard_normal((16, 16))
    height, width = 45, 70
    full = masks.upsample(logits_hw, height=height, width=width) > 0
    for _ in range(200):
        x, y = int(RNG.integers(width)), int(RNG.integers(height))
        points = [Point(x, y), Point(x, y, positive=False)]
        assert prompts.agreement(logits_hw, points[:1], height=height, width=width) == int(full[y, x])
        assert prompts.agreement(logits_hw, points, height=height, width=width) == 1


def test_choice_equals_the_reference() -> None:
    """The stability fallback of transformers' mask decoder, on random candidates near the threshold."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from transformers.models.sam2.configuration_sam2 import Sam2MaskDecoderConfig
    from transformers.models.sam2.modeling_sam2 import Sam2MaskDecoder

    decoder = Sam2MaskDecoder(Sam2MaskDecoderConfig())
    picked = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        masks = rng.standard_normal((4, 32, 32)).astype(np.float32) * (0.5 if seed % 2 else 8)
        iou = rng.random(4).astype(np.float32)
        expected, _ = decoder._dynamic_multimask_via_stability(
            torch.tensor(masks)[None, None], torch.tensor(iou)[None, None]
        )
        choice = prompts.choose(Candidates(masks, iou, None, None), ambiguous=False)
        assert np.array_equal(masks[choice.candidate], expected[0, 0, 0].numpy())
        picked.add(choice.candidate)
    assert 0 in picked
    assert len(picked) > 1
