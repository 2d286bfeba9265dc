"""How much the variables of a graph hold."""

from __future__ import annotations

import math

import numpy as np

from mobileprep.freezing.trace import variables_of
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.tensor import Tensor


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
    sizes = [(node, _declared_elements(node)) for node in variables]
    return VariableCount(
        len(variables),
        sum(size or 0 for _, size in sizes),
        sum((size or 0) * _width(node) for node, size in sizes),
        sum(size is None for _, size in sizes),
    )


def with_zeros(graph: Graph) -> Graph:
    """Put constants of zeros in the place of variables whose shapes are declared.

    The costs of a model whose values are not known are those of its frozen form. Zeros of any size
    take no memory.
    """
    zeros = {v.name: _zeros(v) for v in variables_of(graph) if _declared_elements(v) is not None}
    if not zeros:
        return graph
    nodes = []
    for node in graph:
        handle = node.data_inputs[0].node if node.data_inputs else ""
        if node.name in zeros:
            nodes.append(zeros[node.name])
        elif node.op == "ReadVariableOp" and handle in zeros:
            attrs = {"T": node.attribute("dtype")}
            nodes.append(Node(node.name, "Identity", node.inputs, node.device, attrs))
        elif node.op == "ResourceGather" and handle in zeros:
            attrs = {"Tparams": node.attribute("dtype"), "Tindices": node.attribute("Tindices")}
            nodes.append(Node(node.name, "Gather", node.inputs, node.device, attrs))
        else:
            nodes.append(node)
    return graph.with_nodes(nodes)


def _zeros(variable: Node) -> Node:
    dtype, shape = variable.attr_dtype("dtype").base, variable.attr_shape("shape") or ()
    return constant(variable.name, Tensor(dtype, shape, values=np.zeros(1, dtype.numpy)))


def _declared_elements(node: Node) -> int | None:
    shape = node.attrs.get("shape")
    if shape is None or shape.kind != "shape" or shape.value is None:
        return None
    return None if min(shape.value, default=0) < 0 else math.prod(shape.value)


def _width(node: Node) -> int:
    dtype = node.attrs.get("dtype")
    return dtype.value.itemsize if dtype is not None and dtype.kind == "type" else 0
