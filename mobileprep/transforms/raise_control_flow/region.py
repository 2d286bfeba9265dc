"""State of the conversion: nodes of a frame, replacements of tensors, functions, and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef, TensorShape
from mobileprep.graph.bypass import IDENTITIES, constant_behind
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, MERGES, NEXT_ITERATIONS, SWITCHES
from mobileprep.graph.opdefs.bodies import Body, function_of
from mobileprep.graph.opdefs.definitions import any_op_def, output_types, signature_of
from mobileprep.graph.reachability import without_dangling
from mobileprep.graph.refs import Edge, FreshNames, Ref, control, edge
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.shape_function import common
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of

# Unusually connected conditionals and unrolled loops are copied.
_COPIES: Final = 100_000
_COPIES_A_NODE: Final = 4
_EXPORT: Final = "export the graph again"


def cannot_raise(node: Node, reason: str, hint: str = "") -> UnsupportedError:
    """Create an error for a control flow node without a functional form."""
    message = f"raise_control_flow: node {node.name!r} ({node.op}) {reason}"
    return UnsupportedError(message, hint or "cut the graph after it, and feed its output")


def malformed(node: Node, reason: str) -> InvalidGraphError:
    """Create an error for a node that is invalid in control flow."""
    message = f"raise_control_flow: node {node.name!r} ({node.op}) {reason}"
    return InvalidGraphError(message, _EXPORT)


@dataclass
class Raising:
    """A graph whose control flow is being converted.

    Args:
        graph: the original graph.
        live: the names of nodes whose tensors the outputs need.
        outputs: the outputs.
        fed: the names of nodes whose tensors are fed.
        same: replacements of removed tensors.
        new_nodes: new nodes, by name.
        gives: the output types of a loop, by its name, known before its node is created.
    """

    graph: Graph
    live: frozenset[str]
    outputs: frozenset[Edge]
    fed: frozenset[str] = frozenset()
    same: dict[Edge, Ref] = field(default_factory=dict)
    new_nodes: dict[str, Node] = field(default_factory=dict)
    gives: dict[str, tuple[DType, ...]] = field(default_factory=dict)

    @cached_property
    def read(self) -> frozenset[Edge]:
        """The outputs, and the tensors that live nodes read."""
        inputs = (self.graph[name].data_inputs for name in self.live)
        return self.outputs | frozenset(edge(ref) for refs in inputs for ref in refs)

    def __post_init__(self) -> None:
        self.names = FreshNames([*self.graph.by_name, *self.graph.library.functions])
        self.raised = 0
        """Number of converted loops, conditionals, and TensorArrays."""
        self._copied = 0

    def node(self, name: str) -> Node | None:
        """Return a new node, or one of the original graph."""
        return self.new_nodes.get(name) or self.graph.get(name)

    def resolved(self, ref: Ref) -> Ref:
        """Return the current replacement of a tensor; for a control input, of its node."""
        if ref.is_control:
            replacement = self.same.get((ref.node, 0))
            return ref if replacement is None else control(self.resolved(replacement).node)
        passed: list[Edge] = []
        while (replacement := self.same.get(edge(ref))) is not None:
            passed.append(edge(ref))
            ref = replacement
        for tensor in passed[:-1]:
            self.same[tensor] = ref
        return ref

    def constant(self, ref: Ref) -> Node | None:
        """Return the constant whose value a tensor has if it is available, or None."""
        seen = 0
        while seen <= len(self.graph):
            ref = self.resolved(ref)
            node = self.node(ref.node)
            if node is None or node.name in self.fed:
                return None
            if node.op == "Const":
                return node
            if node.op not in IDENTITIES and node.op not in SWITCHES:
                return None
            if not node.data_inputs:
                return None
            ref = node.data_inputs[0]
            seen += 1
        return None

    def value(self, ref: Ref) -> Tensor | None:
        """Return the elements of a tensor if they are constant or follow from shapes, or None."""
        constant = self.constant(ref)
        if constant is not None:
            return constant.attr_tensor("value")
        ref = self.resolved(ref)
        array = self._static.value(ref) if ref.node in self.graph else None
        return None if array is None else Tensor.of(array)

    @cached_property
    def _static(self) -> StaticValues:
        return StaticValues(
            self.graph.by_name, partial(shape_of, infer_shapes(self.graph)), self.fed
        )

    def type_of(self, ref: Ref) -> DType:
        """Return the element type of a tensor."""
        if ref.index < len(self.gives.get(ref.node, ())):
            return self.gives[ref.node][ref.index]
        node = self.node(ref.node)
        if node is None:
            message = f"raise_control_flow: the node {ref.node!r} does not exist"
            raise InvalidGraphError(message, _EXPORT)
        definition = signature_of(node, self.graph.library)
        types = [] if definition is None else output_types(node, definition)
        if ref.index >= len(types):
            raise cannot_raise(node, f"has an output {ref.index} whose type is not known")
        kind = types[ref.index]
        return DType(kind.value - 100) if kind.is_ref else kind

    def count_copies(self, count: int) -> None:
        """Raise an error if copies of branches and loops exceed the limit."""
        self._copied += count
        most = _COPIES_A_NODE * len(self.graph) + _COPIES
        if self._copied > most:
            message = f"raise_control_flow: its loops and branches make more than {most:,} nodes"
            raise UnsupportedError(message, "unroll less, or simplify the graph's conditionals")


class Slice(Struct, frozen=True):
    """Part of a region that some tensors need.

    Args:
        nodes: nodes inside, inputs before consumers, with resolved inputs and without control
            inputs.
        inputs: the tensors from outside, in the order of their use.
        results: the requested tensors, as they are named inside.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Ref, ...]
    results: tuple[Ref, ...]


