"""Let the size of a Fill follow from another tensor, so that runtimes know it before a run."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.bypass import constant_behind, source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.shape_inference import infer_shapes, shape_of

_FLOAT: Final = attr.dtype(DType.FLOAT)
_INT32: Final = attr.dtype(DType.INT32)
_NUMBERS: Final = frozenset({DType.FLOAT, DType.INT32, DType.INT64, DType.UINT8})
# Ops whose first element is that of their first input.
_STARTS: Final = frozenset({"Cast", "ConcatV2", "ExpandDims", "Pack", "Reshape", "Squeeze"})


def without_computed_fills(graph: Graph) -> Graph:
    """Replace each Fill of floats whose only open size is that of an axis of another tensor.

    An example is the first state of a recurrent network, whose open size is the batch. LiteRT knows
    the size of a FILL only when it runs.
    """
    if not any(node.op == "Fill" for node in graph):
        return graph
    shapes, fresh = infer_shapes(graph), FreshNames(graph.by_name)
    nodes: list[Node] = []
    for node in graph:
        filled = _row(graph, node, shape_of(shapes, Ref(node.name)))
        source = None if filled is None else _source(graph, node.data_inputs[0])
        sizes = None if source is None else shape_of(shapes, source[0].data_inputs[0])
        if filled is None or source is None or sizes is None or source[1] >= len(sizes):
            nodes.append(node)
        else:
            nodes += _Replacement(node, fresh).nodes_for(filled, *source, len(sizes))
    return graph.with_nodes(nodes)


def _row(graph: Graph, node: Node, shape: tuple[int, ...] | None) -> Array | None:
    """Return the first row of a Fill of floats whose number of rows alone is open."""
    if node.op != "Fill" or not shape or shape[0] != -1 or min(shape[1:], default=1) < 1:
        return None
    value = constant_behind(graph, node.data_inputs[1])
    if value is None or value.dtype is not DType.FLOAT:
        return None
    return np.full((1, *shape[1:]), value.array().reshape(()), np.float32)


def _source(graph: Graph, sizes: Ref) -> tuple[Node, int] | None:
    """Return the Shape, and the index in it, of the first of some sizes."""
    node = graph[source_behind(graph, sizes).node]
    while node.op in _STARTS:
        node = graph[source_behind(graph, node.data_inputs[0]).node]
    axis = 0
    if node.op in ("StridedSlice", "GatherV2"):
        begin = constant_behind(graph, node.data_inputs[1])
        if begin is None or begin.size != 1:
            return None
        is_shrunk = node.op == "GatherV2" or bool(node.attr_int("shrink_axis_mask", 0))
        axis = int(begin.array().reshape(()))
        if node.attr_int("begin_mask", 0) and not is_shrunk:
            axis = 0
        node = graph[source_behind(graph, node.data_inputs[0]).node]
    is_known = node.op == "Shape" and node.attr_dtype("T") in _NUMBERS
    return (node, axis) if is_known and axis >= 0 else None


class _Replacement:
    """The nodes that replace a Fill."""

    def __init__(self, node: Node, names: FreshNames) -> None:
        self._node = node
        self._names = names
        self._nodes: list[Node] = []

    def nodes_for(self, filled: Array, shape: Node, axis: int, rank: int) -> list[Node]:
        """Return nodes that compute the row ``filled`` for each index of an axis of a tensor.

        Args:
            filled: the row, with a first axis of size 1.
            shape: the Shape of the tensor.
            axis: the axis.
            rank: the number of the tensor's axes.
        """
        ref, kind = shape.data_inputs[0], shape.attribute("T")
        ends = [self._constant(np.full(rank, n, np.int32)) for n in (0, 1, 1)]
        masks = {name: attr.integer(1 << axis) for name in ("begin_mask", "end_mask")}
        masks["shrink_axis_mask"] = attr.integer(((1 << rank) - 1) ^ (1 << axis))
        column = self._add("StridedSlice", (ref, *ends), T=kind, Index=_INT32, **masks)
        if kind != _FLOAT:
            column = self._add("Cast", (column,), SrcT=kind, DstT=_FLOAT)
        # The elements may be NaN.
        column = self._add("ZerosLike", (column,), T=_FLOAT)
        sizes = self._constant(np.array([-1, *[1] * (filled.ndim - 1)], np.int32))
        column = self._add("Reshape", (column, sizes), T=_FLOAT, Tshape=_INT32)
        total = (column, self._constant(filled))
        if filled.any():
            self._nodes.append(Node(self._node.name, "AddV2", total, "", {"T": _FLOAT}))
        else:
            zeros = (self._add("AddV2", total, T=_FLOAT),)
            self._nodes.append(Node(self._node.name, "ZerosLike", zeros, "", {"T": _FLOAT}))
        return self._nodes

    def _add(self, op: str, inputs: tuple[Ref, ...], **attrs: AttrValue) -> Ref:
        name = self._names.name(f"{self._node.name}/{op}")
        self._nodes.append(Node(name, op, inputs, self._node.device, attrs))
        return Ref(name)

    def _constant(self, values: Array) -> Ref:
        name = self._names.name(f"{self._node.name}/constant")
        self._nodes.append(constant(name, Tensor.of(values)))
        return Ref(name)
