"""How much the variables of a graph hold."""

from __future__ import annotations

import math

from mobileprep.freezing.trace import variables_of
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node


@dataclass(frozen=True)
class VariableCount:
    """Variables of all kinds, resource variables among them, optimizers' too.

    Args:
        count: how many.
        parameters: elements of those whose shape the graph tells.
        bytes: bytes of these.
        unknown: how many there are whose shape it does not tell.
    """

    count: int
    parameters: int
    bytes: int
    unknown: int


def count_variables(graph: Graph) -> VariableCount:
    """Count the variables outside functions, by the shapes that they declare."""
    variables = variables_of(graph)
    sizes = [(node, _elements(node)) for node in variables]
    return VariableCount(
        len(variables),
        sum(size or 0 for _, size in sizes),
        sum((size or 0) * _width(node) for node, size in sizes),
        sum(size is None for _, size in sizes),
    )


def _elements(node: Node) -> int | None:
    shape = node.attrs.get("shape")
    if shape is None or shape.kind != "shape" or shape.value is None:
        return None
    return None if min(shape.value, default=0) < 0 else math.prod(shape.value)


def _width(node: Node) -> int:
    dtype = node.attrs.get("dtype")
    return dtype.value.itemsize if dtype is not None and dtype.kind == "type" else 0