def upstream(
    work: Raising,
    targets: Iterable[Ref],
    inside: Callable[[Ref], Ref | None],
    outside: Callable[[Ref], Ref] = lambda ref: ref,
) -> Slice:
    """Return the part of a region that some tensors need, with copies of outside constants.

    Args:
        inside: returns the name of a resolved tensor inside the slice, or None if it comes from
            outside.
        outside: returns the replacement of a tensor from outside.
    """
    nodes: dict[str, Node] = {}
    inputs: dict[Ref, None] = {}
    mapping: dict[Ref, Ref] = {}
    requested = list(targets)
    stack: list[tuple[Ref, bool]] = [(ref, False) for ref in reversed(requested)]
    entered: set[str] = set()
    while stack:
        ref, done = stack.pop()
        node = _own(work, ref, inside, mapping)
        if node is None:
            mapping[ref] = outside(mapping[ref])
            inputs[mapping[ref]] = None
            continue
        if done:
            refs = tuple(mapping[r] for r in node.data_inputs)
            nodes[node.name] = node if refs == node.inputs else node.with_inputs(refs)
        elif node.name not in entered:
            entered.add(node.name)
            stack.append((ref, True))
            stack += [(r, False) for r in reversed(node.data_inputs)]
    work.count_copies(len(nodes))
    return Slice(tuple(nodes.values()), tuple(inputs), tuple(mapping[r] for r in requested))


def _own(
    work: Raising, ref: Ref, inside: Callable[[Ref], Ref | None], mapping: dict[Ref, Ref]
) -> Node | None:
    """Return the node of a tensor inside a slice; outside constants count as inside."""
    mapping[ref] = resolved = work.resolved(ref)
    own = inside(resolved)
    if own is not None:
        mapping[ref] = own
        return work.node(own.node)
    constant = work.constant(resolved)
    if constant is not None:
        mapping[ref] = Ref(constant.name)
    return constant


def in_order(nodes: Mapping[str, Node]) -> list[Node]:
    """Sort nodes so that inputs come before consumers; inputs outside ``nodes`` are ignored."""
    order: list[Node] = []
    state: dict[str, int] = {}
    for start in nodes:
        stack = [start]
        while stack:
            name = stack[-1]
            if state.get(name) == 2:
                stack.pop()
                continue
            waiting = [r.node for r in nodes[name].inputs if r.node in nodes]
            if name in state:
                state[name] = 2
                order.append(nodes[stack.pop()])
                if any(state[other] != 2 for other in waiting):
                    raise malformed(nodes[name], "depends on itself outside of a loop")
                continue
            state[name] = 1
            stack += [other for other in reversed(waiting) if other not in state]
    return order


