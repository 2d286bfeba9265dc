"""A graph's nodes after TensorFlow's importer: ordered, with default attributes.

Source: ``ImportGraphDef`` of TensorFlow 1.15.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import MERGES, NEXT_ITERATIONS
from mobileprep.graph.opdefs.definitions import default_attrs
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.constant_evaluation import MAX_DEPTH, StaticValues, is_static
from mobileprep.ops.shape_function import MAX_RANK, UNKNOWN, concatenate, unknown_dims

OUTPUT_SHAPES = "_output_shapes"


def imported_nodes(graph: Graph) -> list[Node]:
    """Return the nodes in the importer's order and as it completes them.

    Missing attributes get the defaults of TensorFlow 1.15's op definitions, if it has the op.
    Recorded output shapes are removed. Control inputs are sorted and deduplicated.
    """
    defaults: dict[str, Mapping[str, AttrValue]] = {}
    nodes = []
    for node in import_order(graph):
        if node.op not in defaults:
            defaults[node.op] = default_attrs(node.op, graph.library) or {}
        nodes.append(_completed(node, defaults[node.op]))
    return nodes


def import_order(graph: Graph) -> list[Node]:
    """Return the nodes in the order in which the importer creates them.

    Of the nodes with available inputs, the first one in the graph comes next. A Merge that closes a
    loop waits for one tensor and its control inputs.

    Raises:
        InvalidGraphError: the graph has a cycle outside of loops.
    """
    nodes = graph.nodes
    position = {node.name: i for i, node in enumerate(nodes)}
    consumers: list[list[int]] = [[] for _ in nodes]
    pending = []
    for i, node in enumerate(nodes):
        pending.append(_awaited(node, graph))
        for ref in node.inputs:
            consumers[position[ref.node]].append(i)
    ready = [i for i, count in enumerate(pending) if not count]
    order = []
    while ready:
        node = nodes[i := heapq.heappop(ready)]
        order.append(node)
        closes = node.op in NEXT_ITERATIONS
        for consumer in consumers[i]:
            if closes and nodes[consumer].op in MERGES:
                continue
            pending[consumer] -= 1
            if not pending[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) < len(nodes):
        waiting = next(n.name for i, n in enumerate(nodes) if pending[i] > 0)
        message = f"{len(nodes) - len(order)} nodes feed each other in a circle, as {waiting!r}"
        raise InvalidGraphError(message, "export the graph again")
    return order


def _awaited(node: Node, graph: Graph) -> int:
    if node.op in MERGES and any(graph[r.node].op in NEXT_ITERATIONS for r in node.data_inputs):
        return len(node.control_inputs) + 1
    return len(node.inputs)


def _completed(node: Node, defaults: Mapping[str, AttrValue]) -> Node:
    attrs = node.attrs
    if OUTPUT_SHAPES in attrs or any(name not in attrs for name in defaults):
        attrs = {**defaults, **{k: v for k, v in attrs.items() if k != OUTPUT_SHAPES}}
    inputs = _inputs(node.inputs)
    if inputs is node.inputs and attrs is node.attrs:
        return node
    return replace(node, inputs=inputs, attrs=attrs)


def _inputs(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """Return tensors as "node" or "node:1", then control inputs, sorted and deduplicated."""
    if not any(r.explicit or r.is_control for r in refs):
        return refs
    tensors = [Ref(r.node, r.index) for r in refs if not r.is_control]
    return (*tensors, *sorted_controls(r.node for r in refs if r.is_control))


def sorted_controls(names: Iterable[str]) -> Sequence[Ref]:
    """Return control inputs on the named nodes, in stored order."""
    return [Ref(name, -1) for name in sorted(set(names))]


def copies_warning(step: str, before: Graph, after: Graph) -> str:
    """Return a warning about constants that a step duplicated, with a remedy, or an empty string.

    The original folds each Identity of a constant to a second constant of the same value. If other
    nodes still need the first, for example a NoOp with a control input from it, the file contains
    both. Values are compared by identity, which costs nothing.
    """
    if after is before:
        return ""
    had = Counter(id(value) for value in _values(before))
    has = Counter(id(value) for value in _values(after))
    sizes = {id(value): value.nbytes for value in _values(after)}
    more = {key: has[key] - had[key] for key in has if 0 < had[key] < has[key]}
    size = sum(count * sizes[key] for key, count in more.items())
    if not size:
        return ""
    return (
        f"{step}: {sum(more.values())} constants are duplicated now, {size:,} bytes more, "
        "because it copies each that is read through an Identity; put remove_nodes(op=Identity) "
        f"before {step}, or merge_duplicate_nodes behind it"
    )


def _values(graph: Graph) -> Iterator[Tensor]:
    for node in graph:
        value = node.attrs.get("value") if node.op == "Const" else None
        if value is not None and isinstance(value.value, Tensor):
            yield value.value


_TOLD_BY_SHAPES = frozenset({"Rank", "Shape", "Size"})
_SPECIAL_MASKS = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


class Tf115Values(StaticValues):
    """Static values as 1.15 finds them.

    It misses a value that needs one Shape, Rank, or Size node twice, and finds the sizes of a
    partly known shape only through Pack, Concat, and simple strided slices.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        shape_of: Callable[[Ref], TensorShape],
        fed: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(nodes, shape_of, fed)
        self._evaluated: set[Ref] = set()

    def value(self, ref: Ref) -> Array | None:
        """Return a tensor's elements, or None if they are unknown."""
        node = self._nodes[ref.node]
        if node.op == "Const":
            return super().value(ref)
        if ref not in self._evaluated and not self._is_evaluated(node):
            return None
        value = super().value(ref)
        if value is not None:
            self._evaluated.add(ref)
        return value

    def as_shape(self, ref: Ref) -> TensorShape:
        """Return a tensor interpreted as a shape, with -1 for each unknown size, or None."""
        return self._read_shape(ref, 0)

    def _is_evaluated(self, target: Node) -> bool:
        """Return whether all sources of a node are constant, and no known shape is used twice."""
        if not is_static(target):
            return False
        used: set[Ref] = set()
        followed = {target.name}
        waiting = list(target.data_inputs)
        while waiting:
            ref = waiting.pop()
            node = self._nodes[ref.node]
            if not is_static(node) or not (node.data_inputs or node.op == "Const"):
                return False
            if node.op in _TOLD_BY_SHAPES and super().value(ref) is not None:
                if ref in used:
                    return False
                used.add(ref)
            elif ref in self._evaluated and ref not in used:
                used.add(ref)
            elif node.name not in followed:
                followed.add(node.name)
                waiting += node.data_inputs
        return True

    def _read_shape(self, ref: Ref, depth: int) -> TensorShape:
        shape, node = self._shape_of(ref), self._nodes[ref.node]
        if shape == (0,):
            return ()
        if shape is None or len(shape) != 1 or depth > MAX_DEPTH:
            return None
        refs = node.data_inputs
        if node.op in ("Shape", "ShapeN"):
            return self._shape_of(refs[ref.index])
        if node.op == "Pack":
            return tuple(self._size(r) for r in refs)
        if node.op in ("Concat", "ConcatV2"):
            joined: TensorShape = ()
            for part in refs[1:] if node.op == "Concat" else refs[:-1]:
                joined = concatenate(joined, self._read_shape(part, depth + 1))
            return joined
        if node.op == "StridedSlice":
            return self._read_slice(node, depth)
        sizes = self.value(ref)
        if sizes is not None:
            return tuple(max(int(size), UNKNOWN) for size in sizes[:MAX_RANK])
        return unknown_dims(shape[0]) if 0 <= shape[0] <= MAX_RANK else None

    def _size(self, ref: Ref) -> int:
        value = self.value(ref)
        return UNKNOWN if value is None or value.size != 1 else max(int(value.item()), UNKNOWN)

    def _read_slice(self, node: Node, depth: int) -> TensorShape:
        bounds = node.data_inputs[1:4]
        if any(self._shape_of(r) != (1,) for r in bounds):
            return None
        masks = node.attr_int("begin_mask", 0), node.attr_int("end_mask", 0)
        if max(masks) > 1 or any(node.attr_int(name, 0) for name in _SPECIAL_MASKS):
            return None
        values = [self.value(r) for r in bounds]
        if any(v is None and not m for v, m in zip(values, (*masks, 0), strict=True)):
            return None
        begin, end, stride = (None if v is None else int(v.item()) for v in values)
        cut = slice(None if masks[0] else begin, None if masks[1] else end, stride)
        source = self._read_shape(node.data_inputs[0], depth + 1)
        if source is None or stride == 0:
            return None
        return source[cut]
