"""TensorArrays and TensorLists as tensors that loops carry.

Stored as `[count, ...]`, or as concatenated elements.

The flow of a TensorArray, which orders its use, and the handle of a TensorList become the tensor
itself: consumers take the array's contents at that point.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.bypass import constant_behind, source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import ENTERS, FEEDABLE, MERGES, NEXT_ITERATIONS, SUMS, SWITCHES
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.shape_function import ShapeConflictError, merge
from mobileprep.transforms.raise_control_flow.array_nodes import (
    READING,
    ArrayNodes,
    Form,
    Size,
    TracedArray,
    traced_arrays,
)
from mobileprep.transforms.raise_control_flow.region import LoopShapes, cannot_raise

# Elements of one array may be read from another.
_MOST_ROUNDS: Final = 8
_SHAPES: Final = "give the inputs' shapes, on which it depends"
_JOINABLE: Final = frozenset({"write", "push", "concat"})


def without_arrays(graph: Graph, live: Iterable[str]) -> Graph:
    """Replace the TensorArrays and TensorLists that live nodes use with tensors."""
    needed = frozenset(live)
    arrays = traced_arrays(graph, needed)
    if not arrays:
        return graph
    for array in arrays:
        _check_lengths(graph, array, needed)
    fresh = {array: fresh_scatters(graph, array) for array in arrays}
    guesses: dict[TracedArray, TensorShape] = dict.fromkeys(arrays)
    for _ in range(_MOST_ROUNDS):
        draft = _replaced(
            graph, [_Plan(a, Form(None, False, fresh[a]), guesses[a]) for a in arrays]
        )
        shapes = LoopShapes(draft)
        elements = {array: _element(array, shapes) for array in arrays}
        if elements == guesses:
            break
        guesses = elements
    sizes = OpenSizes(draft)
    plans = []
    for array in arrays:
        form = _form(graph, array, guesses[array], fresh[array], sizes)
        plans.append(_Plan(array, form, None))
    return _replaced(graph, plans, sizes.nodes)


def _check_lengths(graph: Graph, array: TracedArray, live: frozenset[str]) -> None:
    for node in (user.node for user in array.doing("concat")):
        takers = graph.consumers.get(node.name, ())
        if any(r == Ref(node.name, 1) for n in takers if n.name in live for r in n.data_inputs):
            raise cannot_raise(node, "uses the lengths of an array's elements")


class _Plan(Struct, frozen=True, eq=False):
    """An array, its form, and the assumed shape of its elements until it is known."""

    array: TracedArray
    form: Form
    guess: TensorShape


def _replaced(graph: Graph, plans: Sequence[_Plan], more: Sequence[Node] = ()) -> Graph:
    names = FreshNames([*graph.by_name, *(n.name for n in more)])
    instead: dict[str, Sequence[Node]] = {}
    contents: dict[Ref, Ref] = {}
    passing: dict[str, TracedArray] = {}
    for plan in plans:
        array_nodes = ArrayNodes(plan.array, plan.form, names)
        nodes = list(array_nodes.replaced())
        contents[plan.array.contents] = array_nodes.contents
        contents.update({Ref(*tensor): ref for tensor, ref in array_nodes.outputs.items()})
        if plan.guess is not None:
            nodes = [
                n.with_attrs(shape=attr.shape((-1, *plan.guess))) if n.op == "Placeholder" else n
                for n in nodes
            ]
        passing.update(dict.fromkeys(plan.array.passing, plan.array))
        own = {user.node.name for user in plan.array.users}
        instead.update(dict.fromkeys(own, ()))
        # Unneeded nodes that take the array's handle still refer to the array itself.
        instead[plan.array.node.name] = [plan.array.node, *nodes]
    done: list[Node] = list(more)
    for node in graph:
        if node.name in passing:
            node = node.with_attrs(T=attr.dtype(passing[node.name].dtype))
        done += instead.get(node.name, (node,))
    return graph.with_nodes(_rewired(node, contents, names) for node in done)


def _rewired(node: Node, contents: Mapping[Ref, Ref], names: FreshNames) -> Node:
    refs = tuple(contents.get(r, r) for r in node.inputs)
    return node if refs == node.inputs else node.with_inputs(refs)


def _element(array: TracedArray, shapes: LoopShapes) -> TensorShape:
    """Return the known shape of an array's elements; None if shapes conflict or are unknown."""
    candidates: list[TensorShape] = []
    if not array.is_list:
        candidates.append(array.node.attr_shape("element_shape"))
        candidates += [u.node.attr_shape("element_shape") for u in array.doing("gather")]
        rest = [u.node.attr_shape("element_shape_except0") for u in array.doing("concat")]
        candidates += [(-1, *shape) for shape in rest if shape is not None]
    candidates += [shapes.value(ref) for ref in array.shapes]
    candidates += [shapes.of(user.value) for user in array.doing("write", "push")]
    rows = [user.value for user in array.doing("scatter")]
    if array.given is not None and array.lengths is None:
        rows.append(array.given)
    candidates += [None if not shape else shape[1:] for shape in map(shapes.of, rows)]
    if array.given is not None and array.lengths is not None:
        candidates.append(_split_element(array.node, array.given, array.lengths, shapes))
    for user in array.doing("split"):
        candidates.append(_split_element(user.node, user.value, user.index, shapes))
    element: TensorShape = None
    for shape in candidates:
        try:
            element = merge(element, shape)
        except ShapeConflictError:
            return None
    return element


