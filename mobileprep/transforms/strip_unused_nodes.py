"""Remove nodes that the outputs do not need, and replace fed nodes with placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.errors import InvalidGraphError, MobileprepError, TransformError
from mobileprep.formats.dtypes import DType, dtype_from_text
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.reachability import closure, name_hint, without_dangling
from mobileprep.graph.refs import parse_ref
from mobileprep.ops.shape_function import ShapeConflictError, merge
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

if TYPE_CHECKING:
    from mobileprep.ops.shape_inference import Shapes

    _Shapes = Callable[[], Mapping[str, Shapes]]

_NAME = "strip_unused_nodes"


@transform(_NAME)
class StripUnusedNodes(Transform, frozen=True):
    """Keep only the nodes that the outputs need, and all inputs.

    A fed node that is not a Placeholder becomes one. Its element type is the first available of the
    type for its name, the type of its op, and the type for all. (The original prefers the type for
    all to that of the op, and so creates graphs that fail to load.) Without a shape, the original
    creates scalars; a recipe uses the shape recorded in the graph, or an unknown one.

    Source: ``strip_unused_nodes`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Removes every node that the outputs do not need. Inputs that are not placeholders "
        "become placeholders of the type and shape given here."
    )
    of_graph_transform_tool = True

    type: Annotated[
        str,
        Option(
            "The element type of new placeholders, by its short name in TensorFlow: `float`, "
            "`int32`, `uint8`."
        ),
    ] = "float"
    shape: Annotated[
        str,
        Option(
            "The shape of new placeholders, sizes separated by commas: `1,299,299,3`. Empty for "
            "a scalar."
        ),
    ] = ""
    name: Annotated[
        tuple[str, ...],
        Option(
            "An input with a type and shape of its own. Repeated, in parallel with "
            "`type_for_name` and `shape_for_name`."
        ),
    ] = ()
    type_for_name: Annotated[
        tuple[str, ...],
        Option("The element type for the `name` at the same position."),
    ] = ()
    shape_for_name: Annotated[
        tuple[str, ...],
        Option("The shape for the `name` at the same position."),
    ] = ()

    def apply(self, graph: Graph, context: Context) -> Result:
        """Keep the needed nodes in their order."""
        fed = {parse_ref(text).node for text in context.inputs}
        needed = _needed(graph, context.outputs, fed) | fed
        # A fed node needs no inputs, and its inputs may have been removed.
        remaining = [
            replace(n, inputs=()) if n.inputs and n.name in fed else n
            for n in graph
            if n.name in needed
        ]
        removed = len(graph) - len(remaining)
        replaced = [n for n in remaining if n.name in fed and n.op != "Placeholder"]
        if replaced:
            remaining = self._with_placeholders(remaining, replaced, graph, context)
        missing = sorted(name for name in fed if name not in graph)
        warnings = tuple(f"{_NAME}: the input {name!r} is not in the graph" for name in missing)
        if not (removed or replaced):
            return Result(graph, warnings=warnings)
        nodes = without_dangling(remaining, needed) if removed else remaining
        return Result(graph.with_nodes(nodes), removed + len(replaced), warnings=warnings)

    def _with_placeholders(
        self, nodes: list[Node], replaced: Iterable[Node], graph: Graph, context: Context
    ) -> list[Node]:
        used = _used_outputs(nodes, {n.name for n in replaced})
        shapes = cache(lambda: _inferred(graph))
        new: dict[str, Node] = {}
        for node in replaced:
            index = _only_output(node, used[node.name])
            dtype = self._dtype(node, _op_dtype(node, index, graph))
            shape = self._shape(node, index, shapes, context)
            attrs = {"dtype": attr.dtype(dtype), "shape": attr.shape(shape)}
            new[node.name] = Node(node.name, "Placeholder", attrs=attrs)
        return [new.get(n.name) or _fed_by(n, new) for n in nodes]

    def _dtype(self, node: Node, op_dtype: DType | None) -> DType:
        listed = self._for_name(node.name, "type_for_name", self.type_for_name)
        if listed is None and op_dtype is not None:
            return op_dtype
        text = self.type if listed is None else listed
        dtype = dtype_from_text(text)
        if dtype is None:
            hint = "an element type's short name, such as float, int32 or uint8"
            raise refuse(_NAME, f"the type {text!r} is not known", hint)
        return dtype

    def _shape(self, node: Node, index: int, shapes: _Shapes, context: Context) -> TensorShape:
        listed = self._for_name(node.name, "shape_for_name", self.shape_for_name)
        text = self.shape if listed is None else listed
        if text:
            return _shape_from_text(text)
        return () if context.tf115 else _recorded_shape(node, index, shapes)

    def _for_name(self, node: str, option: str, values: tuple[str, ...]) -> str | None:
        if len(values) != len(self.name):
            message = f"there are {len(self.name)} 'name' and {len(values)} {option!r} parameters"
            hint = f"give one {option} for every name: name=image, {option}=..."
            raise refuse(_NAME, message, hint)
        # If a name is repeated, the last value wins.
        return dict(zip(self.name, values, strict=True)).get(node)


def _inferred(graph: Graph) -> Mapping[str, Shapes]:
    from mobileprep.ops.shape_inference import infer_shapes  # slow to import and rarely needed

    return infer_shapes(graph)


def _needed(graph: Graph, outputs: Iterable[str], fed: set[str]) -> set[str]:
    roots = [parse_ref(text).node for text in outputs]
    for name in roots:
        if name not in graph and name not in fed:
            message = f"the output {name!r} is not in the graph"
            raise refuse(_NAME, message, name_hint(graph, name, "output"))

    def inputs(name: str) -> Iterable[str]:
        node = graph.get(name)
        if name in fed or node is None:
            return ()  # a missing input is reported by the check after every step
        return (r.node for r in node.inputs)

    return closure(roots, inputs)


def _used_outputs(nodes: Iterable[Node], names: set[str]) -> Mapping[str, set[int]]:
    used: dict[str, set[int]] = {name: set() for name in names}
    for node in nodes:
        if node.name in names:
            continue
        for ref in node.inputs:
            if ref.node in names and not ref.is_control:
                used[ref.node].add(ref.index)
    return used


def _only_output(node: Node, used: set[int]) -> int:
    if len(used) > 1:
        listed = ", ".join(str(i) for i in sorted(used))
        message = f"the outputs {listed} of the input {node.name!r} ({node.op}) are all used"
        raise refuse(_NAME, message, "name the nodes that take them as inputs of the graph instead")
    return next(iter(used), 0)


def _fed_by(node: Node, placeholders: Mapping[str, Node]) -> Node:
    """Replace other output indices of placeholders, which have a single output, with 0."""
    inputs = tuple(
        replace(r, index=0) if r.index > 0 and r.node in placeholders else r for r in node.inputs
    )
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def _op_dtype(node: Node, index: int, graph: Graph) -> DType | None:
    definition = signature_of(node, graph.library)
    if definition is None:
        return None
    try:
        types = output_types(node, definition)
    except MobileprepError:
        return None
    return types[index].base if index < len(types) else None


def _recorded_shape(node: Node, index: int, shapes: _Shapes) -> TensorShape:
    """Return the recorded shape of an output, unless it conflicts with the inferred one."""
    recorded = node.attrs.get("_output_shapes")
    if recorded is None or recorded.kind != "list(shape)" or index >= len(recorded.value):
        return None
    try:
        inferred = shapes()[node.name][index]
    except (InvalidGraphError, IndexError):
        return None  # the removed part of the graph may be invalid
    try:
        return merge(inferred, recorded.value[index])
    except ShapeConflictError:
        return inferred


def _shape_from_text(text: str) -> TensorShape:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise _bad_shape(text) from error
    if any(size < -1 or size >= 1 << 63 for size in sizes):
        raise _bad_shape(text)
    return sizes


def _bad_shape(text: str) -> TransformError:
    hint = 'sizes divided by commas, such as "1,299,299,3"'
    return refuse(_NAME, f"the shape {text!r} cannot be understood", hint)
