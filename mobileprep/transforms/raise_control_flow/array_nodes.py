"""TensorArrays and TensorLists of a graph, and the tensor nodes that replace their users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from mobileprep.graph.refs import Edge, FreshNames, Ref, control, edge
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.raise_control_flow.region import cannot_raise, malformed

PASSING: Final = ENTERS | EXITS | MERGES | NEXT_ITERATIONS | SWITCHES | {"Identity"}


class _Slots(Struct, frozen=True):
    """How an op uses an array.

    Args:
        action: what it does.
        count: the number of its inputs.
        contents: the input with the contents: the flow of a TensorArray, or the handle of a list.
        index: the input with indices, or sizes; None if there is none.
        value: the input with elements; None if there is none.
        shape: the input with the shape of an element; None if there is none.
    """

    action: str
    count: int
    contents: int
    index: int | None = None
    value: int | None = None
    shape: int | None = None


_ARRAYS: Final[Mapping[str, _Slots]] = {
    "TensorArrayWriteV3": _Slots("write", 4, 3, 1, 2),
    "TensorArrayReadV3": _Slots("read", 3, 2, 1),
    "TensorArrayGatherV3": _Slots("gather", 3, 2, 1),
    "TensorArrayScatterV3": _Slots("scatter", 4, 3, 1, 2),
    "TensorArrayConcatV3": _Slots("concat", 2, 1),
    "TensorArraySplitV3": _Slots("split", 4, 3, 2, 1),
    "TensorArraySizeV3": _Slots("size", 2, 1),
}
_LISTS: Final[Mapping[str, _Slots]] = {
    "TensorListSetItem": _Slots("write", 3, 0, 1, 2),
    "TensorListGetItem": _Slots("read", 3, 0, 1, shape=2),
    "TensorListGather": _Slots("gather", 3, 0, 1, shape=2),
    "TensorListStack": _Slots("stack", 2, 0, shape=1),
    "TensorListConcat": _Slots("concat", 1, 0),
    "TensorListConcatV2": _Slots("concat", 3, 0, shape=1),
    "TensorListScatterIntoExistingList": _Slots("scatter", 3, 0, 2, 1),
    "TensorListPushBack": _Slots("push", 2, 0, value=1),
    "TensorListPopBack": _Slots("pop", 2, 0, shape=1),
    "TensorListResize": _Slots("resize", 2, 0, 1),
    "TensorListLength": _Slots("size", 1, 0),
    "TensorListElementShape": _Slots("shape", 1, 0),
}
# The inputs of ops that create a list: the shape of an element, the number of elements, a tensor
# with the elements, the lengths of its parts.
_NEW_LISTS: Final[Mapping[str, tuple[int, int | None, int | None, int | None]]] = {
    "TensorListReserve": (0, 1, None, None),
    "EmptyTensorList": (0, None, None, None),
    "TensorListFromTensor": (1, None, 0, None),
    "TensorListSplit": (1, None, 0, 2),
}
_ARRAY: Final = "TensorArrayV3"
NEW_ARRAYS: Final = frozenset({_ARRAY, *_NEW_LISTS})
"""Ops that create an array or a list."""
_CHANGING: Final = frozenset({"write", "scatter", "split", "push", "pop", "resize"})
READING: Final = frozenset({"read", "gather", "stack", "size", "shape"})
"""Actions that do not change an array."""


ARRAY_OPS: Final = NEW_ARRAYS.union(_ARRAYS, _LISTS)
"""Ops on TensorArrays and TensorLists, which raising replaces."""


def is_list_op(op: str) -> bool:
    """Return whether an op creates or uses a TensorList."""
    return op.startswith(("TensorList", "EmptyTensorList"))


class ArrayUse(Struct, frozen=True, eq=False):
    """An op that reads or changes an array, and the tensors that it takes.

    Args:
        node: the op.
        action: what it does.
        contents: the contents of the array.
        index: indices or sizes.
        value: elements.
        shape: the shape of an element.
    """

    node: Node
    action: str
    contents: Ref
    index: Ref
    value: Ref
    shape: Ref | None


_NONE: Final = Ref("")


def _use(node: Node, slots: _Slots) -> ArrayUse:
    refs = node.data_inputs
    if len(refs) != slots.count:
        raise malformed(node, f"takes {len(refs)} tensors, not {slots.count}")
    index, value, shape = (
        None if i is None else refs[i] for i in (slots.index, slots.value, slots.shape)
    )
    return ArrayUse(node, slots.action, refs[slots.contents], index or _NONE, value or _NONE, shape)


@dataclass(eq=False)
class TracedArray:
    """One TensorArray or TensorList.

    Args:
        node: the node that creates it.
        dtype: the type of its elements.
        users: the ops that use it, in graph order.
        passing: the names of the nodes that forward its contents.
    """

    node: Node
    dtype: DType
    users: list[ArrayUse] = field(default_factory=list)
    passing: set[str] = field(default_factory=set)

    def doing(self, *actions: str) -> list[ArrayUse]:
        """Return the users with the given actions."""
        return [user for user in self.users if user.action in actions]

    @property
    def is_list(self) -> bool:
        """Whether it is a TensorList, whose handle stands for its contents."""
        return self.node.op != _ARRAY

    @property
    def contents(self) -> Ref:
        """The tensor that stands for its first contents."""
        return Ref(self.node.name, 0 if self.is_list else 1)

    @property
    def size(self) -> Ref | None:
        """The number of elements that it has first; None for an empty list, or a given tensor."""
        slot = _NEW_LISTS[self.node.op][1] if self.is_list else 0
        return None if slot is None else self.node.data_inputs[slot]

    @property
    def given(self) -> Ref | None:
        """The tensor with the elements that it has first, or None."""
        slot = _NEW_LISTS[self.node.op][2] if self.is_list else None
        return None if slot is None else self.node.data_inputs[slot]

    @property
    def lengths(self) -> Ref | None:
        """The lengths of the parts of the given tensor, or None if its rows are the elements."""
        slot = _NEW_LISTS[self.node.op][3] if self.is_list else None
        return None if slot is None else self.node.data_inputs[slot]

    @property
    def shapes(self) -> list[Ref]:
        """The tensors with the shape of an element."""
        own = [self.node.data_inputs[_NEW_LISTS[self.node.op][0]]] if self.is_list else []
        return own + [user.shape for user in self.users if user.shape is not None]

    @property
    def is_dynamic(self) -> bool:
        """Whether its number of elements may change."""
        return self.is_list or self.node.attr_bool("dynamic_size", False)

    def grows_by(self, user: ArrayUse) -> bool:
        """Return whether a write beyond the end makes it longer."""
        if self.is_list:
            return user.node.attr_bool("resize_if_index_out_of_bounds", False)
        return self.is_dynamic


def traced_arrays(graph: Graph, live: Iterable[str]) -> list[TracedArray]:
    """Return the TensorArrays and TensorLists that live nodes use."""
    needed = frozenset(live)
    nodes = [n for n in graph if n.name in needed]
    readers: dict[Edge, list[tuple[Node, int]]] = {}
    for node in nodes:
        for place, ref in enumerate(node.data_inputs):
            readers.setdefault(edge(ref), []).append((node, place))
        if (node.op.startswith("TensorArray") or is_list_op(node.op)) and node.op not in ARRAY_OPS:
            raise cannot_raise(node, "has no form as an op on tensors")
    order = {n.name: i for i, n in enumerate(nodes)}
    owner: dict[str, TracedArray] = {}
    arrays = [_traced(node, readers, owner) for node in nodes if node.op in NEW_ARRAYS]
    for array in arrays:
        array.users.sort(key=lambda user: order[user.node.name])
    return arrays


def _traced(
    node: Node, readers: Mapping[Edge, list[tuple[Node, int]]], owner: dict[str, TracedArray]
) -> TracedArray:
    count = 1 if node.op == _ARRAY else 3 if node.op == "TensorListSplit" else 2
    if len(node.data_inputs) != count:
        raise malformed(node, f"takes {len(node.data_inputs)} tensors, not {count}")
    array = TracedArray(node, node.attr_dtype("dtype" if node.op == _ARRAY else "element_dtype"))
    if array.dtype.numpy is None or array.dtype.numpy.kind == "O":
        raise cannot_raise(node, f"holds {array.dtype.short}, which has no zeros")
    waiting: list[tuple[Edge, bool]] = [(edge(array.contents), False)]
    if not array.is_list:
        waiting.append(((node.name, 0), True))
    seen = set(waiting)
    while waiting:
        tensor, is_handle = waiting.pop()
        for user, place in readers.get(tensor, ()):
            for item in _followed(array, user, place, owner, is_handle=is_handle):
                if item not in seen:
                    seen.add(item)
                    waiting.append(item)
    return array


def _followed(
    array: TracedArray, user: Node, place: int, owner: dict[str, TracedArray], *, is_handle: bool
) -> list[tuple[Edge, bool]]:
    """Return the outputs by which a node forwards an array, as (tensor, whether it is a handle)."""
    what = "TensorList" if array.is_list else "TensorArray"
    if user.op in PASSING and (place == 0 or user.op in MERGES):
        if owner.setdefault(user.name, array) is not array:
            raise cannot_raise(user, f"joins two {what}s")
        if not is_handle:
            array.passing.add(user.name)
        count = 2 if user.op in SWITCHES else 1
        return [((user.name, i), is_handle) for i in range(count)]
    slots = (_LISTS if array.is_list else _ARRAYS).get(user.op)
    if slots is None or place != (0 if is_handle else slots.contents):
        raise cannot_raise(user, f"takes a {what} as its input {place}")
    use = _use(user, slots)
    if not (is_handle or array.is_list):
        return []
    array.users.append(use)
    return [((user.name, 0), False)] if use.action in _CHANGING else []


_INT32: Final = attr.dtype(DType.INT32)
_MOST: Final = (1 << 31) - 1

Size = int | Ref
"""A size, -1 if the first element determines it, or a scalar int32 tensor with the size."""


class Form(Struct, frozen=True):
    """How a tensor stores the elements of a TensorArray or TensorList.

    Args:
        element: the sizes of an element; None while unknown.
        joined: whether elements are concatenated along their first axis, instead of stacked along a
            new first axis.
        fresh: names of Scatter nodes that set the whole content of the array.
    """

    element: tuple[Size, ...] | None
    joined: bool = False
    fresh: frozenset[str] = frozenset()


class ArrayNodes:
    """Nodes that replace one TensorArray and its users.

    Args:
        array: the array.
        form: how a tensor stores it.
        names: generator of new names.
    """

    def __init__(self, array: TracedArray, form: Form, names: FreshNames) -> None:
        self._array = array
        self._form = form
        self._names = names
        self._kind = attr.dtype(array.dtype)
        self.nodes: list[Node] = []
        self.contents = Ref("")
        """Initial content of the array."""
        self.outputs: dict[Edge, Ref] = {}
        """Tensors that replace further outputs of users."""

    def replaced(self) -> Sequence[Node]:
        """Return all nodes; those that replace a user have its name."""
        self._begin()
        for user in self._array.users:
            self._REPLACED[user.action](self, user)
        return self.nodes

    def _begin(self) -> None:
        node, element = self._array.node, self._form.element
        if self._array.given is not None:
            self.contents = self._parts(node, self._array.given, self._array.lengths)
            return
        name = self._names.name(f"{node.name}/elements")
        self.contents = Ref(name)
        size = self._array.size or self._constant(node, "none", np.int32(0))
        # Only the size indicates the loop in which an array is created.
        waits = dict.fromkeys((*node.control_inputs, control(size.node)))
        if element is None:
            kinds = {"dtype": self._kind, "shape": attr.shape(None)}
            self.nodes.append(Node(name, "Placeholder", tuple(waits), "", kinds))
            return
        dims = [0 if size == -1 else size for size in element]
        sizes = (0, *dims[1:]) if self._form.joined else (size, *dims)
        zero = np.zeros((), self._array.dtype.numpy)
        inputs = (self._sizes(node, sizes), self._constant(node, "zero", zero))
        kinds = {"T": self._kind, "index_type": _INT32}
        controls = waits if self._form.joined else node.control_inputs
        self.nodes.append(Node(name, "Fill", (*inputs, *controls), "", kinds))

    def _write(self, user: ArrayUse) -> None:
        node, contents = user.node, user.contents
        if self._form.joined:
            self._put(node, "ConcatV2", *self._concatenation(node, contents, user.value))
            return
        if self._array.grows_by(user) and self._form.element is not None:
            contents = self._grown(node, contents, user.index)
        if -1 in (self._form.element or ()):
            contents = self._widened(node, contents, self._expanded(node, user.value, 0))
        place = self._add(
            node, "place", "Reshape",
            (user.index, self._constant(node, "one", np.array([1, 1], "i4"))),
            T=_INT32, Tshape=_INT32,
        )  # fmt: skip
        row = self._expanded(node, user.value, 0)
        self._put(node, "TensorScatterUpdate", (contents, place, row), self._indexed())

    def _concatenation(
        self, node: Node, one: Ref, other: Ref
    ) -> tuple[tuple[Ref, ...], dict[str, AttrValue]]:
        """Return the inputs and attributes of a concatenation along the first axis."""
        axis = self._constant(node, "axis", np.int32(0))
        return (one, other, axis), {"N": attr.integer(2), "T": self._kind, "Tidx": _INT32}

    def _push(self, user: ArrayUse) -> None:
        row = user.value if self._form.joined else self._expanded(user.node, user.value, 0)
        inputs, kinds = self._concatenation(user.node, user.contents, row)
        self._put(user.node, "ConcatV2", inputs, kinds)

    def _pop(self, user: ArrayUse) -> None:
        self._refuse_joined(user.node)
        node = user.node
        count, one = self._count(node, user.contents), self._constant(node, "one", np.int32(1))
        last = self._add(node, "last", "Sub", (count, one), T=_INT32)
        row = self._names.name(f"{node.name}/row")
        axis = self._constant(node, "axis", np.int32(0))
        self.nodes.append(Node(row, "GatherV2", (user.contents, last, axis), "", self._gathered()))
        self.outputs[node.name, 1] = Ref(row)
        self._put(node, "Identity", (self._first(node, user.contents, last),), {"T": self._kind})

    def _resize(self, user: ArrayUse) -> None:
        self._refuse_joined(user.node)
        node, kinds = user.node, {"T": _INT32}
        count = self._count(node, user.contents)
        kept = self._add(node, "kept", "Minimum", (count, user.index), **kinds)
        first = self._first(node, user.contents, kept)
        one = self._constant(node, "one", np.int32(1))
        last = self._add(node, "end", "Sub", (user.index, one), **kinds)
        grown = self._grown(node, first, last)
        self._put(node, "Identity", (grown,), {"T": self._kind})

    def _first(self, node: Node, contents: Ref, count: Ref) -> Ref:
        """Return the first elements of an array."""
        zero, one = (self._constant(node, n, np.int32(i)) for i, n in enumerate(("start", "step")))
        kinds = {"Tidx": _INT32}
        places = self._add(node, "places", "Range", (zero, count, one), **kinds)
        axis = self._constant(node, "axis", np.int32(0))
        return self._add(node, "first", "GatherV2", (contents, places, axis), **self._gathered())

    def _shape(self, user: ArrayUse) -> None:
        node = user.node
        kind = attr.dtype(node.attr_dtype("shape_type", DType.INT32))
        sizes = self._add(node, "sizes", "Shape", (user.contents,), T=self._kind, out_type=kind)
        start, end, step = (
            self._constant(node, n, np.array([i], np.int32))
            for n, i in (("start", 1), ("end", 0), ("step", 1))
        )
        names = ("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
        masks = {**dict.fromkeys(names, attr.integer(0)), "end_mask": attr.integer(1)}
        self._put(
            node, "StridedSlice", (sizes, start, end, step), {"T": kind, "Index": _INT32, **masks}
        )

    def _grown(self, node: Node, flow: Ref, index: Ref) -> Ref:
        """Append zeros to the contents so that they include an index."""
        nothing, one = (self._constant(node, n, np.int32(i)) for i, n in enumerate(("none", "one")))
        end = self._add(node, "end", "AddV2", (index, one), T=_INT32)
        more = self._add(node, "more", "Sub", (end, self._count(node, flow)), T=_INT32)
        lacking = self._add(node, "lacking", "Maximum", (more, nothing), T=_INT32)
        rank = 1 + len(self._form.element or ())
        last = np.zeros((rank, 2), np.int32)
        last[0, 1] = 1
        where = self._constant(node, "last", last)
        pads = self._add(node, "pads", "Mul", (lacking, where), T=_INT32)
        return self._add(node, "grown", "Pad", (flow, pads), T=self._kind, Tpaddings=_INT32)

    def _widened(self, node: Node, flow: Ref, row: Ref) -> Ref:
        """Append zeros to each axis of the contents that is shorter than that of a row."""
        kinds = {"T": self._kind, "out_type": _INT32}
        ends = [self._add(node, "sizes", "Shape", (ref,), **kinds) for ref in (row, flow)]
        more = self._add(node, "more", "Sub", tuple(ends), T=_INT32)
        nothing = self._constant(node, "none", np.int32(0))
        lacking = self._add(node, "lacking", "Maximum", (more, nothing), T=_INT32)
        column = self._expanded(node, lacking, 1, DType.INT32)
        last = self._constant(node, "last", np.array([[0, 1]], np.int32))
        pads = self._add(node, "pads", "Mul", (column, last), T=_INT32)
        return self._add(node, "widened", "Pad", (flow, pads), T=self._kind, Tpaddings=_INT32)

    def _gather(self, user: ArrayUse) -> None:
        self._refuse_joined(user.node)
        axis = self._constant(user.node, "axis", np.int32(0))
        self._put(user.node, "GatherV2", (user.contents, user.index, axis), self._gathered())

    def _gathered(self) -> dict[str, AttrValue]:
        kinds = {"Tparams": self._kind, "Tindices": _INT32, "Taxis": _INT32}
        return {**kinds, "batch_dims": attr.integer(0)}

    def _stack(self, user: ArrayUse) -> None:
        self._refuse_joined(user.node)
        self._put(user.node, "Identity", (user.contents,), {"T": self._kind})

    def _scatter(self, user: ArrayUse) -> None:
        node = user.node
        self._refuse_joined(node)
        if node.name in self._form.fresh:
            self._put(node, "Identity", (user.value,), {"T": self._kind})
            return
        if self._array.grows_by(user):
            raise cannot_raise(node, "puts elements into a TensorArray that grows")
        places = self._expanded(node, user.index, 1, DType.INT32)
        inputs = (user.contents, places, user.value)
        self._put(node, "TensorScatterUpdate", inputs, self._indexed())

    def _concat(self, user: ArrayUse) -> None:
        node = user.node
        if self._form.joined:
            self._put(node, "Identity", (user.contents,), {"T": self._kind})
            return
        element = self._form.element
        shape = self._sizes(node, (-1, *(element or ())[1:]))
        kinds = {"T": self._kind, "Tshape": _INT32}
        self._put(node, "Reshape", (user.contents, shape), kinds)

    def _split(self, user: ArrayUse) -> None:
        self._refuse_joined(user.node)
        parts = self._parts(user.node, user.value, user.index)
        self._put(user.node, "Identity", (parts,), {"T": self._kind})

    def _parts(self, node: Node, value: Ref, lengths: Ref | None) -> Ref:
        """Return the elements of a tensor: its rows, or parts of one length."""
        if lengths is None:
            return value
        shape = self._sizes(node, (-1, *(self._form.element or ())))
        kinds = {"T": self._kind, "Tshape": _INT32}
        return self._add(node, "parts", "Reshape", (value, shape), **kinds)

    def _size(self, user: ArrayUse) -> None:
        self._refuse_joined(user.node)
        count = self._count(user.node, user.contents)
        self._put(user.node, "Identity", (count,), {"T": _INT32})

    def _refuse_joined(self, node: Node) -> None:
        if self._form.joined:
            reason = "reads elements of different sizes from a TensorArray"
            raise cannot_raise(node, reason, "give all elements one shape")

    def _count(self, node: Node, flow: Ref) -> Ref:
        """Return the number of elements."""
        if not self._array.is_dynamic:
            return self._array.node.data_inputs[0]
        sizes = self._add(node, "sizes", "Shape", (flow,), T=self._kind, out_type=_INT32)
        first, axis = (self._constant(node, n, np.int32(0)) for n in ("first", "axis"))
        kinds = {"Tparams": _INT32, "Tindices": _INT32, "Taxis": _INT32}
        kinds["batch_dims"] = attr.integer(0)
        return self._add(node, "count", "GatherV2", (sizes, first, axis), **kinds)

    def _sizes(self, node: Node, sizes: Sequence[Size]) -> Ref:
        """Return a vector of sizes."""
        if any(isinstance(size, int) and size > _MOST for size in sizes):
            raise cannot_raise(node, "has elements of a size beyond 32 bits")
        if all(isinstance(size, int) for size in sizes):
            return self._constant(node, "sizes", np.array(sizes, np.int32))
        parts = tuple(
            self._constant(node, "size", np.int32(s)) if isinstance(s, int) else s for s in sizes
        )
        kinds = {"N": attr.integer(len(parts)), "T": _INT32, "axis": attr.integer(0)}
        return self._add(node, "sizes", "Pack", parts, **kinds)

    def _expanded(self, node: Node, value: Ref, axis: int, kind: DType | None = None) -> Ref:
        where = self._constant(node, "axis", np.int32(axis))
        dtype = self._kind if kind is None else attr.dtype(kind)
        return self._add(node, "row", "ExpandDims", (value, where), T=dtype, Tdim=_INT32)

    def _indexed(self) -> dict[str, AttrValue]:
        return {"T": self._kind, "Tindices": _INT32}

    def _constant(self, node: Node, what: str, value: object) -> Ref:
        name = self._names.name(f"{node.name}/{what}")
        self.nodes.append(constant(name, Tensor.of(np.asarray(value))))
        return Ref(name)

    def _add(
        self, node: Node, what: str, op: str, inputs: tuple[Ref, ...], **attrs: AttrValue
    ) -> Ref:
        name = self._names.name(f"{node.name}/{what}")
        self.nodes.append(Node(name, op, inputs, "", attrs))
        return Ref(name)

    def _put(
        self, node: Node, op: str, inputs: tuple[Ref, ...], attrs: Mapping[str, AttrValue]
    ) -> None:
        self.nodes.append(Node(node.name, op, (*inputs, *node.control_inputs), "", attrs))

    _REPLACED: Final[Mapping[str, Callable[[ArrayNodes, ArrayUse], None]]] = {
        "write": _write,
        "read": _gather,
        "gather": _gather,
        "stack": _stack,
        "scatter": _scatter,
        "concat": _concat,
        "split": _split,
        "push": _push,
        "pop": _pop,
        "resize": _resize,
        "size": _size,
        "shape": _shape,
    }
