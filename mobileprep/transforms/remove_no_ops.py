"""Remove nodes that return their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import IDENTITIES, Bypass, constant_behind, without_idle_controls
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import execution_order
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.ops.shape_inference import infer_shapes, shape_of
from mobileprep.transforms.base import Context, Result, Transform, transform

# Ops that return the elements of their first input in the same order with another shape.
_RESHAPING: Final = frozenset({"Reshape", "Squeeze", "ExpandDims"})


@transform("remove_no_ops")
class RemoveNoOps(Transform, frozen=True):
    """Remove nodes without effect, and nodes that only served them.

    These are Identity and similar ops; Cast to the same type, or back from a type that preserved
    every value; Mul and RealDiv with a scalar one; Transpose that does not change the order of
    dimensions, alone or after another one; Reshape, Squeeze, and ExpandDims that restore the shape
    before the first of them.

    Control inputs from constants are also removed, because they have no effect, except in branches
    and loops. Nodes that branches and loops depend on are kept, and so are nodes with control
    inputs.
    """

    summary = (
        "Removes nodes that return their input, nodes that only serve them, and control inputs "
        "from constants."
    )

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove no-ops until there are none left."""
        matched = 0
        while True:
            done = _without_no_ops(graph, context)
            matched += done.matched
            if not done.matched:
                return Result(graph, matched, done.skipped)
            # Nodes that depended on a removed node may now depend on a constant only.
            graph = done.graph


def _without_no_ops(graph: Graph, context: Context) -> Result:
    ready = without_idle_controls(graph, context.protected)
    work = _NoOps(ready, context)
    for node in execution_order(ready):
        sources = work.sources(node)
        if sources:
            work.bypass.take_out(node, *sources)
    done = work.bypass.result(with_unused=False)
    freed = sum(graph[n.name] is not n for n in ready) if ready is not graph else 0
    return Result(done.graph, done.matched + freed, done.skipped)


class _NoOps:
    def __init__(self, graph: Graph, context: Context) -> None:
        self._graph = graph
        self._context = context
        self.bypass = Bypass(graph, context.protected)
        self._before_reshaping: dict[str, Ref] = {}
        self._finders: Mapping[str, Callable[[Node], Ref | None]] = {
            "Cast": self._cast,
            **dict.fromkeys(("Mul", "RealDiv"), self._times_one),
            "Transpose": self._transpose,
            **dict.fromkeys(_RESHAPING, self._reshaping),
        }

    def sources(self, node: Node) -> tuple[Ref, ...]:
        """Return the tensors that equal a node's outputs, or nothing if it is not a no-op."""
        tensors = node.data_inputs
        if node.op == "IdentityN" or (node.op in IDENTITIES and tensors):
            return tensors
        find = self._finders.get(node.op)
        source = find(node) if find is not None and tensors else None
        return () if source is None else (source,)

    def _cast(self, node: Node) -> Ref | None:
        source = self.bypass.source(node.data_inputs[0])
        src, dst = node.attr_dtype("SrcT"), node.attr_dtype("DstT")
        if src == dst:
            return source
        inner = self._graph[source.node]
        if inner.op != "Cast" or inner.attr_dtype("SrcT") != dst:
            return None
        return inner.data_inputs[0] if _holds_all(src, dst) else None

    def _times_one(self, node: Node) -> Ref | None:
        """Return the operand that is multiplied or divided by a scalar one, which is exact."""
        for ref, other in zip(node.data_inputs, node.data_inputs[::-1], strict=True):
            value = constant_behind(self._graph, other)
            first = ref == node.data_inputs[0]
            if value is None or value.shape or (node.op == "RealDiv" and not first):
                continue
            if value.dtype.is_floating and float(value.array()) == 1:
                return self.bypass.source(ref)
        return None

    def _transpose(self, node: Node) -> Ref | None:
        source = self.bypass.source(node.data_inputs[0])
        order = self._order(node)
        if order is None:
            return None
        if order == list(range(len(order))):
            return source
        inner = self._graph[source.node]
        first = self._order(inner) if inner.op == "Transpose" else None
        if first is None or len(first) != len(order):
            return None
        back = [first[axis] for axis in order] == list(range(len(order)))
        return inner.data_inputs[0] if back else None

    def _order(self, node: Node) -> list[int] | None:
        """Return the source dimension of each dimension of a Transpose if constant, or None."""
        value = constant_behind(self._graph, node.data_inputs[1]) if node.data_inputs[1:] else None
        if value is None or len(value.shape) != 1:
            return None
        order = [int(axis) for axis in value.array()]
        return order if sorted(order) == list(range(len(order))) else None

    def _reshaping(self, node: Node) -> Ref | None:
        """Return the start of a chain of reshaping nodes if the last one restores its shape."""
        source = self.bypass.source(node.data_inputs[0])
        first = self._before_reshaping.get(source.node, source)
        self._before_reshaping[node.name] = first
        before, after = self._shape(first), self._shape(Ref(node.name))
        # One unknown size follows from the others; two could be distributed differently.
        if before is None or before != after or sum(size < 1 for size in before) > 1:
            return None
        return first

    def _shape(self, ref: Ref) -> TensorShape:
        return shape_of(self._shapes, ref)

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[TensorShape, ...]]:
        # A fed tensor has the shape of the feed, regardless of the node.
        fed = {
            name: None
            for name in self._context.inputs
            if (node := self._graph.get(parse_ref(name).node)) and node.op != "Placeholder"
        }
        return infer_shapes(self._graph, fed)


def _holds_all(wide: DType, narrow: DType) -> bool:
    """Return whether one type can represent every value of another."""
    into, of = wide.numpy, narrow.numpy
    if into is None or of is None or wide.is_quantized or narrow.is_quantized:
        return False
    # numpy considers 64-bit integers safe to cast to doubles, which have a 53-bit significand.
    if of.kind in "iu" and of.itemsize == 8 and into.kind not in "iu":
        return False
    return np.can_cast(of, into, "safe")
