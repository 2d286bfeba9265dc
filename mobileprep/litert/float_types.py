"""Graphs in float16, bfloat16, or float64, computed in float32: LiteRT has few other kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref, edge
from mobileprep.ir.tensor import Tensor
from mobileprep.opdefs.signatures import tensor_dtype

_OTHER: Final = frozenset({DType.HALF, DType.BFLOAT16, DType.DOUBLE})


def float_types(graph: Graph) -> dict[DType, int]:
    """The number of nodes that compute in each floating type other than float32."""
    return dict(
        Counter(
            kind
            for node in graph
            if node.op not in ("Placeholder", "Const")
            for kind in {value.value for value in node.attrs.values() if value.kind == "type"}
            if kind in _OTHER
        )
    )


def in_float32(
    graph: Graph, outputs: Sequence[Ref], *, cast_outputs: bool
) -> tuple[Graph, tuple[Ref, ...]]:
    """A graph that computes in float32, and its outputs.

    Placeholders keep their types, and a Cast follows each.

    Args:
        graph: the graph.
        outputs: the tensors that are fetched.
        cast_outputs: whether outputs get their former types.

    Raises:
        UnsupportedError: a constant is too large for float32.
    """
    fresh = FreshNames(node.name for node in graph)
    fed = {
        (node.name, 0): fresh.name(f"{node.name}/float32")
        for node in graph
        if node.op == "Placeholder" and node.attr_dtype("dtype") in _OTHER
    }
    nodes: list[Node] = []
    for node in graph:
        if (node.name, 0) in fed:
            kind = node.attr_dtype("dtype")
            nodes += [node, _cast(fed[node.name, 0], Ref(node.name), kind, DType.FLOAT)]
            continue
        inputs = tuple(Ref(fed[edge(r)]) if edge(r) in fed else r for r in node.inputs)
        plain = node if inputs == node.inputs else node.with_inputs(inputs)
        nodes.append(_in_float32(plain))
    ends = []
    for ref in outputs:
        before = tensor_dtype(graph, ref)
        if before in _OTHER and before is not None and cast_outputs and edge(ref) not in fed:
            ends.append(Ref(fresh.name(f"{ref.node}/{before.short}")))
            nodes.append(_cast(ends[-1].node, ref, DType.FLOAT, before))
        else:
            ends.append(ref)
    return graph.with_nodes(nodes), tuple(ends)


def _in_float32(node: Node) -> Node:
    if node.op == "Const":
        tensor = node.attr_tensor("value")
        return node if tensor.dtype not in _OTHER else _constant(node, tensor)
    changes = {key: _changed(value) for key, value in node.attrs.items() if _is_other(value)}
    return node.with_attrs(**changes) if changes else node


def _constant(node: Node, tensor: Tensor) -> Node:
    wide = tensor.array().astype(np.float64)
    with np.errstate(over="ignore"):
        values = wide.astype(np.float32)
    if not np.array_equal(np.isfinite(values), np.isfinite(wide)):
        message = f"the constant {node.name!r} has numbers beyond the range of float32"
        raise UnsupportedError(message, "scale it down, or cut the graph behind it")
    return constant(node.name, Tensor.of(values), node.device, node.inputs)


def _is_other(value: AttrValue) -> bool:
    if value.kind == "type":
        return value.value in _OTHER
    return value.kind == "list(type)" and any(kind in _OTHER for kind in value.value)


def _changed(value: AttrValue) -> AttrValue:
    if value.kind == "type":
        return attr.dtype(DType.FLOAT)
    kinds = tuple(DType.FLOAT if kind in _OTHER else kind for kind in value.value)
    return AttrValue(value.kind, kinds)


def _cast(name: str, ref: Ref, before: DType, after: DType) -> Node:
    attrs = {"SrcT": attr.dtype(before), "DstT": attr.dtype(after)}
    return Node(name, "Cast", (ref,), "", attrs)
