"""Small models that would use too much memory or run forever are refused."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from mobileprep.core import limits
from mobileprep.core.limits import DEFAULT_ITERATIONS, memory_limit, set_limits
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.inspection import benchmark_runs as runs
from tests.cli.conftest import Run
from tests.fuzz.seeds import loop_graph
from tests.ops.graphs import c, p
from tests.runtime.functions.texts import PLACEHOLDER, RELU, call, function, model
from tests.transforms.graphs import node

MEGABYTES_16 = 1 << 22  # floats


@pytest.fixture(autouse=True)
def _default_limits():
    yield
    set_limits()


def doubling(levels: int) -> Graph:
    """A tensor of one element, concatenated with itself repeatedly."""
    nodes = [c("axis", 0), c("x0", [1.0])]
    joined = range(levels)
    nodes += [node(f"x{i + 1}", "ConcatV2", f"x{i} x{i} axis", N=2) for i in joined]
    return Graph(nodes)


def graph_file(folder: Path, graph: Graph) -> Path:
    write_graph(folder / "g.pb", graph)
    return folder / "g.pb"


def test_memory_option_limits_a_run(tmp_path: Path, run: Run) -> None:
    path = graph_file(tmp_path, doubling(40))
    result = run("run", f"--graph={path}", "--fetch=x40", "--memory=64MB")
    assert result.code == 5
    assert f"{path}: node 'x24' (ConcatV2)" in result.err
    assert "allow more by --memory or MOBILEPREP_MEMORY" in result.err


def test_memory_limit_from_the_environment(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = graph_file(tmp_path, doubling(20))
    assert run("run", f"--graph={path}", "--fetch=x20").code == 0
    monkeypatch.setenv("MOBILEPREP_MEMORY", "1 MB")
    assert run("run", f"--graph={path}", "--fetch=x20").code == 5
    monkeypatch.setenv("MOBILEPREP_MEMORY", "much")
    result = run("run", f"--graph={path}", "--fetch=x20")
    assert (result.code, "MOBILEPREP_MEMORY: invalid limit 'much'" in result.err) == (2, True)


def test_strings_count_towards_the_memory_limit(tmp_path: Path, run: Run) -> None:
    nodes = [c("x0", np.array([b"a" * 100], object))]
    nodes += [node(f"x{i + 1}", "StringJoin", f"x{i} x{i}", T=None, N=2) for i in range(40)]
    result = run(
        "run", f"--graph={graph_file(tmp_path, Graph(nodes))}", "--memory=1MB", "--fetch=x40"
    )
    assert result.code == 5
    assert "(StringJoin)" in result.err


def test_tensors_share_the_memory_limit(tmp_path: Path, run: Run) -> None:
    size = c("size", np.array([MEGABYTES_16], np.int32))
    fills = [node(f"f{i}", "Fill", "size zero") for i in range(6)]
    added = node("sum", "AddN", " ".join(f.name for f in fills), N=6)
    graph = Graph([size, c("zero", 1.0), *fills, added])
    path = graph_file(tmp_path, graph)
    assert run("run", f"--graph={path}", "--fetch=sum", "--memory=20MB").code == 5
    assert run("run", f"--graph={path}", "--fetch=sum", "--memory=200MB").code == 0


def test_folding_skips_huge_constants(tmp_path: Path, run: Run) -> None:
    path = graph_file(tmp_path, doubling(40))
    folded = ["--transforms=fold_constants", f"--out_graph={tmp_path / 'o.pb'}", "--outputs=x40"]
    assert run("transform", f"--in_graph={path}", *folded).code == 0


def list_loop(rounds: int) -> Graph:
    """A TensorArray that a loop writes 64 KB to in each round."""
    frame = {"frame_name": "while", "is_constant": False, "parallel_iterations": 10}
    held = {**frame, "is_constant": True}
    array = node("array", "TensorArrayV3", "size", T=None, dtype=DType.FLOAT, dynamic_size=True)
    write = "handle turn:1 row turn_flow:1"
    return Graph(
        [
            c("size", 0),
            array,
            c("first", 0),
            node("handle", "Enter", "array", T=DType.RESOURCE, **held),
            node("enter", "Enter", "first", T=DType.INT32, **frame),
            node("enter_flow", "Enter", "array:1", **frame),
            node("head", "Merge", "enter next", T=DType.INT32, N=2),
            node("head_flow", "Merge", "enter_flow next_flow", N=2),
            c("most", rounds, "^head"),
            node("less", "Less", "head most", T=DType.INT32),
            node("go", "LoopCond", "less", T=None),
            node("turn", "Switch", "head go", T=DType.INT32),
            node("turn_flow", "Switch", "head_flow go"),
            c("one", 1, "^turn"),
            c("dims", [1 << 14], "^turn"),
            c("zero", 0.0, "^turn"),
            node("row", "Fill", "dims zero", index_type=DType.INT32),
            node("write", "TensorArrayWriteV3", write),
            node("more", "Add", "turn:1 one", T=DType.INT32),
            node("next", "NextIteration", "more", T=DType.INT32),
            node("next_flow", "NextIteration", "write"),
            node("exit_flow", "Exit", "turn_flow"),
            node("y", "TensorArraySizeV3", "array exit_flow", T=None),
        ]
    )


def test_tensor_arrays_count_towards_the_memory_limit(tmp_path: Path, run: Run) -> None:
    few, many = ((f"--graph={tmp_path / n}", "--fetch=y") for n in ("few.pb", "many.pb"))
    write_graph(tmp_path / "few.pb", list_loop(16))
    write_graph(tmp_path / "many.pb", list_loop(10_000))
    assert run("run", *few, "--memory=16MB").code == 0
    result = run("run", *many, "--memory=16MB")
    assert (result.code, "(TensorArrayWriteV3)" in result.err) == (5, True), result.err


def test_loop_invariants_count_once(tmp_path: Path, run: Run) -> None:
    """An iteration reads 16 MB from outside the loop, and allocates 4 MB."""
    frame = {"frame_name": "while", "is_constant": True, "parallel_iterations": 10}
    more = [
        c("size", np.array([MEGABYTES_16], np.int32)),
        c("zero", 0.0),
        node("large", "Fill", "size zero"),
        node("held", "Enter", "large", **frame),
        c("begin", [0], "^body"),
        c("taken", [1 << 20], "^body"),
        node("part", "Slice", "held begin taken", Index=DType.INT32),
        node("other", "Neg", "part"),
        c("axis", [0], "^body"),
        node("sum", "Sum", "other axis", Tidx=DType.INT32, keep_dims=False),
        node("step2", "Sub", "step sum"),
    ]
    graph = loop_graph()
    nodes = [node("more", "Add", "body step2") if n.name == "more" else n for n in graph]
    path = graph_file(tmp_path, Graph([*nodes, *more]))
    flags = ("run", f"--graph={path}", "--feed=x=1", "--fetch=y")
    assert run(*flags, "--memory=24MB").code == 0
    assert run(*flags, "--memory=18MB").code == 5


def test_folding_reports_nodes_skipped_for_memory(tmp_path: Path, run: Run) -> None:
    path, out = graph_file(tmp_path, doubling(40)), tmp_path / "o.pb"
    steps = "--transforms=fold_constants"
    flags = ("transform", f"--in_graph={path}", f"--out_graph={out}", "--outputs=x40", steps)
    result = run(*flags)
    assert result.code == 0
    assert "left to each run for the memory or time they would take: 'x" in result.err
    result = run(*flags, "-v")
    assert "ConcatV2 would take more than 536870912 bytes to compute" in result.out + result.err
    assert "no kernel" not in result.out + result.err


def test_folding_with_less_memory_fails(tmp_path: Path, run: Run) -> None:
    path, out = graph_file(tmp_path, doubling(40)), tmp_path / "o.pb"
    steps = ("--transforms=fold_constants", "--memory=1MB")
    result = run("transform", f"--in_graph={path}", f"--out_graph={out}", "--outputs=x40", *steps)
    assert (result.code, out.exists()) == (5, False)
    assert "(ConcatV2)" in result.err
    assert "--memory" in result.err


def test_recipe_sets_the_memory_limit(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    graph_file(tmp_path, doubling(20))
    recipe = tmp_path / "recipe.yaml"
    text = """\
