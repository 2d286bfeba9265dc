"""Basic facts about a graph, counted like the original ``summarize_graph``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.trace import variables_of
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor

_VARIABLES: Final = frozenset({"Variable", "VariableV2"})
_NO_OUTPUTS: Final = frozenset({"Const", "Assign", "NoOp", "Placeholder"})


class SpottedTensor(Struct, frozen=True):
    """A placeholder or a variable.

    Args:
        name: node name.
        type: name of its dtype in TensorFlow's C++: ``float``.
        type_number: number of its dtype in protobuf.
        has_shape: whether the node has an attribute ``shape``.
        shape: sizes, with -1 for unknown dimensions; None for an unknown rank.
    """

    name: str
    type: str
    type_number: int
    has_shape: bool
    shape: tuple[int, ...] | None


class SpottedOutput(Struct, frozen=True):
    """A node that may be an output.

    Args:
        name: node name.
        op: op of the node.
    """

    name: str
    op: str


class MissingInput(Struct, frozen=True):
    """An input that refers to a missing node.

    Args:
        node: name of the consumer.
        input: name of the missing node.
    """

    node: str
    input: str


class GraphSummary(Struct, frozen=True):
    """Basic facts about a graph.

    Args:
        inputs: all Placeholder nodes.
        variables: all Variable and VariableV2 nodes.
        outputs: nodes without consumers, except Const, Assign, NoOp, and Placeholder.
        const_parameters: number of elements of all Const nodes outside functions.
        variable_parameters: number of elements of values in variables, which is 0 in graphs that
            TensorFlow wrote.
        control_edges: number of control inputs of nodes outside functions.
        devices: number of nodes outside functions on each device, by name.
        missing: inputs that refer to missing nodes, each as ``node`` and ``input``.
        ops: number of nodes of each op, including function bodies, most frequent first.
        undecoded: Const nodes without a value.
    """

    inputs: tuple[SpottedTensor, ...]
    variables: tuple[SpottedTensor, ...]
    outputs: tuple[SpottedOutput, ...]
    const_parameters: int
    variable_parameters: int
    control_edges: int
    devices: Mapping[str, int]
    missing: tuple[MissingInput, ...]
    ops: Mapping[str, int]
    undecoded: tuple[str, ...]


def summarize_graph(graph: Graph) -> GraphSummary:
    """Summarize a graph, which may be malformed.

    Source: ``SummarizeGraph`` of TensorFlow 1.15's graph transforms, with the same order.
    """
    counted = [n for n in graph if n.op == "Const" or n.op in _VARIABLES]
    names = graph.by_name
    return GraphSummary(
        tuple(_spot(n) for n in graph if n.op == "Placeholder"),
        tuple(_spot(n) for n in graph if n.op in _VARIABLES),
        tuple(
            SpottedOutput(n.name, n.op)
            for n in graph
            if n.name not in graph.consumers and n.op not in _NO_OUTPUTS
        ),
        sum(_elements(n) or 0 for n in counted if n.op == "Const"),
        sum(_elements(n) or 0 for n in counted if n.op != "Const"),
        sum(r.is_control for n in graph for r in n.inputs),
        dict(sorted(Counter(n.device for n in graph if n.device).items())),
        tuple(MissingInput(n.name, r.node) for n in graph for r in n.inputs if r.node not in names),
        _ops(graph),
        tuple(n.name for n in counted if n.op == "Const" and _elements(n) is None),
    )


def _ops(graph: Graph) -> dict[str, int]:
    """Count the nodes of each op, most frequent first."""
    bodies: Iterable[tuple[Node, ...]] = (f.nodes for f in graph.library.functions.values())
    counts = Counter(n.op for nodes in (graph.nodes, *bodies) for n in nodes)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0].encode())))


def _elements(node: Node) -> int | None:
    value = node.attrs.get("value")
    return value.value.size if value is not None and value.kind == "tensor" else None


def _spot(node: Node) -> SpottedTensor:
    dtype = node.attrs.get("dtype")
    kind = dtype.value if dtype is not None and dtype.kind == "type" else DType.INVALID
    shape = node.attrs.get("shape")
    dims: TensorShape = ()
    if shape is not None and shape.kind == "shape":
        dims = shape.value
    return SpottedTensor(node.name, type_name(kind), int(kind), shape is not None, dims)


def type_name(dtype: DType) -> str:
    """Return the name of a dtype in TensorFlow's ``DataTypeString``: ``float``, ``int32_ref``."""
    if dtype is DType.INVALID:
        return "INVALID"
    return f"{dtype.base.name.lower()}_ref" if dtype.is_ref else dtype.name.lower()


class VariableCount(Struct, frozen=True):
    """Count of all variables, including resource variables and those of optimizers.

    Args:
        count: number of variables.
        parameters: number of elements of those with a known shape.
        bytes: size in bytes of those with a known shape.
        unknown: number of variables with an unknown shape.
    """

    count: int
    parameters: int
    bytes: int
    unknown: int


def count_variables(graph: Graph) -> VariableCount:
    """Count the variables outside functions, using their declared shapes."""
    variables = variables_of(graph)
    sizes = [(node, _declared_elements(node)) for node in variables]
    return VariableCount(
        len(variables),
        sum(size or 0 for _, size in sizes),
        sum((size or 0) * _width(node) for node, size in sizes),
        sum(size is None for _, size in sizes),
    )


def with_zeros(graph: Graph) -> Graph:
    """Replace variables of declared shapes with constants of zeros.

    The costs are those of the frozen model, even if the values are unknown. The zeros take no
    memory, regardless of the shape.
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
