"""Small graphs that would compute for hours are refused, and not folded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.core.limits import set_limits
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.cli.conftest import Run
from tests.fuzz.seeds import loop_graph
from tests.ops.graphs import c, n

SECONDS = 20
LONG = 1 << 20
WINDOW: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "SAME"}


@pytest.fixture(autouse=True)
def _default_limits(workdir: Path) -> Iterator[None]:
    yield
    set_limits()


def filled(name: str, *shape: int, value: Any = 1.0) -> list[Node]:
    """A Fill of a shape and its inputs."""
    value = np.asarray(value, np.float32 if isinstance(value, float) else None)
    return [
        c(f"{name}_shape", np.array(shape, np.int32)),
        c(f"{name}_value", value, dtype=value.dtype),
        n(name, "Fill", f"{name}_shape", f"{name}_value", T=value.dtype, index_type=np.int32),
    ]


def pooled(op: str, size: list[int], *shape: int) -> list[Node]:
    strides = {"ksize": size, "strides": [1] * len(size), "padding": "SAME"}
    return [*filled("x", *shape), n("y", op, "x", T=np.float32, **strides)]


def convolved(op: str, image: tuple[int, ...], bank: tuple[int, ...], **attrs: Any) -> list[Node]:
    attrs = {**WINDOW, "T": np.float32, **attrs}
    return [*filled("x", *image), *filled("w", *bank), n("y", op, "x", "w", **attrs)]


def transposed() -> list[Node]:
    sizes = c("sizes", np.array([1, 2048, 2048, 1], np.int32))
    parts = [*filled("w", 2047, 2047, 1, 1), *filled("x", 1, 2048, 2048, 1), sizes]
    return [*parts, n("y", "Conv2DBackpropInput", "sizes", "w", "x", T=np.float32, **WINDOW)]


def multiplied(
    op: str, first: tuple[int, ...], second: tuple[int, ...], **attrs: Any
) -> list[Node]:
    kind = attrs.get("T", np.float32)
    one = np.ones((), kind)
    parts = [*filled("a", *first, value=one), *filled("b", *second, value=one)]
    return [*parts, n("y", op, "a", "b", **{"T": kind, **attrs})]


def summed(equation: str, *shapes: tuple[int, ...]) -> list[Node]:
    names = [f"x{i}" for i in range(len(shapes))]
    parts = [
        part for name, shape in zip(names, shapes, strict=True) for part in filled(name, *shape)
    ]
    attrs = {"T": np.float32, "N": len(shapes), "equation": equation}
    return [*parts, n("y", "Einsum", *names, **attrs)]


def boxes(op: str, *more: Node) -> list[Node]:
    """A million boxes without overlaps."""
    ends = [c("from", 0.0), c("to", float(LONG)), c("count", np.int32(LONG))]
    line = n("line", "LinSpace", "from", "to", "count", T=np.float32, Tidx=np.int32)
    half = [c("half", 0.4), n("next", "Add", "line", "half", T=np.float32)]
    corners = n("boxes", "Pack", "line", "line", "next", "next", T=np.float32, N=4, axis=1)
    inputs = [*ends, line, *half, corners, *filled("scores", LONG), c("overlap", 0.5), *more]
    names = [x.name for x in more]
    return [*inputs, n("y", op, "boxes", "scores", "count", "overlap", *names, T=np.float32)]


COSTLY: dict[str, list[Node]] = {
    "the largest of a window": pooled("MaxPool", [1, LONG, 1, 1], 1, LONG, 1, 16),
    "the mean of a window": pooled("AvgPool", [1, 1, LONG, 1], 1, 1, LONG, 16),
    "a window of three axes": pooled("MaxPool3D", [1, 1, LONG, 1, 1], 1, 1, LONG, 1, 16),
    "the place of the largest": [
        *filled("x", 1, LONG, 1, 16),
        n("y", "MaxPoolWithArgmax", "x", ksize=[1, LONG, 1, 1], T=np.float32, **WINDOW),
    ],
    "a wide filter": convolved("Conv2D", (1, 2048, 2048, 1), (2047, 2047, 1, 1)),
    "a filter of three axes": convolved(
        "Conv3D", (1, 64, 512, 512, 1), (31, 511, 511, 1, 1), strides=[1] * 5
    ),
    "a filter a channel": convolved(
        "DepthwiseConv2dNative", (1, 2048, 2048, 2), (1023, 1023, 2, 1)
    ),
    "a filter backwards": transposed(),
    "a dilation": convolved(
        "Dilation2D", (1, 2048, 2048, 1), (2047, 2047, 1), rates=[1, 1, 1, 1]
    ),
    "a matrix product": multiplied("MatMul", (8192, 8192), (8192, 8192)),
    "of whole numbers": multiplied("MatMul", (4096, 4096), (4096, 4096), T=np.int32),
    "many of them": multiplied("BatchMatMulV2", (64, 2048, 2048), (64, 2048, 2048)),
    "an Einstein sum": summed("ab,cb->ac", (4096, 8192), (4096, 8192)),
    "of three": summed("ab,bc,cd->ad", (4096, 512), (512, 4096), (4096, 512)),
    "without a product": summed("abc,abd->cd", (1024, 64, 2048), (1024, 64, 2048)),
    "an inverse": [*filled("x", 6000, 6000), n("y", "MatrixInverse", "x", T=np.float32)],
    "neighbors": [
        *filled("x", 1, 1, 1, LONG),
        n("y", "LRN", "x", depth_radius=LONG, T=np.float32),
    ],
    "boxes": boxes("NonMaxSuppressionV2"),
    "boxes with scores": boxes(
        "NonMaxSuppressionV5", c("least", 0.0), c("sigma", 0.5)
    ),
}  # fmt: skip


def written(nodes: list[Node]) -> str:
    write_graph(Path("g.pb"), Graph(nodes))
    assert Path("g.pb").stat().st_size < 4000
    return "g.pb"


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTLY)
def test_costly_graph_is_refused(name: str, run: Run) -> None:
    path = written(COSTLY[name])
    started = time.process_time()
    result = run("run", f"--graph={path}", "--fetch=y", "--max_flops=400GFLOP")
    assert result.code == 5, result.err
    assert "g.pb: node 'y' (" in result.err
    assert "FLOP remain of the limit for a run" in result.err
    assert "--max_flops or MOBILEPREP_MAX_FLOPS" in result.err
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize("name", ["the largest of a window", "a wide filter", "an Einstein sum"])
def test_folding_skips_costly_nodes_with_a_message(name: str, run: Run) -> None:
    path = written(COSTLY[name])
    started = time.process_time()
    for steps in ("fold_constants", "optimize"):
        flags = (f"--in_graph={path}", "--out_graph=o.pb", "--outputs=y", f"--transforms={steps}")
        result = run("transform", *flags)
        assert result.code == 0, result.err
        assert "left to each run for the memory or time they would take: 'y' (" in result.err
        assert Path("o.pb").stat().st_size < 1 << 27
        assert "y" in read_graph(Path("o.pb")).by_name
    assert time.process_time() - started < SECONDS


def test_costs_of_loop_iterations_add_up(run: Run) -> None:
    changed = {
        "most": c("most", np.inf, "^head"),
        "more": n("more", "Add", "body", "sum", T=np.float32),
    }
    turn = [
        c("size", np.array([1 << 22], np.int32), "^body"),
        c("zero", 0.0, "^body"),
        c("axis", np.array([0], np.int32), "^body"),
        n("large", "Fill", "size", "zero", T=np.float32, index_type=np.int32),
        n("sum", "Sum", "large", "axis", T=np.float32, Tidx=np.int32),
    ]
    path = written([*(changed.get(x.name, x) for x in loop_graph()), *turn])
    result = run("run", f"--graph={path}", "--feed=x=1", "--fetch=y", "--max_flops=100GFLOP")
    assert (result.code, "FLOP remain of the limit for a run" in result.err) == (5, True), (
        result.err
    )


@pytest.mark.slow
def test_growing_strings_are_refused(run: Run) -> None:
    """Each replacement quadruples the string."""
    nodes = [c("s0", np.array([b"aa"], object))]
    rewritten: dict[str, Any] = {"pattern": b"a", "rewrite": b"aaaa", "replace_global": True}
    nodes += [n(f"s{i + 1}", "StaticRegexReplace", f"s{i}", **rewritten) for i in range(20)]
    path = written(nodes)
    flags = ("run", f"--graph={path}", "--fetch=s20")
    result = run(*flags, "--max_flops=10GFLOP")
    assert (result.code, "FLOP remain of" in result.err) == (5, True), result.err
    result = run(*flags, "--memory=16MB")
    assert (result.code, "remain of the memory limit" in result.err) == (5, True), result.err


def test_limit_from_flag_and_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(multiplied("MatMul", (256, 256), (256, 256)))
    assert run("run", f"--graph={path}", "--fetch=y").code == 0
    assert run("run", f"--graph={path}", "--fetch=y", "--max_flops=10MFLOP").code == 5
    monkeypatch.setenv("MOBILEPREP_MAX_FLOPS", "10 MFLOP")
    assert run("run", f"--graph={path}", "--fetch=y").code == 5
    assert run("run", f"--graph={path}", "--fetch=y", "--max_flops=1TFLOP").code == 0
    monkeypatch.setenv("MOBILEPREP_MAX_FLOPS", "much")
    result = run("run", f"--graph={path}", "--fetch=y")
    assert (result.code, "MOBILEPREP_MAX_FLOPS: invalid limit 'much'" in result.err) == (2, True)
    result = run("run", f"--graph={path}", "--fetch=y", "--max_iterations=-1")
    assert (result.code, "--max_iterations: invalid limit '-1'" in result.err) == (2, True)
