"""What of TensorArrays follows from the graph: places in order, sizes, how elements are written."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import constant_behind, source_behind
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ENTERS, MERGES, NEXT_ITERATIONS, SUMS, SWITCHES
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array
from mobileprep.transforms.raise_control_flow.tracing import TracedArray, flow_of

# How far two expressions are compared.
_MOST_COMPARED: Final = 64


def fresh_scatters(graph: Graph, array: TracedArray) -> frozenset[str]:
    """Scatters after which a tensor's rows are all that an array holds, in their order."""
    found = set()
    for node in array.of_op("TensorArrayScatterV3"):
        begun = source_behind(graph, flow_of(node)) == Ref(array.node.name, 1)
        if begun and _covers(graph, node.data_inputs[1], array):
            found.add(node.name)
    return frozenset(found)


def _covers(graph: Graph, indices: Ref, array: TracedArray) -> bool:
    """Whether indices count all places of a new array up."""
    size = array.node.data_inputs[0]
    known = value_behind(graph, size)
    given = value_behind(graph, indices)
    if given is not None:
        count = len(given) if given.ndim == 1 else -1
        whole = known is not None and (int(known) == count or _grows(array, known))
        return whole and bool((given == np.arange(count)).all())
    node = graph[source_behind(graph, indices).node]
    if node.op != "Range" or len(node.data_inputs) != 3:
        return False
    first, limit, step = node.data_inputs
    starts = [value_behind(graph, r) for r in (first, step)]
    if any(s is None or s.size != 1 for s in starts) or [
        int(s) for s in starts if s is not None
    ] != [0, 1]:
        return False
    return _grows(array, known) or same_value(graph, limit, size)


def _grows(array: TracedArray, size: Array | None) -> bool:
    """Whether an array is empty at first, and takes as many elements as come."""
    return array.is_dynamic and size is not None and size.size == 1 and int(size) == 0


def value_behind(graph: Graph, ref: Ref) -> Array | None:
    """The elements of a constant, or None where a tensor is none."""
    found = constant_behind(graph, ref)
    return None if found is None else found.array()


def same_value(graph: Graph, one: Ref, other: Ref) -> bool:
    """Whether two tensors are computed alike from the same tensors, as far as is compared."""
    waiting, compared = [(one, other)], 0
    while waiting:
        a, b = (source_behind(graph, r) for r in waiting.pop())
        compared += 1
        if a == b:
            continue
        x, y = graph[a.node], graph[b.node]
        values = [value_behind(graph, r) for r in (a, b)]
        if values[0] is not None and values[1] is not None:
            if not np.array_equal(values[0], values[1]):
                return False
            continue
        alike = (x.op, a.index, len(x.data_inputs)) == (y.op, b.index, len(y.data_inputs))
        if not alike or not x.data_inputs or _told(x) != _told(y) or x.op in MERGES:
            return False
        if compared > _MOST_COMPARED:
            return False
        waiting += zip(x.data_inputs, y.data_inputs, strict=True)
    return True


def _told(node: Node) -> dict[str, AttrValue]:
    """The attributes that say what a node computes."""
    return {name: value for name, value in node.attrs.items() if not name.startswith("_")}


def counts_up(graph: Graph, index: Ref) -> bool:
    """Whether a tensor is a loop variable that grows by a constant in each turn."""
    head = _head(graph, index)
    if head is None or len(head.data_inputs) != 2:
        return False
    givers = [graph[r.node] for r in head.data_inputs]
    for first, later in (givers, givers[::-1]):
        if first.op in ENTERS and later.op in NEXT_ITERATIONS and later.data_inputs:
            return _is_step(graph, later.data_inputs[0], head)
    return False


def _is_step(graph: Graph, ref: Ref, head: Node) -> bool:
    total = graph[source_behind(graph, ref).node]
    if total.op not in SUMS or len(total.data_inputs) != 2:
        return False
    for part, step in (total.data_inputs, total.data_inputs[::-1]):
        value = value_behind(graph, step)
        if value is not None and value.size == 1 and value > 0 and _head(graph, part) is head:
            return True
    return False


def _head(graph: Graph, ref: Ref) -> Node | None:
    """The Merge that a tensor in a loop's body comes from unchanged."""
    ref = source_behind(graph, ref)
    node = graph[ref.node]
    if node.op in SWITCHES and node.data_inputs:
        node = graph[source_behind(graph, node.data_inputs[0]).node]
    return node if node.op in MERGES else None
