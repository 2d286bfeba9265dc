"""TensorArrays of a graph, and the nodes on tensors that replace their users."""

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


# Number of inputs of each op; the first one is the handle.
_TAKEN: Final[Mapping[str, int]] = {
    "TensorArrayWriteV3": 4,
    "TensorArrayReadV3": 3,
    "TensorArrayGatherV3": 3,
    "TensorArrayScatterV3": 4,
    "TensorArrayConcatV3": 2,
    "TensorArraySplitV3": 4,
    "TensorArraySizeV3": 2,
}


_CHANGING: Final = frozenset({"TensorArrayWriteV3", "TensorArrayScatterV3", "TensorArraySplitV3"})


OPS: Final = frozenset(_TAKEN)


@dataclass(eq=False)
class TracedArray:
    """One TensorArray.

    Args:
        node: the node that creates it.
        dtype: the type of its elements.
        users: the ops that use it, in graph order.
        passing: the names of the nodes that forward its contents.
    """

    node: Node
    dtype: DType
    users: list[Node] = field(default_factory=list)
    passing: set[str] = field(default_factory=set)

    def of_op(self, op: str) -> list[Node]:
        """Return the users with the given op."""
        return [n for n in self.users if n.op == op]

    @property
    def is_dynamic(self) -> bool:
        """Whether writing beyond its end makes it longer."""
        return self.node.attr_bool("dynamic_size", False)


def traced_arrays(graph: Graph, live: Iterable[str]) -> list[TracedArray]:
    """Return the TensorArrays that live nodes use."""
    needed = frozenset(live)
    nodes = [n for n in graph if n.name in needed]
    readers: dict[Edge, list[tuple[Node, int]]] = {}
    for node in nodes:
        for place, ref in enumerate(node.data_inputs):
            readers.setdefault(edge(ref), []).append((node, place))
        if node.op.startswith("TensorArray") and node.op not in {*OPS, "TensorArrayV3"}:
            raise cannot_raise(node, "has no form as an op on tensors")
    order = {n.name: i for i, n in enumerate(nodes)}
    owner: dict[str, TracedArray] = {}
    arrays = [_traced(node, readers, owner) for node in nodes if node.op == "TensorArrayV3"]
    for array in arrays:
        array.users.sort(key=lambda n: order[n.name])
    return arrays


def _traced(
    node: Node, readers: Mapping[Edge, list[tuple[Node, int]]], owner: dict[str, TracedArray]
) -> TracedArray:
    array = TracedArray(node, node.attr_dtype("dtype"))
    if not node.data_inputs:
        raise malformed(node, "takes no size")
    if array.dtype.numpy is None or array.dtype.numpy.kind == "O":
        raise cannot_raise(node, f"holds {array.dtype.short}, which has no zeros")
    waiting: list[tuple[Edge, bool]] = [((node.name, 0), True), ((node.name, 1), False)]
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
    if user.op in PASSING and (place == 0 or user.op in MERGES):
        if owner.setdefault(user.name, array) is not array:
            raise cannot_raise(user, "joins two TensorArrays")
        if not is_handle:
            array.passing.add(user.name)
        count = 2 if user.op in SWITCHES else 1
        return [((user.name, i), is_handle) for i in range(count)]
    last = _TAKEN.get(user.op, 0) - 1
    if last < 0 or place != (0 if is_handle else last):
        raise cannot_raise(user, f"takes a TensorArray as its input {place}")
    if len(user.data_inputs) != last + 1:
        raise malformed(user, f"takes {len(user.data_inputs)} tensors, not {last + 1}")
    if not is_handle:
        return []
    array.users.append(user)
    return [((user.name, 0), False)] if user.op in _CHANGING else []


def flow_of(node: Node) -> Ref:
    """Return the contents that a user of an array reads or changes."""
    return node.data_inputs[-1]


_INT32: Final = attr.dtype(DType.INT32)
_MOST: Final = (1 << 31) - 1

Size = int | Ref
"""A size, -1 if the first element determines it, or a scalar int32 tensor with the size."""


