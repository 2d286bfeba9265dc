"""Small graphs for the packaging tests."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs
from mobileprep.graph.attrs import OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node


def node(name: str, op: str, **types: DType) -> Node:
    """A node that has only dtype attributes."""
    return Node(name, op, attrs={n: attrs.dtype(t) for n, t in types.items()})


def network() -> Graph:
    """Placeholder, MatMul, Softmax of floats."""
    return Graph(
        [
            node("x", "Placeholder", dtype=DType.FLOAT),
            node("w", "Const", dtype=DType.FLOAT),
            node("product", "MatMul", T=DType.FLOAT),
            node("probabilities", "Softmax", T=DType.FLOAT),
        ]
    )


def with_function() -> Graph:
    """A call of a function whose body computes an exponential."""
    function = Function(OpDef("grow"), (node("exp", "Exp", T=DType.FLOAT),))
    nodes = [node("x", "Placeholder", dtype=DType.FLOAT), Node("called", "grow")]
    return Graph(nodes, Library({"grow": function}))
