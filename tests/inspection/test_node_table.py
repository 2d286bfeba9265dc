"""The table of nodes of the report page."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.inspection import node_table as module
from mobileprep.inspection.node_table import (
    NodeTable,
    Spread,
    left_out,
    node_table,
    step_changes,
    weight_spreads,
)
from tests.building.stages.jobs import classifier, op, placeholder


def graph() -> Graph:
    return Graph(
        [
            placeholder((-1, 4)),
            constant("w", Tensor.of(np.ones((4, 3), np.float32))),
            constant("b", Tensor.of(np.array([1, 2, 3], np.float32))),
            op("product", "MatMul", "x", "w"),
            op("y", "BiasAdd", "product", "b", "^w"),
        ]
    )


def strings(table: NodeTable, numbers: tuple[int, ...]) -> list[str]:
    return [table.texts[number] for number in numbers]


def test_table_has_ops_inputs_shapes_and_sizes() -> None:
    table = node_table(graph(), {"x": (2, 4)})
    assert table.names == ("x", "w", "b", "product", "y")
    assert strings(table, table.ops) == ["Placeholder", "Const", "Const", "MatMul", "BiasAdd"]
    assert table.inputs[4] == (3, 0, 2, 0, 1, -1)
    assert strings(table, table.shapes[4]) == ["2x3"]
    assert (table.parameters, table.bytes) == ((0, 12, 3, 0, 0), (0, 48, 12, 0, 0))
    assert table.flops == (0, 0, 0, 2 * 2 * 4 * 3, 6)


def test_short_constants_show_their_values() -> None:
    table = node_table(graph(), {})
    assert "value: Tensor(float32, [3]) [1.0, 2.0, 3.0]" in strings(table, table.attrs[2])
    assert "value: Tensor(float32, [4, 3])" in strings(table, table.attrs[1])


def test_table_without_shapes_if_inference_fails() -> None:
    broken = Graph([op("a", "Relu", "b"), op("b", "Relu", "a")])
    table = node_table(broken, {})
    assert (table.names, table.shapes) == (("a", "b"), ((), ()))


def test_missing_inputs_are_omitted() -> None:
    assert node_table(Graph([op("a", "Relu", "gone")]), {}).inputs == ((),)


@pytest.mark.parametrize(("bound", "word"), [("MOST_NODES", "nodes"), ("_MOST_TEXT", "letters")])
def test_too_large_graph_has_only_a_note(
    bound: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not left_out(graph())
    monkeypatch.setattr(module, bound, 2)
    assert left_out(graph())
    table = node_table(graph(), {})
    assert word in table.left_out
    assert table.names == ()


def test_equal_graphs_have_no_changes() -> None:
    graph = classifier()
    assert step_changes(graph, graph).changes == ()
    assert step_changes(graph, classifier()).changes == ()


def test_changes_have_the_values_before_and_after() -> None:
    before = Graph([placeholder((1, 3)), op("same", "Identity", "x"), op("y", "Relu", "same")])
    after = Graph([placeholder((1, 3)), op("y", "Relu6", "x"), op("z", "Relu", "y")])
    step = step_changes(before, after)
    assert step.renamed == ()
    assert set(step.changes) == {
        ("removed", "same", "", "Identity", "", None),
        ("op", "y", "", "Relu", "Relu6", None),
        ("inputs", "y", "", "same", "x", None),
        ("added", "z", "", "", "Relu", None),
    }


def test_changed_constant_has_its_largest_difference() -> None:
    (change,) = step_changes(classifier(), classifier(shift=0.5)).changes
    assert (change[0], change[1], change[5]) == ("constant", "b", 0.5)


def test_renamed_nodes_are_not_changes() -> None:
    before = Graph(
        [placeholder((1, 3)), op("long/name", "Relu", "x"), op("y", "Relu", "long/name")]
    )
    after = Graph([placeholder((1, 3)), op("a", "Relu", "x"), op("y", "Relu", "a")])
    step = step_changes(before, after)
    assert step.renamed == (("long/name", "a"),)
    assert step.changes == ()


def test_reordered_nodes_are_not_changes() -> None:
    a, b = op("a", "Relu", "x"), op("b", "Relu", "x")
    x = placeholder((1, 3))
    assert step_changes(Graph([x, a, b]), Graph([x, b, a])).renamed == ()


def test_long_strings_and_lists_are_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    name = "n" * 5000
    after = Graph([op(name, "NoOp"), op("y", "Relu", name), op("z", "Relu", name)])
    step = step_changes(Graph([op("y", "Relu", "y")]), after)
    assert (len(step.changes), step.left_out) == (2, 1)
    assert max(len(text) for change in step.changes for text in change[3:5]) == 300


def spreads(values: Array) -> tuple[Spread, ...]:
    return weight_spreads(Graph([constant("w", Tensor.of(values))]))


def test_histogram_has_equal_bins() -> None:
    (spread,) = spreads(np.arange(64, dtype=np.float32))
    assert (spread.node, spread.dtype, spread.elements) == ("w", "float32", 64)
    assert (spread.low, spread.high, spread.zeros) == (0, 63, round(1 / 64, 4))
    assert spread.looked_at == sum(spread.counts) == 64
    assert set(spread.counts) == {2}


def test_equal_values_have_one_bin() -> None:
    (spread,) = spreads(np.zeros(20, np.float32))
    assert (spread.counts[0], spread.zeros) == (20, 1)


def test_large_constants_are_sampled() -> None:
    (spread,) = spreads(np.random.default_rng(0).normal(size=200_000).astype(np.float32))
    assert 40_000 < spread.looked_at <= 65_536
    assert sum(spread.counts) == spread.looked_at


def test_nan_and_infinity_are_excluded() -> None:
    (spread,) = spreads(np.array([np.nan, np.inf, *range(18)], np.float32))
    assert (spread.low, spread.high, sum(spread.counts)) == (0, 17, 18)


@pytest.mark.parametrize(
    "values",
    [
        np.full(20, np.nan, np.float32),
        np.ones(15, np.float32),
        np.ones(20, bool),
        np.array([b"text"] * 20, object),
        np.array([-1.7e308, 1.7e308] * 10),
    ],
)
def test_constants_without_a_distribution_are_omitted(values: Array) -> None:
    assert spreads(values) == ()


def test_bfloat16() -> None:
    (spread,) = spreads(np.arange(16).astype(ml_dtypes.bfloat16))
    assert (spread.dtype, spread.high) == ("bfloat16", 15)


def test_largest_constants_come_first() -> None:
    nodes = [constant(f"w{n}", Tensor.of(np.ones(n, np.float32))) for n in range(16, 60)]
    sizes = [spread.elements for spread in weight_spreads(Graph(nodes))]
    assert sizes == list(range(59, 27, -1))
