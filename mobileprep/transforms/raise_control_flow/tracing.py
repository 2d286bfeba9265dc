"""TensorArrays of a graph, their users, and the nodes that forward their contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from mobileprep.graph.refs import Edge, Ref, edge
from mobileprep.ops.shape_function import common
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of
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


# Nested loops, and sizes that become unknown one after another, need several rounds; models have
# two or three of either.
_MOST_ROUNDS: Final = 24


class LoopShapes:
    """Shapes of a graph's tensors, including those in loops.

    Args:
        graph: the graph.
        feeds: shapes of tensors by name that override those of the graph.
    """

    def __init__(self, graph: Graph, feeds: Mapping[str, TensorShape] | None = None) -> None:
        self._graph = graph
        self._feeds = dict(feeds or {})
        self._heads = _heads(graph)
        self._unknown: set[str] = set()
        self._shapes = self._settled()

    def of(self, ref: Ref) -> TensorShape:
        """Return the shape of a tensor."""
        return shape_of(self._shapes, ref)

    def output_shapes(self, entered: Sequence[Ref], args: Sequence[Ref]) -> AttrValue:
        """Return the loop's shapes if any of them changes between iterations, or an empty list.

        Without them, TensorFlow assumes that the outputs have the shapes of the inputs.
        """
        shapes = [self.of(ref) for ref in args]
        if shapes[: len(entered)] == [self.of(ref) for ref in entered]:
            return AttrValue("list", ())
        return AttrValue("list(shape)", tuple(shapes))

    def _settled(self) -> Mapping[str, Shapes]:
        shapes: dict[str, TensorShape] = {}
        for _ in range(_MOST_ROUNDS):
            self._shapes = infer_shapes(self._graph, {**self._feeds, **shapes})
            after = {name: self._after(name, *ends, shapes) for name, ends in self._heads.items()}
            if after == shapes:
                return self._shapes
            shapes = after
        return infer_shapes(self._graph, self._feeds)

    def _after(
        self, name: str, first: Ref, later: Ref, shapes: Mapping[str, TensorShape]
    ) -> TensorShape:
        """Return a loop variable's shape after one more iteration, or its initial shape."""
        before = shapes.get(name)
        if name in self._unknown:
            return None
        if before is None:
            return self.of(first)
        after = common((self.of(first), before, self.of(later)))
        if after is None:
            self._unknown.add(name)
        return after


def _heads(graph: Graph) -> dict[str, tuple[Ref, Ref]]:
    """Return the initial value and the next value for each Merge at the head of a loop."""
    heads = {}
    for node in graph:
        if node.op not in MERGES or len(node.data_inputs) != 2:
            continue
        givers = [graph[r.node] for r in node.data_inputs]
        for first, later in (givers, givers[::-1]):
            if first.op not in ENTERS or later.op not in NEXT_ITERATIONS:
                continue
            if first.data_inputs and later.data_inputs:
                heads[node.name] = (first.data_inputs[0], later.data_inputs[0])
    return heads