def resolved_nodes(work: Raising, nodes: Sequence[Node]) -> dict[str, Node]:
    """Return nodes by name, with resolved inputs."""
    done = {}
    for node in nodes:
        refs = tuple(map(work.resolved, node.inputs))
        done[node.name] = node if refs == node.inputs else node.with_inputs(refs)
    return done


_STATELESS: Final = {"While": "StatelessWhile", "If": "StatelessIf"}


@dataclass
class Functions:
    """Functions to add to a graph's library."""

    work: Raising
    by_name: dict[str, Function] = field(default_factory=dict)
    stateful: set[str] = field(default_factory=set)

    def add(
        self, base_name: str, nodes: Sequence[Node], args: Sequence[Ref], rets: Sequence[Ref]
    ) -> AttrValue:
        """Create a function, and return the attribute that refers to it."""
        name = self.work.names.name(base_name.replace("/", "_"))
        nodes = list(without_dangling(nodes, {n.name for n in nodes}))
        own = FreshNames(n.name for n in nodes)
        params = {ref: Ref(own.name(f"arg_{i}")) for i, ref in enumerate(args)}
        results = [own.name(f"ret_{i}") for i in range(len(rets))]
        body = Body(
            tuple(params.values()),
            tuple(n.with_inputs(tuple(params.get(r, r) for r in n.inputs)) for n in nodes),
            tuple(params.get(r, r) for r in rets),
        )
        inputs = tuple(ArgDef(params[ref].node, self.work.type_of(ref)) for ref in args)
        outputs = tuple(
            ArgDef(result, self.work.type_of(ref))
            for result, ref in zip(results, rets, strict=True)
        )
        like = Function(OpDef(name, inputs, outputs))
        function = function_of(body, like, self.library)
        if any(self._is_stateful(node) for node in nodes):
            self.stateful.add(name)
            function = replace(function, signature=replace(function.signature, is_stateful=True))
        self.by_name[name] = function
        return AttrValue("func", FuncRef(name))

    @property
    def library(self) -> Library:
        """The graph's library with the new functions."""
        before = self.work.graph.library
        return Library({**before.functions, **self.by_name}, before.gradients)

    def op(self, kind: str, functions: Iterable[AttrValue]) -> str:
        """Return ``While`` or ``If``, or the stateless op if none of the functions has state."""
        used = any(func.value.name in self.stateful for func in functions)
        return kind if used else _STATELESS[kind]

    def _is_stateful(self, node: Node) -> bool:
        called = [v.value.name for v in node.attrs.values() if v.kind == "func"]
        functions = self.work.graph.library.functions
        if called:
            return any(
                name in self.stateful
                or (name in functions and functions[name].signature.is_stateful)
                for name in called
            )
        definition = any_op_def(node.op)
        return definition is None or definition.is_stateful


def types_of(work: Raising, refs: Iterable[Ref]) -> AttrValue:
    """Return the types of tensors as an attribute."""
    kinds = tuple(work.type_of(ref) for ref in refs)
    return AttrValue("list(type)", kinds) if kinds else AttrValue("list", ())


def attributes(**values: AttrValue) -> Mapping[str, AttrValue]:
    """Return attributes sorted by name, as in stored graphs."""
    return dict(sorted(values.items()))


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
        self._begins: dict[str, TensorShape] = {}
        self._shapes = self._settled()

    def of(self, ref: Ref) -> TensorShape:
        """Return the shape of a tensor."""
        return shape_of(self._shapes, ref)

    def value(self, ref: Ref) -> TensorShape:
        """Return the shape that a constant vector contains, or None."""
        tensor = constant_behind(self._graph, ref)
        if tensor is None or len(tensor.shape) != 1:
            return None
        return tuple(max(int(size), -1) for size in tensor.array())

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
        before, begin = shapes.get(name), self.of(first)
        if before is None or self._begins.get(name) != begin:
            # An earlier loop, which gives the initial value, may only be settled now.
            self._begins[name] = begin
            self._unknown.discard(name)
            return begin
        if name in self._unknown:
            return None
        after = common((begin, before, self.of(later)))
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