def _split_element(node: Node, value: Ref, lengths: Ref, shapes: LoopShapes) -> TensorShape:
    """Return the shape of each part if all have the same length."""
    whole, count = shapes.of(value), shapes.of(lengths)
    if not whole or not count or count[0] < 1 or whole[0] < 0:
        raise cannot_raise(node, "cuts a tensor at places that are not known")
    return (whole[0] // count[0], *whole[1:])


def _form(
    graph: Graph,
    array: TracedArray,
    element: TensorShape,
    fresh: frozenset[str],
    sizes: OpenSizes,
) -> Form:
    """Return how a tensor can store an array."""
    joined = _joined(graph, array, element)
    if joined is not None:
        return Form(joined, joined=True, fresh=fresh)
    if _is_given(array, fresh):
        return Form((), fresh=fresh)
    if element is None:
        raise cannot_raise(array.node, "has elements of unknown rank", _SHAPES)
    dims: list[Size] = []
    for axis, size in enumerate(element):
        dim = size if size >= 0 else sizes.of(array, axis, _element)
        is_joined = axis > 0 and bool(array.doing("concat"))
        if dim is None and not is_joined and _is_written(array, fresh):
            dim = -1
        if dim is None:
            raise cannot_raise(array.node, f"has elements of unknown size along {axis}", _SHAPES)
        dims.append(dim)
    return Form(tuple(dims), fresh=fresh)


def _is_written(array: TracedArray, fresh: frozenset[str]) -> bool:
    """Return whether elements are written one by one, so that the first determines all sizes."""
    is_even = bool(array.doing("stack", "gather")) if array.is_list else False
    if not (is_even or array.node.attr_bool("identical_element_shapes", False)):
        return False
    changing = [u for u in array.users if u.action not in READING and u.node.name not in fresh]
    return bool(changing) and all(u.action == "write" for u in changing)


def _is_given(array: TracedArray, fresh: frozenset[str]) -> bool:
    """Return whether an array only contains the rows of one tensor."""
    changing = [u for u in array.users if u.action not in READING]
    if array.given is not None and array.lengths is None:
        return not changing
    return bool(changing) and all(u.node.name in fresh for u in changing)


def _joined(graph: Graph, array: TracedArray, element: TensorShape) -> tuple[Size, ...] | None:
    """Return the sizes of variable-length elements that are written in order and concatenated."""
    if element is None or any(size < 0 for size in element[1:]) or element[:1] != (-1,):
        return None
    if array.given is not None or not {user.action for user in array.users} <= _JOINABLE:
        return None
    writes = array.doing("write")
    return (0, *element[1:]) if all(counts_up(graph, u.index) for u in writes) else None


# Maximum number of compared pairs of nodes.
_MOST_COMPARED: Final = 64


def fresh_scatters(graph: Graph, array: TracedArray) -> frozenset[str]:
    """Return the Scatters that set the whole content of an array to a tensor's rows, in order."""
    names = set()
    for user in array.doing("scatter"):
        is_first = source_behind(graph, user.contents) == array.contents
        if is_first and _covers(graph, user.index, array):
            names.add(user.node.name)
    return frozenset(names)


def _covers(graph: Graph, indices: Ref, array: TracedArray) -> bool:
    """Return whether indices enumerate all positions of a new array in order."""
    size = array.size
    if size is None:
        return False
    length = value_behind(graph, size)
    positions = value_behind(graph, indices)
    if positions is not None:
        count = len(positions) if positions.ndim == 1 else -1
        whole = length is not None and (int(length) == count or _grows(array, length))
        return whole and bool((positions == np.arange(count)).all())
    node = graph[source_behind(graph, indices).node]
    if node.op != "Range" or len(node.data_inputs) != 3:
        return False
    first, limit, step = node.data_inputs
    starts = [value_behind(graph, r) for r in (first, step)]
    if any(s is None or s.size != 1 for s in starts) or [
        int(s) for s in starts if s is not None
    ] != [0, 1]:
        return False
    return _grows(array, length) or same_value(graph, limit, size)


def _grows(array: TracedArray, size: Array | None) -> bool:
    """Return whether an array is initially empty and grows as needed."""
    return array.is_dynamic and size is not None and size.size == 1 and int(size) == 0


def value_behind(graph: Graph, ref: Ref) -> Array | None:
    """Return the elements of a constant, or None if a tensor is not constant."""
    tensor = constant_behind(graph, ref)
    return None if tensor is None else tensor.array()


def same_value(graph: Graph, one: Ref, other: Ref) -> bool:
    """Return whether two tensors are computed in the same way from the same tensors.

    The number of compared nodes is limited; beyond it, the result is False.
    """
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
        if not alike or not x.data_inputs or _result_attrs(x) != _result_attrs(y) or x.op in MERGES:
            return False
        if compared > _MOST_COMPARED:
            return False
        waiting += zip(x.data_inputs, y.data_inputs, strict=True)
    return True


def _result_attrs(node: Node) -> dict[str, AttrValue]:
    """Return the attributes that affect a node's results."""
    return {name: value for name, value in node.attrs.items() if not name.startswith("_")}


def counts_up(graph: Graph, index: Ref) -> bool:
    """Return whether a tensor is a loop variable that grows by a constant in each iteration."""
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
    """Return the Merge that a tensor in a loop's body is an unchanged copy of, or None."""
    ref = source_behind(graph, ref)
    node = graph[ref.node]
    if node.op in SWITCHES and node.data_inputs:
        node = graph[source_behind(graph, node.data_inputs[0]).node]
    return node if node.op in MERGES else None


_PRIMES: Final = (7919, 7933, 7937, 7949, 7951, 7963, 7993, 8009, 8011, 8017, 8039, 8053)
_OTHERS: Final = (9901, 9907, 9923, 9929, 9931, 9941, 9949, 9967, 9973, 10007, 10009, 10037)
_INT32: Final = attr.dtype(DType.INT32)

Place = tuple[str, int]
"""An input's name, and one of its axes."""

_Way = Callable[[str, int, Sequence[int]], Hashable]
# Key of open sizes that are assumed equal, from an input's name, an axis, and its open axes: the
# batch sizes, no sizes, sizes of the same axis, or sizes of the same axis from the end, as for
# [time, batch] and [batch].
_WAYS: Final[Sequence[_Way]] = (
    lambda name, axis, _: axis and (name, axis),
    lambda name, axis, _: (name, axis),
    lambda _, axis, __: axis,
    lambda _, axis, left_open: left_open[-1] - axis,
)


class OpenSizes:
    """Search for the input sizes that determine sizes of elements.

    Args:
        graph: a draft whose tensors have the same shapes as in the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names = FreshNames(graph.by_name)
        self._sizes: dict[Place, Ref] = {}
        self.nodes: list[Node] = []
        """Nodes that compute the sizes returned by ``of``."""

    def of(
        self,
        array: TracedArray,
        axis: int,
        element: Callable[[TracedArray, LoopShapes], TensorShape],
    ) -> Ref | None:
        """Return an int32 scalar with the size of elements along an axis, or None."""
        for trials in self._trials:
            places = {self._place(element(array, shapes), axis, at) for shapes, at in trials}
            place = places.pop() if len(places) == 1 else None
            if place is not None:
                return self._size(place)
        return None

    @cached_property
    def _trials(self) -> Sequence[Sequence[tuple[LoopShapes, Mapping[int, Place]]]]:
        """Shapes with primes for open sizes, two trials per assumption about equal sizes."""
        shapes = dict(self._open_inputs())
        count = sum(shape.count(-1) for shape in shapes.values())
        ways = _WAYS if 0 < count <= len(_PRIMES) else ()
        return [[self._tried(shapes, p, way) for p in (_PRIMES, _OTHERS)] for way in ways]

    def _open_inputs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for node in self._graph:
            shape = node.attr_shape("shape") if node.op in FEEDABLE else None
            if shape is not None and -1 in shape:
                yield node.name, shape

    def _tried(
        self, shapes: Mapping[str, tuple[int, ...]], primes: Sequence[int], way: _Way
    ) -> tuple[LoopShapes, Mapping[int, Place]]:
        places: dict[int, Place] = {}
        groups: dict[Hashable, int] = {}
        fed: dict[str, TensorShape] = {}
        for name, shape in shapes.items():
            sizes = list(shape)
            left_open = [axis for axis, size in enumerate(shape) if size < 0]
            for axis in left_open:
                sizes[axis] = groups.setdefault(way(name, axis, left_open), primes[len(groups)])
                places.setdefault(sizes[axis], (name, axis))
            fed[name] = tuple(sizes)
        return LoopShapes(self._graph, fed), places

    def _place(self, shape: TensorShape, axis: int, places: Mapping[int, Place]) -> Place | None:
        return None if shape is None or axis >= len(shape) else places.get(shape[axis])

    def _size(self, place: Place) -> Ref:
        if place not in self._sizes:
            name, axis = place
            node = self._graph[name]
            kind = node.attribute("dtype")
            sizes = self._names.name(f"{name}/sizes")
            which, first = (self._names.name(f"{name}/{n}") for n in ("which", "first"))
            size = self._names.name(f"{name}/size_{axis}")
            kinds = {"Tparams": _INT32, "Tindices": _INT32, "Taxis": _INT32}
            inputs = (Ref(sizes), Ref(which), Ref(first))
            self.nodes += [
                Node(sizes, "Shape", (Ref(name),), "", {"T": kind, "out_type": _INT32}),
                constant(which, Tensor.of(np.int32(axis))),
                constant(first, Tensor.of(np.int32(0))),
                Node(size, "GatherV2", inputs, "", {**kinds, "batch_dims": attr.integer(0)}),
            ]
            self._sizes[place] = Ref(size)
        return self._sizes[place]
