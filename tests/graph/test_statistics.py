"""Statistics of graphs."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.statistics import GraphStatistics, graph_statistics
from mobileprep.graph.tensor import Tensor


def test_functions_count_and_splats_are_not_expanded() -> None:
    huge = Tensor(DType.FLOAT, (1 << 40,), values=np.zeros(1, np.float32))
    body = (Node("n", "Relu"), constant("k", Tensor.of(np.zeros(3, np.float32))))
    graph = Graph(
        [Node("a", "Relu"), constant("c", huge), Node("b", "f")],
        Library({"f": Function(OpDef("f"), body)}),
    )
    assert graph_statistics(graph, 123) == GraphStatistics(
        nodes=5,
        parameters=(1 << 40) + 3,
        constants=2,
        bytes=123,
        ops={"Const": 2, "Relu": 2, "f": 1},
    )


def test_ops_are_sorted() -> None:
    graph = Graph([Node(n, op) for n, op in (("x", "Relu"), ("y", "Add"), ("z", "MatMul"))])
    assert list(graph_statistics(graph, 0).ops) == ["Add", "MatMul", "Relu"]


def test_empty_graph_is_all_zeros() -> None:
    assert graph_statistics(Graph(), 0) == GraphStatistics(0, 0, 0, 0, {})


def test_constant_without_value_is_an_error() -> None:
    with pytest.raises(InvalidGraphError, match="has no tensor attribute 'value'"):
        graph_statistics(Graph([Node("c", "Const")]), 0)