version: 1
name: small
source: {frozen: g.pb}
outputs: [x20]
transforms: [fold_constants]
targets: {a: {}}
"""
    for jobs, memory, code in ((2, "1 MB", 5), (4, "100 MB", 0)):
        recipe.write_text(f"{text}memory: {memory}\n")
        result = run("build", recipe, f"--out={tmp_path / 'out'}", "-j", jobs)
        assert result.code == code, result.err
        assert ("(ConcatV2)" in result.err) == (code == 5)


def test_default_limit_is_half_of_the_machine_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits.machine_memory.cache_clear()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(limits, "CONTAINER_LIMITS", (limit, tmp_path / "none"))
    whole = limits.machine_memory()
    assert memory_limit() == whole // 2
    for text, expected in (("max", whole), (f"{1 << 20}\n", 1 << 20)):
        limits.machine_memory.cache_clear()
        limit.write_text(text)
        assert limits.machine_memory() == expected
    limits.machine_memory.cache_clear()


def test_endless_loop_is_reported(tmp_path: Path, run: Run) -> None:
    graph = loop_graph()
    endless = [c("most", np.inf, "^head") if n.name == "most" else n for n in graph]
    path = graph_file(tmp_path, graph.with_nodes(endless))
    result = run("run", f"--graph={path}", "--feed=x=1", "--fetch=y", "--max_iterations=50")
    assert result.code == 5
    assert f"{path}: the loop of 'go' goes on after 50 iterations" in result.err
    assert "--max_iterations" in result.err
    assert run("run", f"--graph={graph_file(tmp_path, graph)}", "--feed=x=1", "--fetch=y").code == 0
    assert DEFAULT_ITERATIONS > 1000


@pytest.mark.slow
def test_endless_loop_runs_once(tmp_path: Path, run: Run) -> None:
    graph = loop_graph()
    changed = {
        "most": c("most", np.inf, "^head"),
        "x": node("x", "Placeholder", T=None, dtype=DType.FLOAT),
    }
    path = graph_file(tmp_path, graph.with_nodes([changed.get(n.name, n) for n in graph]))
    started = time.process_time()
    result = run("diff", path, path, "--samples=1")
    once = time.process_time() - started
    assert result.code == 5, result.err
    assert "the loop of 'go' goes on after 250,000 iterations" in result.err
    started = time.process_time()
    assert run("run", f"--graph={path}", "--feed=x=1", "--fetch=y").code == 5
    assert once < 3 * (time.process_time() - started) + 2


def test_exponential_function_calls_are_refused_quickly(tmp_path: Path, run: Run) -> None:
    functions = [function("f0", "a", "", out="a")]
    for i in range(1, 41):
        twice = "".join(
            call(n, f"f{i - 1}", "a").replace("node {", "node_def {") for n in ("p", "q")
        )
        functions.append(function(f"f{i}", "a", twice, out="q:output:0"))
    path = graph_file(tmp_path, model(PLACEHOLDER + call("call", "f40", "x") + RELU, *functions))
    out = f"--out_graph={tmp_path / 'o.pb'}"
    frozen = [f"--output_graph={tmp_path / 'o.pb'}", "--output_node_names=y"]
    inlined = ["--outputs=y", "--transforms=inline_partitionedcall"]
    started = time.process_time()
    for result in (
        run("run", f"--graph={path}", "--feed=x=1", "--fetch=y"),
        run("transform", f"--in_graph={path}", out, *inlined),
        run("freeze", f"--input_graph={path}", "--control_flow=lower", *frozen),
    ):
        assert result.code == 5
        assert "calls of the function 'f40' grow the graph beyond" in result.err
    assert time.process_time() - started < 10


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_named_pipes_are_refused(tmp_path: Path, run: Run) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    graph = graph_file(tmp_path, doubling(1))
    for arguments in (
        ("summarize", f"--in_graph={pipe}"),
        ("validate", pipe),
        ("init", pipe),
        ("header", f"--graphs={pipe}"),
        ("run", f"--graph={graph}", "--fetch=x1", f"--labels={pipe}"),
        ("freeze", f"--input_graph={pipe}", "--output_graph=o", "--output_node_names=y"),
    ):
        result = run(*arguments)
        assert result.code in (3, 4), arguments
        assert str(pipe) in result.err


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no such device")
def test_endless_devices_are_refused(tmp_path: Path, run: Run) -> None:
    graph = graph_file(tmp_path, doubling(1))
    for arguments in (
        ("summarize", "--in_graph=/dev/zero"),
        ("validate", "/dev/zero"),
        ("run", f"--graph={graph}", "--fetch=x1", "--labels=/dev/zero"),
    ):
        result = run(*arguments)
        assert result.code in (3, 4), arguments
        assert "/dev/zero" in result.err


def test_too_many_axes_are_refused(tmp_path: Path, run: Run) -> None:
    many = ",".join("1" * 65)
    path = graph_file(tmp_path, Graph([p("x", np.float32, (1,) * 65), node("y", "Neg", "x")]))
    for what in ("random", "1", f"random:{many}"):
        result = run("run", f"--graph={path}", f"--feed=x={what}", "--fetch=y")
        assert result.code == 2, what
        assert "65 axes" in result.err
    result = run("benchmark", f"--graph={path}", "--max_num_runs=1")
    assert result.code in (2, 5, 6)


def test_pauses_are_split_into_days(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        runs.time_runs(lambda: None, runs.Pace(2, 0, 1e308))
    day = 24 * 60 * 60
    assert pauses == [day] * 3
    pauses.clear()
    runs.time_runs(lambda: None, runs.Pace(2, 0, day + 0.5))
    assert pauses == [day, 0.5]
