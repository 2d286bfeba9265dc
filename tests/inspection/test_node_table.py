"""The table of nodes of the report page."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.inspection import node_table as module
from mobileprep.inspection.node_table import NodeTable, left_out, node_table
from tests.building.stages.jobs import op, placeholder


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
