"""The ops that use a variable, as they are once it is a constant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.follow import is_inside
from mobileprep.freezing.trace import REF_FORMS
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref, control
from mobileprep.ir.tensor import Tensor


def converted_user(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    """The nodes that do with a constant what a node does with a variable.

    The last of them has the node's name. They are what the original tool makes, except that a
    ResourceGather may have batch dimensions, which it refuses.

    Args:
        graph: the graph that the node is in.
        node: reads a variable, or hands it on.
        dtype: the variable's element type.
    """
    conversion = _CONVERSIONS.get(node.op)
    if conversion is not None:
        return conversion(graph, node, dtype)
    plain = replace(node, op=REF_FORMS.get(node.op, node.op))
    return [plain.with_attrs(T=attr.dtype(dtype)).without_attrs("_output_shapes")]


def _read(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    # Whatever the read waited for cannot change a constant, so control inputs go.
    return [_successor(node, "Identity", node.inputs[:1], T=attr.dtype(dtype))]


def _gather(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    index_type = node.attr_dtype("Tindices")
    batch_dims = node.attr_int("batch_dims", 0)
    name = f"{node.name}/axis"
    while name in graph:
        name += "_"
    # In a loop a constant has to wait for something there, or it stands outside.
    tied = (control(node.inputs[0].node),) if is_inside(graph, node) else ()
    axis = constant(name, Tensor.of(np.array(batch_dims, index_type.numpy)), inputs=tied)
    extra = {"batch_dims": attr.integer(batch_dims)} if batch_dims else {}
    gather = _successor(
        node,
        "GatherV2",
        (*node.inputs[:2], Ref(name), *node.control_inputs),
        Tparams=attr.dtype(dtype),
        Tindices=attr.dtype(index_type),
        Taxis=attr.dtype(index_type),
        **extra,
    )
    return [axis, gather]


def _gather_nd(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    types = {"Tparams": attr.dtype(dtype), "Tindices": node.attribute("Tindices")}
    return [_successor(node, "GatherNd", node.inputs, **types)]


def _shape(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    types = {"T": attr.dtype(dtype)}
    if "out_type" in node.attrs:
        types["out_type"] = node.attribute("out_type")
    return [_successor(node, "Shape", node.inputs, **types)]


def _initialized(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    truth = Tensor.of(np.array(True))
    if not is_inside(graph, node):
        return [constant(node.name, truth, node.device, node.control_inputs)]
    # In a branch that is not taken there must be no answer.
    here = Node(f"{node.name}/here", "Identity", node.inputs[:1], "", {"T": attr.dtype(dtype)})
    tied = (control(here.name), *node.control_inputs)
    return [here, constant(node.name, truth, node.device, tied)]


def _successor(node: Node, op: str, inputs: tuple[Ref, ...], **types: AttrValue) -> Node:
    kept = {k: v for k, v in node.attrs.items() if k == "_class"}
    return Node(node.name, op, inputs, node.device, {**types, **kept})


_CONVERSIONS: Final[Mapping[str, Callable[[Graph, Node, DType], list[Node]]]] = {
    "ReadVariableOp": _read,
    "ResourceGather": _gather,
    "ResourceGatherNd": _gather_nd,
    "VariableShape": _shape,
    "IsVariableInitialized": _initialized,
    "VarIsInitializedOp": _initialized,
}