class Form(Struct, frozen=True):
    """How a tensor stores the elements of a TensorArray.

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

    def replaced(self) -> Sequence[Node]:
        """Return all nodes; those that replace a user have its name."""
        self._begin()
        for user in self._array.users:
            self._REPLACED[user.op](self, user)
        return self.nodes

    def _begin(self) -> None:
        node, element = self._array.node, self._form.element
        name = self._names.name(f"{node.name}/elements")
        self.contents = Ref(name)
        # Only the size indicates the loop in which an array is created.
        waits = dict.fromkeys((*node.control_inputs, control(node.data_inputs[0].node)))
        if element is None:
            kinds = {"dtype": self._kind, "shape": attr.shape(None)}
            self.nodes.append(Node(name, "Placeholder", tuple(waits), "", kinds))
            return
        dims = [0 if size == -1 else size for size in element]
        sizes = (0, *dims[1:]) if self._form.joined else (node.data_inputs[0], *dims)
        zero = np.zeros((), self._array.dtype.numpy)
        inputs = (self._sizes(node, sizes), self._constant(node, "zero", zero))
        kinds = {"T": self._kind, "index_type": _INT32}
        controls = waits if self._form.joined else node.control_inputs
        self.nodes.append(Node(name, "Fill", (*inputs, *controls), "", kinds))

    def _write(self, node: Node) -> None:
        _, index, value, flow = node.data_inputs
        if self._form.joined:
            axis = self._constant(node, "axis", np.int32(0))
            kinds = {"N": attr.integer(2), "T": self._kind, "Tidx": _INT32}
            self._put(node, "ConcatV2", (flow, value, axis), kinds)
            return
        if self._array.is_dynamic and self._form.element is not None:
            flow = self._grown(node, flow, index)
        if -1 in (self._form.element or ()):
            flow = self._widened(node, flow, self._expanded(node, value, 0))
        place = self._add(
            node, "place", "Reshape", (index, self._constant(node, "one", np.array([1, 1], "i4"))),
            T=_INT32, Tshape=_INT32,
        )  # fmt: skip
        row = self._expanded(node, value, 0)
        self._put(node, "TensorScatterUpdate", (flow, place, row), self._indexed())

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

    def _gather(self, node: Node) -> None:
        self._refuse_joined(node)
        axis = self._constant(node, "axis", np.int32(0))
        kinds = {"Tparams": self._kind, "Tindices": _INT32, "Taxis": _INT32}
        kinds["batch_dims"] = attr.integer(0)
        self._put(node, "GatherV2", (flow_of(node), node.data_inputs[1], axis), kinds)

    def _scatter(self, node: Node) -> None:
        _, indices, value, flow = node.data_inputs
        self._refuse_joined(node)
        if node.name in self._form.fresh:
            self._put(node, "Identity", (value,), {"T": self._kind})
            return
        if self._array.is_dynamic:
            raise cannot_raise(node, "puts elements into a TensorArray that grows")
        places = self._expanded(node, indices, 1, DType.INT32)
        self._put(node, "TensorScatterUpdate", (flow, places, value), self._indexed())

    def _concat(self, node: Node) -> None:
        if self._form.joined:
            self._put(node, "Identity", (flow_of(node),), {"T": self._kind})
            return
        element = self._form.element
        shape = self._sizes(node, (-1, *(element or ())[1:]))
        kinds = {"T": self._kind, "Tshape": _INT32}
        self._put(node, "Reshape", (flow_of(node), shape), kinds)

    def _split(self, node: Node) -> None:
        element = self._form.element
        shape = self._sizes(node, (-1, *(element or ())))
        self._refuse_joined(node)
        kinds = {"T": self._kind, "Tshape": _INT32}
        self._put(node, "Reshape", (node.data_inputs[1], shape), kinds)

    def _size(self, node: Node) -> None:
        self._refuse_joined(node)
        count = self._count(node, flow_of(node))
        self._put(node, "Identity", (count,), {"T": _INT32})

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

    _REPLACED: Final[Mapping[str, Callable[[ArrayNodes, Node], None]]] = {
        "TensorArrayWriteV3": _write,
        "TensorArrayReadV3": _gather,
        "TensorArrayGatherV3": _gather,
        "TensorArrayScatterV3": _scatter,
        "TensorArrayConcatV3": _concat,
        "TensorArraySplitV3": _split,
        "TensorArraySizeV3": _size,
    }
