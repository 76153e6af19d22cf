"""The runtime against plain LiteRT, on the graphs that ship and on graphs of a few values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tinygraph
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
from ai_edge_litert.options import CpuOptions, Options

from labeler import bundle
from labeler.bundle import Bundle, GraphSpec, Part
from labeler.errors import BundleError, GraphError
from labeler.runtime import LiteRtRuntime, quiet_stderr
from labeler.types import Array


def tiny(folder: Path, **graphs: GraphSpec) -> Bundle:
    """A bundle of graphs that `tinygraph` wrote."""
    return Bundle(folder, "tiny", "1", "Apache-2.0", "test", graphs, {}, "video", None, {})


def flat(file: str, inputs: dict[str, int], outputs: dict[str, int], layout: str = "flat") -> GraphSpec:
    def named(parts: dict[str, int]) -> tuple[Part, ...]:
        return tuple(Part(name, (size,)) for name, size in parts.items())

    return GraphSpec(file, None, None, layout, named(inputs), named(outputs))  # type: ignore[arg-type]


def values(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


@pytest.fixture
def doubling(tmp_path: Path) -> Bundle:
    """One flat tensor of a [2] and b [1] in, its double out."""
    tinygraph.write(tmp_path / "g.tflite", sizes=[3], sums=[(0, 0)])
    return tiny(tmp_path, g=flat("g.tflite", {"a": 2, "b": 1}, {"x": 1, "y": 2}))


def random_inputs(spec: GraphSpec) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {part.name: rng.standard_normal(part.shape).astype(np.float32) for part in spec.inputs}


def plain_run(path: Path, flat_input: Array, size: int) -> Array:
    """The shortest way to run a graph: new model, new buffers, one thread."""
    options = Options(
        hardware_accelerators=HardwareAccelerator.CPU, cpu_options=CpuOptions(num_threads=1, xnnpack_flags=8)
    )
    with quiet_stderr():
        model = CompiledModel.from_file(str(path), options=options)
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        inputs[0].write(flat_input)
        model.run_by_index(0, inputs, outputs)
        return outputs[0].read(size, np.float32)


@pytest.mark.parametrize("role", ["encode", "image_decode", "decode", "memorize", "memcond2", "memcond7"])
def test_equals_a_plain_run(mini_dir: Path, role: str) -> None:
    mini = bundle.load(mini_dir)
    spec = mini.graphs[role]
    inputs = random_inputs(spec)
    found = LiteRtRuntime(mini, threads=1).run(role, **inputs)
    expected = plain_run(
        mini_dir / spec.file,
        np.concatenate([inputs[part.name].ravel() for part in spec.inputs]),
        sum(part.size for part in spec.outputs),
    )
    assert np.array_equal(np.concatenate([found[part.name].ravel() for part in spec.outputs]), expected)
    assert {name: array.shape for name, array in found.items()} == {part.name: part.shape for part in spec.outputs}


def test_parts_are_where_the_description_says(doubling: Bundle) -> None:
    out = LiteRtRuntime(doubling, threads=1).run("g", b=values(30), a=values(1, 2))
    assert out["x"].tolist() == [2]
    assert out["y"].tolist() == [4, 60]


def test_only_new_arrays_are_copied_and_results_stay_right(doubling: Bundle) -> None:
    runtime = LiteRtRuntime(doubling, threads=1)
    a = values(1, 2)
    runtime.run("g", a=a, b=values(30))
    assert runtime.run("g", a=a, b=values(40))["y"].tolist() == [4, 80]
    a[:] = 7  # against the rules, and the one way to see that it is not copied again
    assert runtime.run("g", a=a, b=values(50))["y"].tolist() == [4, 100]
    assert runtime.run("g", a=a.copy(), b=values(50))["y"].tolist() == [14, 100]


def test_outputs_are_not_overwritten_and_cannot_be_changed(doubling: Bundle) -> None:
    runtime = LiteRtRuntime(doubling, threads=1)
    first = runtime.run("g", a=values(1, 2), b=values(3))
    runtime.run("g", a=values(5, 6), b=values(7))
    assert first["x"].tolist() == [2]
    with pytest.raises(ValueError, match="read-only"):
        first["x"][0] = 0


def test_roles_that_share_a_file(tmp_path: Path) -> None:
    tinygraph.write(tmp_path / "g.tflite", sizes=[3], sums=[(0, 0)])
    one = flat("g.tflite", {"a": 2, "b": 1}, {"x": 3})
    other = flat("g.tflite", {"p": 1, "q": 2}, {"r": 3})
    runtime = LiteRtRuntime(tiny(tmp_path, g=one, same=one, other=other), threads=1)
    a = values(1, 2)
    runtime.run("g", a=a, b=values(3))
    assert runtime.run("other", p=values(9), q=values(8, 7))["r"].tolist() == [18, 16, 14]
    assert runtime.run("same", a=a, b=values(4))["x"].tolist() == [2, 4, 8]
    assert runtime.run("g", a=a, b=values(5))["x"].tolist() == [2, 4, 10]


def test_parts_layout_has_one_tensor_per_part(tmp_path: Path) -> None:
    tinygraph.write(tmp_path / "g.tflite", sizes=[2, 1, 2], sums=[(0, 2), (1, 1)])
    spec = flat("g.tflite", {"a": 2, "b": 1, "c": 2}, {"ac": 2, "bb": 1}, "parts")
    runtime = LiteRtRuntime(tiny(tmp_path, g=spec), threads=1)
    a = values(1, 2)
    out = runtime.run("g", a=a, b=values(3), c=values(10, 20))
    assert out["ac"].tolist() == [11, 22]
    assert out["bb"].tolist() == [6]
    out = runtime.run("g", a=a, b=values(4), c=values(30, 40))
    assert out["ac"].tolist() == [31, 42]
    assert out["bb"].tolist() == [8]


@pytest.mark.parametrize(
    "given",
    [{"a": values(1, 2)}, {"a": values(1, 2), "b": values(3), "c": values(4)}, {"a": values(1), "b": values(3)}],
    ids=["one too few", "one too many", "a shape that numpy would broadcast"],
)
def test_wrong_parts_are_refused_and_spoil_nothing(doubling: Bundle, given: dict[str, Array]) -> None:
    runtime = LiteRtRuntime(doubling, threads=1)
    a, b = values(1, 2), values(3)
    runtime.run("g", a=a, b=b)
    with pytest.raises(GraphError, match=r"g\.tflite: was given parts .*, takes"):
        runtime.run("g", **given)
    assert runtime.run("g", a=a, b=b)["y"].tolist() == [4, 6]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (flat("g.tflite", {"a": 4}, {"x": 3}), r"input tensors hold \[3\] values, its description says \[4\]"),
        (flat("g.tflite", {"a": 3}, {"x": 2}), r"output tensors hold \[3\] values, its description says \[2\]"),
        (flat("g.tflite", {"a": 2, "b": 1}, {"x": 3}, "parts"), r"hold \[3\] values, its description says \[2, 1\]"),
    ],
    ids=["input", "output", "layout"],
)
def test_tensors_that_do_not_fit_the_description(tmp_path: Path, spec: GraphSpec, message: str) -> None:
    tinygraph.write(tmp_path / "g.tflite", sizes=[3], sums=[(0, 0)])
    with pytest.raises(BundleError, match=message) as caught:
        LiteRtRuntime(tiny(tmp_path, g=spec), threads=1).load(["g"])
    assert len(caught.value.faults) == 1
    assert "\n" not in str(caught.value)


def test_integer_tensors_are_refused(tmp_path: Path) -> None:
    tinygraph.write(tmp_path / "g.tflite", sizes=[3], sums=[(0, 0)], dtype=np.int32)
    with pytest.raises(BundleError, match="int32"):
        LiteRtRuntime(tiny(tmp_path, g=flat("g.tflite", {"a": 3}, {"x": 3})), threads=1).load(["g"])


def test_a_run_that_fails_says_why(doubling: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    runtime = LiteRtRuntime(doubling, threads=1)
    runtime.load(["g"])
    runtime._graph("g").compiled.outputs.clear()  # LiteRT refuses to run without buffers
    with pytest.raises(GraphError, match=r"g\.tflite: the run failed \(.*Output buffer size mismatch"):
        runtime.run("g", a=values(1, 2), b=values(3))
    assert "INFO" not in capfd.readouterr().err


def in_child(code: str, *arguments: object, closed_stderr: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    if closed_stderr:
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


RUN_MEMORIZE = """
import sys
from pathlib import Path
import numpy as np
from labeler import bundle
from labeler.runtime import LiteRtRuntime
mini = bundle.load(Path(sys.argv[1]))
runtime = LiteRtRuntime(mini, threads=1)
parts = {part.name: np.zeros(part.shape, np.float32) for part in mini.graphs["memorize"].inputs}
print(runtime.run("memorize", **parts)["memory"].shape)
"""


def test_nothing_on_the_terminal_not_even_at_exit(mini_dir: Path) -> None:
    done = in_child(RUN_MEMORIZE, mini_dir)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(4096, 64)\n", "")


def test_what_python_says_at_the_end_is_still_heard(mini_dir: Path) -> None:
    early = "import atexit, sys\natexit.register(lambda: print('late words', file=sys.stderr))\n"
    done = in_child(early + RUN_MEMORIZE + "raise ValueError('the last error')", mini_dir)
    assert done.returncode == 1
    assert done.stderr.count("the last error") == 1 + done.stderr.count("raise ValueError('the last error')")
    assert done.stderr.endswith("late words\n")
    assert "INFO" not in done.stderr


def test_works_when_started_with_standard_error_closed(mini_dir: Path) -> None:
    done = in_child(RUN_MEMORIZE, mini_dir, closed_stderr=True)
    assert (done.returncode, done.stdout) == (0, "(4096, 64)\n")


def test_a_file_that_litert_refuses_is_one_error_shown_once(tmp_path: Path) -> None:
    (tmp_path / "g.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    code = (
        "import sys; from pathlib import Path; from labeler.runtime import LiteRtRuntime; from test_runtime import *\n"
        "try: LiteRtRuntime(tiny(Path(sys.argv[1]), g=flat('g.tflite', {'a': 3}, {'x': 3})), threads=1).load(['g'])\n"
        "except BundleError as error: print(error)"
    )
    done = in_child(f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{code}", tmp_path)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith(f"{tmp_path / 'g.tflite'}: LiteRT cannot load it on the cpu (")


def test_chatter_is_dropped_and_everything_else_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    said = b"INFO: a\nWARNING: b\nI0000 00:00 c\nERROR: d\n\xe2\x94\x94 because\nsomething else\n"
    with quiet_stderr() as errors:
        os.write(2, said)
        assert errors() == "ERROR: d\n"
    assert capfd.readouterr().err == "ERROR: d\nsomething else\n"
    with pytest.raises(ZeroDivisionError), quiet_stderr():
        os.write(2, said) / 0
    assert capfd.readouterr().err == "something else\n"
