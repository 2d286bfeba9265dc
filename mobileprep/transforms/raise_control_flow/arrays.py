"""TensorArrays as tensors that loops carry: `[count, ...]`, or elements one behind another.

What orders the use of an array, its flow, becomes the tensor itself: whoever took the flow takes
what the array holds at that point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ops.shape_function import ShapeConflictError, merge
from mobileprep.transforms.raise_control_flow.array_facts import counts_up, fresh_scatters
from mobileprep.transforms.raise_control_flow.array_nodes import ArrayNodes, Form, Size
from mobileprep.transforms.raise_control_flow.loop_shapes import LoopShapes
from mobileprep.transforms.raise_control_flow.open_sizes import OpenSizes
from mobileprep.transforms.raise_control_flow.region import cannot_raise
from mobileprep.transforms.raise_control_flow.tracing import TracedArray, traced_arrays

# Elements of one array may be read from another.
_MOST_ROUNDS: Final = 8
_SHAPES: Final = "give the inputs' shapes, on which it depends"
_READING: Final = frozenset({"TensorArrayReadV3", "TensorArrayGatherV3", "TensorArraySizeV3"})
_JOINABLE: Final = frozenset({"TensorArrayWriteV3", "TensorArrayConcatV3"})


def without_arrays(graph: Graph, live: Iterable[str]) -> Graph:
    """The graph with tensors in place of the TensorArrays that live nodes use.

    Raises:
        InvalidGraphError: a node takes too few tensors.
        UnsupportedError: naming the array whose elements have no known shape, or the node that does
            what has no form as an op on tensors.
    """
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
        found = {array: _element(array, shapes) for array in arrays}
        if found == guesses:
            break
        guesses = found
    sizes = OpenSizes(draft)
    plans = []
    for array in arrays:
        form = _form(graph, array, guesses[array], fresh[array], sizes)
        plans.append(_Plan(array, form, None))
    return _replaced(graph, plans, sizes.nodes)


def _check_lengths(graph: Graph, array: TracedArray, live: frozenset[str]) -> None:
    for node in array.of_op("TensorArrayConcatV3"):
        takers = graph.consumers.get(node.name, ())
        if any(r == Ref(node.name, 1) for n in takers if n.name in live for r in n.data_inputs):
            raise cannot_raise(node, "tells the lengths of a TensorArray's elements")


@dataclass(frozen=True, eq=False)
class _Plan:
    """An array, how a tensor holds it, and what is believed of its elements until that is known."""

    array: TracedArray
    form: Form
    guess: TensorShape


def _replaced(graph: Graph, plans: Sequence[_Plan], more: Sequence[Node] = ()) -> Graph:
    """The graph with the nodes of all arrays replaced."""
    names = FreshNames([*graph.by_name, *(n.name for n in more)])
    instead: dict[str, Sequence[Node]] = {}
    contents: dict[Ref, Ref] = {}
    passing: dict[str, TracedArray] = {}
    for plan in plans:
        made = ArrayNodes(plan.array, plan.form, names)
        nodes = list(made.replaced())
        contents[Ref(plan.array.node.name, 1)] = made.contents
        if plan.guess is not None:
            nodes = [
                n.with_attrs(shape=attr.shape((-1, *plan.guess))) if n.op == "Placeholder" else n
                for n in nodes
            ]
        passing.update(dict.fromkeys(plan.array.passing, plan.array))
        own = {user.name for user in plan.array.users}
        instead.update(dict.fromkeys(own, ()))
        # The array itself stays for nodes that nobody needs, which take its handle.
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
    """What is known of the shape of an array's elements; None where that differs, or is nothing."""
    told = [array.node.attr_shape("element_shape")]
    told += [n.attr_shape("element_shape") for n in array.of_op("TensorArrayGatherV3")]
    rest = [n.attr_shape("element_shape_except0") for n in array.of_op("TensorArrayConcatV3")]
    told += [(-1, *shape) for shape in rest if shape is not None]
    told += [shapes.of(n.data_inputs[2]) for n in array.of_op("TensorArrayWriteV3")]
    for node in array.of_op("TensorArrayScatterV3"):
        shape = shapes.of(node.data_inputs[2])
        told.append(None if not shape else shape[1:])
    for node in array.of_op("TensorArraySplitV3"):
        told.append(_split_element(node, shapes))
    known: TensorShape = None
    for shape in told:
        try:
            known = merge(known, shape)
        except ShapeConflictError:
            return None
    return known


def _split_element(node: Node, shapes: LoopShapes) -> TensorShape:
    """The shape of each part, where all have one length."""
    value, lengths = (shapes.of(r) for r in node.data_inputs[1:3])
    if not value or not lengths or lengths[0] < 1 or value[0] < 0:
        raise cannot_raise(node, "cuts a tensor at places that are not known")
    return (value[0] // lengths[0], *value[1:])


def _form(
    graph: Graph,
    array: TracedArray,
    element: TensorShape,
    fresh: frozenset[str],
    sizes: OpenSizes,
) -> Form:
    """How a tensor can hold an array."""
    joined = _joined(graph, array, element)
    if joined is not None:
        return Form(joined, joined=True, fresh=fresh)
    if _is_given(array, fresh):
        return Form((), fresh=fresh)
    if element is None:
        raise cannot_raise(array.node, "has elements of unknown rank", _SHAPES)
    known: list[Size] = []
    for axis, size in enumerate(element):
        found = size if size >= 0 else sizes.of(array, axis, _element)
        is_joined = axis > 0 and bool(array.of_op("TensorArrayConcatV3"))
        if found is None and not is_joined and _is_written(array, fresh):
            found = -1
        if found is None:
            raise cannot_raise(array.node, f"has elements of unknown size along {axis}", _SHAPES)
        known.append(found)
    return Form(tuple(known), fresh=fresh)


def _is_written(array: TracedArray, fresh: frozenset[str]) -> bool:
    """Whether elements are written one by one, and the first decides the size of all."""
    if not array.node.attr_bool("identical_element_shapes", False):
        return False
    changing = [n for n in array.users if n.op not in _READING and n.name not in fresh]
    return bool(changing) and all(n.op == "TensorArrayWriteV3" for n in changing)


def _is_given(array: TracedArray, fresh: frozenset[str]) -> bool:
    """Whether an array holds nothing but the rows of one tensor."""
    changing = [n for n in array.users if n.op not in _READING]
    return bool(changing) and all(n.name in fresh for n in changing)


def _joined(graph: Graph, array: TracedArray, element: TensorShape) -> tuple[Size, ...] | None:
    """The sizes of elements, of any length, that are written in order and joined at the end."""
    if element is None or any(size < 0 for size in element[1:]) or element[:1] != (-1,):
        return None
    if not {n.op for n in array.users} <= _JOINABLE:
        return None
    writes = array.of_op("TensorArrayWriteV3")
    return (0, *element[1:]) if all(counts_up(graph, n.data_inputs[1]) for n in writes) else None
