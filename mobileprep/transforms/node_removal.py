"""Remove nodes that nothing needs, nodes of given ops or without effect, and control inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Final

import numpy as np
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.errors import InvalidGraphError, MobileprepError, TransformError
from mobileprep.formats.dtypes import DType, dtype_from_text
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import (
    FED_OR_FETCHED,
    IDENTITIES,
    Bypass,
    Guards,
    constant_behind,
    without_idle_controls,
)
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.pattern import Match, op
from mobileprep.graph.reachability import (
    closure,
    conditional_nodes,
    execution_order,
    name_hint,
    without_dangling,
)
from mobileprep.graph.refs import Ref, control, parse_ref
from mobileprep.graph.rewrite import Leave, Renames, Rewritten, Rule, rename_inputs, rewrite
from mobileprep.ops.shape_function import ShapeConflictError, merge
from mobileprep.ops.shape_inference import Shapes, infer_shapes
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.constants import lazy_shapes

_REMOVE_NODES: Final = "remove_nodes"


@transform(_REMOVE_NODES)
class RemoveNodes(Transform, frozen=True):
    """Remove nodes of the ops that are not fed or fetched, and not needed by branches or loops.

    The original also removes nodes that are part of control flow, so that the nodes of both
    branches run. A recipe also keeps nodes with control inputs, which the original loses, and
    removes all matching consumers of a node at once, where the original stops at the first that is
    fed or fetched.

    Source: ``remove_nodes`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Removes nodes of the given ops that have one input, and connects their consumers to that"
        " input. Inputs and outputs of the graph are kept."
    )
    of_graph_transform_tool = True

    op: Annotated[tuple[str, ...], Option("Op to remove; repeat it for several.", min_items=1)]
    max_inputs: Annotated[
        int,
        Option("Remove nodes with up to this many inputs; the first one replaces the node."),
    ] = 1

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the nodes of the given ops."""
        protected = context.protected
        if context.tf115:
            done = remove_in_rounds(graph, self.op, self.max_inputs, protected)
            return Result.of(done, graph, context)
        ready = without_idle_controls(graph, protected)
        bypass = Bypass(ready, protected)
        for node in execution_order(ready):
            tensors = node.data_inputs
            if node.op in self.op and 1 <= len(tensors) <= self.max_inputs:
                bypass.take_out(node, tensors[0])
        return Result.of(bypass.result(), graph, context)


def remove_in_rounds(
    graph: Graph, ops: Iterable[str], max_inputs: int, protected: Collection[str]
) -> Rewritten:
    """Return the graph without the nodes of some ops, each replaced by its first input."""
    matched = 0
    skipped: Counter[str] = Counter()
    for name in ops:
        # The number of inputs of any node limits the rounds.
        most = max((len(node.inputs) for node in graph if node.op == name), default=0)
        for count in range(1, min(max_inputs, most) + 1):
            while True:
                done = _one_round(graph, name, count, protected)
                graph = done.graph
                matched += done.matched
                if not done.matched:
                    break
            skipped.update(done.skipped)
    if not matched:
        return Rewritten(graph, skipped=skipped)
    nodes = without_dangling(graph.nodes, graph.by_name)
    return Rewritten(graph.with_nodes(nodes), matched, skipped)


def _one_round(graph: Graph, name: str, inputs: int, protected: Collection[str]) -> Rewritten:
    """Remove each node of the op whose inputs are not part of another match in this round."""
    guards = Guards(graph)
    renames = Renames()

    def check(match: Match) -> str:
        if match.node.name in protected:
            return ""
        return guards.reason(match.node, match.node.data_inputs[:1])

    def remove(match: Match) -> Sequence[Node] | Leave:
        node, first = match.node, match.root.inputs[0].node
        if node.name in protected:
            return Leave(FED_OR_FETCHED)
        source = node.data_inputs[0]
        renames.tensor(Ref(node.name), source)
        renames.tensor(control(node.name), control(source.node))
        others = [n for n in match.nodes if n not in (node, first) and n.name in match.used_outside]
        return [first, *others]

    pattern = op(name, *["*"] * inputs)
    rule = Rule(pattern, remove, check, allow_inconsistencies=True)
    done = rewrite(graph, rule, protected)
    return Rewritten(rename_inputs(done.graph, renames), done.matched, done.skipped)


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
        self._shape = lazy_shapes(self._inferred)
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

    def _inferred(self) -> Mapping[str, Shapes]:
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


@transform("remove_control_dependencies")
class RemoveControlDependencies(Transform, frozen=True):
    """Remove control inputs, so that nodes only depend on nodes whose tensors they take.

    A node that takes no tensors keeps the control inputs that tie it to a branch or a loop. Without
    them, a constant of a branch that does not run would reach the Merge, and a constant of a loop's
    body would be outside of its frame. The original removes these too.

    Source: ``remove_control_dependencies`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Removes control inputs, except those that tie a node to a branch or a loop."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the control inputs that only order execution."""
        conditional = conditional_nodes(graph)
        nodes = []
        changed = tied = 0
        for node in graph:
            tensors = node.data_inputs
            if len(tensors) == len(node.inputs):
                nodes.append(node)
                continue
            inputs = tensors or tuple(r for r in node.inputs if r.node in conditional)
            tied += inputs is not tensors and bool(inputs)
            changed += len(inputs) < len(node.inputs)
            nodes.append(replace(node, inputs=inputs))
        skipped = {"its only tie to a branch or a loop": tied} if tied else {}
        return Result(graph.with_nodes(nodes) if changed else graph, changed, skipped)


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
        "Removes every node that the outputs do not need. Inputs that are not "
        "placeholders become placeholders of a given dtype and shape."
    )
    of_graph_transform_tool = True

    type: Annotated[
        str,
        Option("Dtype of new placeholders: `float`, `int32`, `uint8`, ..."),
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
            "Input with its own dtype and shape; repeat it together with `type_for_name` "
            "and `shape_for_name`."
        ),
    ] = ()
    type_for_name: Annotated[
        tuple[str, ...],
        Option("Dtype of the `name` at the same position."),
    ] = ()
    shape_for_name: Annotated[
        tuple[str, ...],
        Option("Shape of the `name` at the same position."),
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
        shapes = cache(lambda: infer_shapes(graph))
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
