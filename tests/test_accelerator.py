"""A graph may run on the GPU only if it was seen to compute the same there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labeler import accelerator, agreement, bundle
from labeler.accelerator import Verdict
from labeler.bundle import Bundle
from labeler.errors import AcceleratorError
from labeler.types import Array

STILLS = ("image_encode", "image_decode")
CLIPS = ("encode", "decode", "memorize", "memcond2", "memcond7")
SOFTWARE_GPU = Path("/usr/lib/chromium")
"""Where Debian's chromium package keeps a Vulkan driver that needs no GPU, and a loader for it."""

STAND_IN = """
import sys, json; sys.path[:] = json.loads(sys.argv[1])
from labeler import accelerator, runtime
class OnTheCpu(runtime.LiteRtRuntime):
    def __init__(self, bundle, *, threads, devices):
        super().__init__(bundle, threads=threads)
    def run(self, graph, /, **parts):
        out = super().run(graph, **parts)
        return {name: -array if graph == "decode" else array for name, array in out.items()}
accelerator.LiteRtRuntime = OnTheCpu
accelerator.child()
"""
"""A driver that computes everything right but `decode`, whose outputs have the wrong sign."""


@pytest.fixture(scope="module")
def mini() -> Bundle:
    """Pictures served by the image pair, so that every graph takes part."""
    return replace(bundle.load(Path(__file__).parent.parent / "models" / "mini"), stills="image")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that has one."""
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.setenv(name, "/nowhere.json")


def test_cpu_tries_nothing(mini: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(accelerator, "probe")
    chosen = accelerator.choose(mini, STILLS, wanted="cpu", threads=1)
    assert chosen.devices == dict.fromkeys(STILLS, "cpu")
    assert chosen.summary == ""


@pytest.mark.usefixtures("no_gpu")
def test_auto_without_a_gpu_takes_the_cpu_and_says_why(mini: Bundle) -> None:
    chosen = accelerator.choose(mini, CLIPS, wanted="auto", threads=1)
    assert chosen.devices == dict.fromkeys(CLIPS, "cpu")
    assert set(chosen.reasons) == set(CLIPS)
    assert chosen.summary.startswith("cpu for encode, decode, memorize, memcond2, memcond7 (there is no usable gpu: ")
    assert "\n" not in chosen.summary


@pytest.mark.usefixtures("no_gpu")
def test_gpu_without_a_gpu_is_an_error_for_each_graph(mini: Bundle) -> None:
    with pytest.raises(AcceleratorError) as caught:
        accelerator.choose(mini, STILLS, wanted="gpu", threads=1)
    lines = str(caught.value).splitlines()
    assert [line.split(" (")[0] for line in lines] == ["sam2v_encode.tflite", "sam2_decoder.tflite"]
    assert all("no usable gpu" in line and "--accelerator auto or cpu" in line for line in lines)


def test_a_graph_that_computes_something_else_is_refused(mini: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "_CHILD", STAND_IN)
    with pytest.raises(
        AcceleratorError, match=r"^sam2v_decode.tflite \(decode\): .*correlation -1\.0000 with the cpu.*$"
    ):
        accelerator.choose(mini, ("encode", "decode"), wanted="gpu", threads=1)
    chosen = accelerator.choose(mini, ("encode", "memcond2"), wanted="gpu", threads=1)
    assert chosen.devices == {"encode": "gpu", "memcond2": "gpu"}
    assert chosen.summary == "gpu for encode, memcond2"


@pytest.mark.parametrize(
    ("child", "told"),
    [
        ("import os; os.kill(os.getpid(), 11)", "died with signal 11"),
        ("import sys; sys.exit('ERROR: out of luck')", "died with exit code 1; out of luck"),
        ("import time; time.sleep(60)", "gave no result within 0.5 s"),
    ],
    ids=["crash", "exit", "hang"],
)
def test_a_driver_that_dies_or_hangs_costs_the_gpu_only(
    mini: Bundle, monkeypatch: pytest.MonkeyPatch, child: str, told: str
) -> None:
    monkeypatch.setattr(accelerator, "_CHILD", child)
    chosen = accelerator.choose(mini, STILLS, wanted="auto", threads=1, timeout=0.5 if "sleep" in child else 60)
    assert chosen.devices == dict.fromkeys(STILLS, "cpu")
    assert all(told in reason for reason in chosen.reasons.values())


def test_auto_mixes_and_takes_the_gpu_only_where_it_gains(mini: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = {
        "encode": Verdict(None, gpu_seconds=0.1, cpu_seconds=1.0),
        "decode": Verdict(None, gpu_seconds=0.2, cpu_seconds=0.1),
        "memorize": Verdict("memory: is not finite"),
    }
    monkeypatch.setattr(accelerator, "probe", lambda *_, **__: verdicts)
    chosen = accelerator.choose(mini, tuple(verdicts), wanted="auto", threads=1)
    assert chosen.devices == {"encode": "gpu", "decode": "cpu", "memorize": "cpu"}
    assert chosen.summary == (
        "gpu for encode; cpu for decode (matches the cpu; 0.200 s on the gpu, 0.100 s on the cpu); "
        "cpu for memorize (memory: is not finite)"
    )


def test_the_fixed_scene_says_something_about_every_graph(mini: Bundle) -> None:
    clips = accelerator.reference(mini, CLIPS, threads=1)
    stills = accelerator.reference(mini, STILLS, threads=1)
    assert (tuple(clips), tuple(stills)) == (CLIPS, STILLS)
    again = accelerator.reference(mini, ("encode", "decode"), threads=1)
    for sample, other in ((clips["decode"], again["decode"]), (clips["encode"], stills["image_encode"])):
        assert all(np.array_equal(sample.outputs[name], other.outputs[name]) for name in sample.outputs)
    for sample in (*clips.values(), *stills.values()):
        assert all(np.isfinite(array).all() and array.std() > 0 for array in sample.outputs.values() if array.size > 1)
    masks = stills["image_decode"].outputs["masks"] > 0
    rows, cols = np.mgrid[:256, :256]
    disc = np.hypot((cols + 0.5) - 120, (rows + 0.5) * 192 / 256 - 90) < 45
    assert (masks[0] & disc).sum() / (masks[0] | disc).sum() > 0.5
    # The memory graphs add to what they are given: else they would match whatever the attention does.
    for role in ("memcond2", "memcond7"):
        gain = clips[role].outputs["pix"] - clips[role].inputs["pix"]
        assert np.abs(gain).max() > 0.01 * np.abs(clips[role].inputs["pix"]).max()


class TestAgreement:
    rng = np.random.default_rng(5)
    values: Array = rng.standard_normal((3, 32, 32)).astype(np.float32)

    def fault(self, found: Array, *, name: str = "x", expected: Array | None = None) -> str | None:
        return agreement.fault({name: self.values if expected is None else expected}, {name: found}, {})

    def test_equal_and_rounded_values_agree(self) -> None:
        assert self.fault(self.values) is None
        assert self.fault(self.values.astype(np.float16).astype(np.float32), name="masks") is None

    def test_correlation_is_numpys(self) -> None:
        other = self.rng.standard_normal(self.values.size) + self.values.ravel()
        expected = np.corrcoef(self.values.ravel(), other)[0, 1]
        assert agreement.correlation(self.values.ravel().astype(np.float64), other) == pytest.approx(expected, abs=1e-9)

    @pytest.mark.parametrize("noise", [0.1, 0.2])
    def test_the_limit_lies_at_a_correlation_of_99_percent(self, noise: float) -> None:
        found = self.values + noise * self.rng.standard_normal(self.values.shape).astype(np.float32)
        assert (self.fault(found) is None) == (np.corrcoef(self.values.ravel(), found.ravel())[0, 1] >= 0.99)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_one_value_that_is_no_number(self, bad: float) -> None:
        found = self.values.copy()
        found[1, 2, 3] = bad
        assert self.fault(found) == "x: is not finite"

    @pytest.mark.parametrize("change", [lambda x: 2 * x, lambda x: x + 1], ids=["scale", "offset"])
    def test_correlation_alone_is_not_enough(self, change: object) -> None:
        assert "is off by" in str(self.fault(change(self.values)))  # type: ignore[operator]

    def test_constant_outputs(self) -> None:
        zeros = np.zeros_like(self.values)
        assert "correlation 0.0000" in str(self.fault(zeros))
        assert self.fault(zeros, expected=zeros) is None
        assert self.fault(zeros + 1, expected=zeros) is not None

    def test_few_values_are_compared_one_by_one(self) -> None:
        scores = np.array([0.9, 0.5, 0.7, 0.8], np.float32)
        assert self.fault(scores + 0.01, expected=scores) is None
        assert "differs by 0.03" in str(self.fault(scores + 0.03, expected=scores))

    def test_masks_must_agree_as_masks(self) -> None:
        logits = np.full((1, 100, 100), -5, np.float32)
        logits[0, :50] = 5
        logits[0, 50:52] = -0.01  # as good as decided otherwise
        found = np.where(logits == -0.01, np.float32(0.01), logits)
        assert self.fault(found, expected=logits, name="other") is None
        assert "candidate 0 has IoU 0.96" in str(self.fault(found, expected=logits, name="masks"))

    def test_empty_masks_agree(self) -> None:
        assert self.fault(self.values - 100, expected=self.values - 100, name="masks") is None

    def test_what_is_added_to_an_input_must_agree_too(self) -> None:
        gain = 0.01 * self.rng.standard_normal(self.values.shape).astype(np.float32)
        inputs, expected = {"pix": self.values}, {"pix": self.values + gain}
        assert agreement.fault(expected, {"pix": self.values + gain * np.float32(1.01)}, inputs) is None
        assert "what pix gains" in str(agreement.fault(expected, {"pix": self.values - gain}, inputs))


@pytest.mark.slow
@pytest.mark.skipif(
    not (SOFTWARE_GPU / "libvk_swiftshader.so").exists(), reason="needs the software Vulkan driver of Debian's chromium"
)
def test_garbage_of_a_software_gpu_is_refused(mini: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles every graph, calls it fully accelerated, raises nothing; only the memory graphs come out right."""
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.setenv(name, str(SOFTWARE_GPU / "vk_swiftshader_icd.json"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(SOFTWARE_GPU))
    verdicts = accelerator.probe(mini, (*STILLS, *CLIPS), threads=1)
    refused = {role for role, verdict in verdicts.items() if verdict.fault}
    assert refused
    assert refused == {role for role, verdict in verdicts.items() if "Validation error" in verdict.told}
    assert not any(verdict.pays for verdict in verdicts.values())
    monkeypatch.setattr(accelerator, "probe", lambda *_, **__: verdicts)
    with pytest.raises(AcceleratorError) as caught:
        accelerator.choose(mini, CLIPS, wanted="gpu", threads=1)
    named = {line.split()[0] for line in str(caught.value).splitlines()}
    assert named == {mini.graphs[role].file for role in refused}
    assert set(accelerator.choose(mini, CLIPS, wanted="auto", threads=1).devices.values()) == {"cpu"}
