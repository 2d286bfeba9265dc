"""The costs of graphs with while loops."""

from __future__ import annotations

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.inspection.costs import LoopCount, ModelCosts, counted_run, model_costs
from tests.ops.graphs import c, n, p
from tests.runtime.accounting import test_costs as functional

# Each iteration has four products, an addition to the counter, and a comparison.
FLOPS_OF_ITERATION = 4 + 1 + 1


def counted(*, test: list[Node], begin: float = 0, step: float = 1, bound: float = 3) -> Graph:
    """Double x in a loop whose condition is the node ``less``."""
    name = {"frame_name": "loop"}
    nodes = [
        p("x", shape=(4,)),
        p("limit", shape=()),
        c("begin", float(begin)),
        c("bound", float(bound)),
        n("enter", "Enter", "x", **name),
        n("enter_count", "Enter", "begin", **name),
        n("enter_bound", "Enter", "bound", **name, is_constant=True),
        n("enter_limit", "Enter", "limit", **name, is_constant=True),
        n("value", "Merge", "enter", "next"),
        n("count", "Merge", "enter_count", "next_count"),
        *test,
        n("go", "LoopCond", "less"),
        n("switch", "Switch", "value", "go"),
        n("switch_count", "Switch", "count", "go"),
        n("body", "Identity", "switch:1"),
        c("two", 2.0, "^body"),
        c("step", float(step), "^body"),
        n("double", "Mul", "body", "two"),
        n("increment", "AddV2", "switch_count:1", "step"),
        n("next", "NextIteration", "double"),
        n("next_count", "NextIteration", "increment"),
        n("y", "Exit", "switch"),
    ]
    typed = {"T": attr.dtype(DType.FLOAT)}
    untyped = ("Const", "Placeholder", "LoopCond")
    return Graph([x if x.op in untyped else x.with_attrs(**typed) for x in nodes])


def costs(graph: Graph) -> ModelCosts:
    return model_costs(counted_run(graph, ["y"], {"x": (4,), "limit": ()}))


@pytest.mark.parametrize(
    ("op", "inputs", "numbers", "iterations"),
    [
        ("Less", "count enter_bound", {}, 3),
        ("LessEqual", "count enter_bound", {}, 4),
        ("Greater", "enter_bound count", {}, 3),
        ("GreaterEqual", "enter_bound count", {"step": 2.0}, 2),
        ("Less", "count enter_bound", {"begin": 1.0, "step": 0.5}, 4),
        ("Less", "count enter_bound", {"begin": 9.0}, 0),
        ("Less", "count enter_limit", {}, None),
        ("Less", "value enter_bound", {}, None),
        ("Less", "count enter_bound", {"step": -1.0}, None),
    ],
)
def test_iterations_are_computed_from_constants(
    op: str, inputs: str, numbers: dict[str, float], iterations: int | None
) -> None:
    result = costs(counted(test=[n("less", op, *inputs.split())], **numbers))
    assert result.loops == (LoopCount("loop", iterations),)
    if "count" in inputs:
        assert result.flops == FLOPS_OF_ITERATION * (1 if iterations is None else iterations)


@pytest.mark.parametrize(("bound", "iterations"), [("enter_bound", 2), ("enter_limit", None)])
def test_smaller_of_two_bounds_counts_if_both_are_known(bound: str, iterations: int | None) -> None:
    test = [
        c("most", 2.0),
        n("enter_most", "Enter", "most", frame_name="loop", is_constant=True),
        n("few", "Less", "count", "enter_most"),
        n("below", "Less", "count", bound),
        n("less", "LogicalAnd", "few", "below"),
    ]
    assert costs(counted(test=test)).loops == (LoopCount("loop", iterations),)


def test_functional_loop_has_the_same_costs() -> None:
    graph = functional._loop()
    result = model_costs(counted_run(graph, ["y"], {"x": (4,)}))
    assert [loop.iterations for loop in result.loops] == [functional.TURNS]
    # The condition runs once more than the body.
    assert result.flops == functional.FLOPS - 1
    assert (result.uncounted, result.parameters) == ((), 7)
