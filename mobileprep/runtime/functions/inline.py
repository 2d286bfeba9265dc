"""Inlining of function calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.graph import Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.bodies import Body, body_of
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.reachability import closure, colocated, without_dangling
from mobileprep.graph.refs import Ref, control, unique_name
from mobileprep.graph.tensor import Tensor

_SWITCHING: Final = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter", "_SwitchN"})
_DEEPEST: Final = 64


def inline_calls(
    graph: Graph,
    roots: Iterable[str],
    where: str,
    *,
    ops: Collection[str] | None = None,
    lower_control_flow: bool = False,
) -> Graph:
    """Replace every call by the nodes of its function, including nested calls.

    A node of a function gets the name "caller/node". A caller among the roots keeps its name, as an
    Identity or IdentityN of its results, so that they can still be fetched.

    Args:
        ops: the only ops that count as calls; by default ``CALLS``, and every op that is the name
            of a function.
        lower_control_flow: whether to convert functional loops and conditionals, too.
    """
    calls = {*CALLS, *graph.library.functions} if ops is None else ops
    lowered: Collection[str] = FUNCTIONAL if lower_control_flow else ()
    work = _Inliner(graph, frozenset(roots), where, calls, lowered)
    if not any(work.takes_apart(n) for n in graph):
        return graph
    check_growth(graph, work.functions_of, where)
    # In a graph with loops or branches, a call may only run where the call node is.
    is_switching = any(n.op in _SWITCHING for n in graph)
    for node in graph:
        beside = node.data_inputs[:1] if is_switching else ()
        work.add(node, _Site((), tuple(control(r.node) for r in beside)))
    return graph.with_nodes(work.finished())


class _Site(Struct, frozen=True):
    """The position of a node: its functions, and the control inputs for nodes without inputs."""

    callers: tuple[str, ...]
    anchor: tuple[Ref, ...]

    def inside(self, function: str, anchor: tuple[Ref, ...]) -> _Site:
        return _Site((*self.callers, function), anchor)


class _Inliner:
    def __init__(
        self,
        graph: Graph,
        roots: frozenset[str],
        where: str,
        calls: Collection[str],
        lowered: Collection[str],
    ) -> None:
        self._used_names = set(graph.by_name)
        self._library = graph.library
        self._roots = roots
        self._where = where
        self._calls = calls
        self._lowered = lowered
        self._nodes: list[Node] = []
        self._results: dict[str, tuple[Ref, ...]] = {}
        self._ends: dict[str, tuple[str, ...]] = {}

    def takes_apart(self, node: Node) -> bool:
        """Return whether a node is replaced by the nodes of its functions."""
        return node.op in self._lowered or bool(self._called(node)[0])

    def functions_of(self, node: Node) -> list[str]:
        """Return the functions that replace a node."""
        if node.op not in self._lowered:
            name = self._called(node)[0]
            return [name] if name else []
        named: list[str] = []
        for value in node.attrs.values():
            funcs = (value.value,) if value.kind == "func" else value.value
            if value.kind in ("func", "list(func)"):
                named += [f.name for f in funcs]
        return named

    def add(self, node: Node, site: _Site) -> None:
        """Add a node, or the nodes of the function that it calls."""
        if node.op in self._lowered:
            self._lower(node, site)
            return
        name, bindings = self._called(node)
        if not name:
            self._append(node)
            return
        function = self._library.functions.get(name)
        if function is None:
            message = f"node {node.name!r} calls the function {name!r}, which does not exist"
            raise InvalidGraphError(message, "export the model again", self._where)
        inside = self._enter(name, site, site.anchor)
        body = body_of(function, self._library, bindings)
        prefix = free_prefix(node.name, body, self._used_names)
        done = splice(prefix, node.device, body, node.data_inputs, site.anchor)
        self._used_names.update(n.name for n in done.nodes)
        for inner in done.nodes:
            self.add(_waiting(inner, node.control_inputs, self._library), inside)
        self._keep_results(node, done.rets, done.ends)

    def finished(self) -> list[Node]:
        """Return all nodes, with references to calls replaced by their results."""
        nodes = [self._led(n) for n in self._nodes]
        return without_dangling(nodes, {n.name for n in nodes})

    def _lower(self, node: Node, site: _Site) -> None:
        done = lower(node, self._library, self._used_names)
        self._used_names.update(n.name for n in done.own)
        self._used_names.update(n.name for n, _ in done.bodies)
        for own in done.own:
            self._append(own)
        for inner, anchor in done.bodies:
            self.add(inner, self._enter(f"{node.op} {node.name}", site, anchor))
        self._keep_results(node, done.outcome.rets, done.outcome.ends)

    def _enter(self, function: str, site: _Site, anchor: tuple[Ref, ...]) -> _Site:
        if function in site.callers or len(site.callers) >= _DEEPEST:
            message = f"the function {function!r} calls itself, or calls nest too deep"
            raise UnsupportedError(message, "functions must not be recursive", self._where)
        return site.inside(function, anchor)

    def _called(self, node: Node) -> tuple[str, Mapping[str, AttrValue]]:
        """Return the function of a call and its attributes; an empty name for other nodes."""
        if node.op not in self._calls:
            return "", {}
        if node.op in self._library.functions:
            return node.op, node.attrs
        func = node.attr_func("f")
        return func.name, func.attrs

    def _append(self, node: Node) -> None:
        self._nodes.append(node)
        self._check_size()

    def _check_size(self) -> None:
        # Count calls, too: a few functions that call each other twice create millions of them.
        if len(self._nodes) + len(self._results) > 2 * MOST_NODES:
            message = f"calls of functions grow the graph beyond {2 * MOST_NODES} nodes"
            raise InvalidGraphError(message, "export the model again", self._where)

    def _keep_results(self, node: Node, rets: tuple[Ref, ...], ends: tuple[str, ...]) -> None:
        if node.name in self._roots:
            self._append(self._stand_in(node, rets, ends))
            return
        self._results[node.name] = rets
        self._ends[node.name] = (*ends, *(r.node for r in node.control_inputs))
        self._check_size()

    def _stand_in(self, node: Node, rets: tuple[Ref, ...], ends: tuple[str, ...]) -> Node:
        """Create a node that returns a call's results under the call's name."""
        waits = (*map(control, ends), *node.control_inputs)
        if not rets:
            return Node(node.name, "NoOp", waits, node.device)
        definition = signature_of(node, self._library)
        types = tuple(output_types(node, definition)) if definition else ()
        if len(types) != len(rets):
            message = f"node {node.name!r} gives {len(types)} results, its function {len(rets)}"
            raise InvalidGraphError(message, "export the model again", self._where)
        inputs = in_order((*rets, *waits))
        if len(types) == 1:
            return Node(node.name, "Identity", inputs, node.device, {"T": attr.dtype(types[0])})
        kinds = {"T": AttrValue("list(type)", types)}
        return Node(node.name, "IdentityN", inputs, node.device, kinds)

    def _led(self, node: Node) -> Node:
        if not any(r.node in self._results for r in node.inputs):
            return node
        inputs: list[Ref] = []
        for ref in node.inputs:
            if ref.is_control:
                inputs += [control(name) for name in self._last(ref.node)]
            else:
                inputs.append(self._source(ref, node))
        return replace(node, inputs=in_order(inputs))

    def _source(self, ref: Ref, node: Node) -> Ref:
        seen: set[Ref] = set()
        while ref.node in self._results:
            results = self._results[ref.node]
            if ref.index >= len(results) or ref in seen:
                message = f"node {node.name!r} takes {str(ref)!r}, which does not exist"
                raise InvalidGraphError(message, "export the model again", self._where)
            seen.add(ref)
            ref = results[ref.index]
        return ref

    def _last(self, name: str) -> list[str]:
        """Return the nodes to wait for instead of a call, with nested calls resolved."""
        names = closure([name], lambda here: self._ends.get(here, ()))
        return sorted(here for here in names if here not in self._ends)


def _waiting(node: Node, waits: tuple[Ref, ...], library: Library) -> Node:
    """Return the node with its caller's control inputs, if it has side effects."""
    if not waits:
        return node
    definition = signature_of(node, library)
    if definition is not None and not definition.is_stateful:
        return node
    return replace(node, inputs=in_order((*node.inputs, *waits)))


_CASES: Final = frozenset({"Case", "StatelessCase"})
_PARALLEL: Final = 10
_MOST_BRANCHES: Final = 64

Anchor = tuple[Ref, ...]


class Outcome(Struct, frozen=True):
    """The results of lowered nodes, and the nodes that run last."""

    rets: tuple[Ref, ...]
    ends: tuple[str, ...] = ()


class Lowered(Struct, frozen=True):
    """A loop or a conditional in lowered form.

    Args:
        own: Switch, Merge, and related nodes.
        bodies: nodes of functions, each with the control inputs for nodes that would otherwise wait
            for nothing.
        outcome: the results of the whole.
    """

    own: tuple[Node, ...]
    bodies: tuple[tuple[Node, Anchor], ...]
    outcome: Outcome


def lower(node: Node, library: Library, used_names: Container[str]) -> Lowered:
    """Lower a loop or a conditional."""
    work = _Lowering(node, library, used_names)
    if node.op in LOOPS:
        outcome = work.loop()
    elif node.op in _CASES:
        outcome = work.case()
    else:
        outcome = work.conditional()
    return Lowered(tuple(work.own.values()), tuple(work.bodies), outcome)


class _Lowering:
    def __init__(self, node: Node, library: Library, used_names: Container[str]) -> None:
        self.own: dict[str, Node] = {}
        self.bodies: list[tuple[Node, Anchor]] = []
        self._node = node
        self._library = library
        self._used_names = used_names

    def loop(self) -> Outcome:
        node = self._node
        types = node.attr_dtypes("T")
        cond, body = self._body(node.attr_func("cond")), self._body(node.attr_func("body"))
        if not types or not len(types) == len(node.data_inputs) == len(body.rets):
            raise self._unfit()
        # Loop invariants enter once and do not need a cycle.
        turning = [i for i, r in enumerate(body.rets) if _origin(body, r) != body.args[i]]
        turning = turning or [*range(len(types))]
        entered = [
            self._enter(ref, dtype, is_constant=i not in turning)
            for i, (ref, dtype) in enumerate(zip(node.data_inputs, types, strict=True))
        ]
        merged = list(entered)
        for i in turning:
            merged[i] = self._typed("Merge", types[i], entered[i], entered[i], N=attr.integer(2))
        test = self._put("cond", cond, merged, (control(merged[turning[0]].node),))
        truth = self._truth(test.rets[0], self._output_type(node.attr_func("cond")))
        goes_on = self._add("LoopCond", (truth,), {})
        switched = {i: self._typed("Switch", types[i], merged[i], goes_on) for i in turning}
        inside = list(merged)
        for i in turning:
            inside[i] = self._typed("Identity", types[i], Ref(switched[i].node, 1))
        turn = self._put("body", body, inside, (control(inside[turning[0]].node),))
        for i in turning:
            waits = map(control, turn.ends)
            back = self._typed("NextIteration", types[i], turn.rets[i], *waits)
            merge = self.own[merged[i].node]
            self.own[merge.name] = replace(merge, inputs=(entered[i], back))
        rets = list(node.data_inputs)
        for i in turning:
            rets[i] = self._typed("Exit", types[i], switched[i])
        return Outcome(tuple(rets), tuple(rets[i].node for i in turning))

    def conditional(self) -> Outcome:
        node = self._node
        if not node.data_inputs:
            raise self._unfit()
        truth = self._truth(node.inputs[0], node.attr_dtype("Tcond"))
        then, other = node.attr_func("then_branch"), node.attr_func("else_branch")
        return self._two_ways(
            truth,
            node.data_inputs[1:],
            lambda inputs, anchor: self._put("then", self._body(then), inputs, anchor),
            lambda inputs, anchor: self._put("else", self._body(other), inputs, anchor),
        )

    def case(self) -> Outcome:
        branches = self._node.attrs.get("branches")
        if branches is None or branches.kind != "list(func)" or not self._node.data_inputs:
            raise self._unfit()
        if len(branches.value) > _MOST_BRANCHES:
            message = f"node {self._node.name!r} chooses among {len(branches.value)} branches"
            raise UnsupportedError(message, f"at most {_MOST_BRANCHES} can be lowered")
        bodies = [self._body(func) for func in branches.value]
        index = self._node.inputs[0]
        return self._among(bodies, 0, self._node.data_inputs, (control(index.node),))

    def _among(
        self, bodies: Sequence[Body], first: int, inputs: Sequence[Ref], anchor: Anchor
    ) -> Outcome:
        """Run the branch whose index the first input holds; the last one for other values."""
        if first == len(bodies) - 1:
            return self._put(f"branch{first}", bodies[first], inputs[1:], anchor)
        number = constant(self._name("number"), Tensor.of(np.int32(first)), "", anchor)
        self.own[number.name] = number
        truth = self._typed("Equal", DType.INT32, inputs[0], Ref(number.name))
        return self._two_ways(
            truth,
            inputs,
            lambda refs, pivot: self._put(f"branch{first}", bodies[first], refs[1:], pivot),
            lambda refs, pivot: self._among(bodies, first + 1, refs, pivot),
        )

    def _two_ways(
        self,
        truth: Ref,
        inputs: Sequence[Ref],
        then: Callable[[Sequence[Ref], Anchor], Outcome],
        other: Callable[[Sequence[Ref], Anchor], Outcome],
    ) -> Outcome:
        node = self._node
        types = node.attr_dtypes("Tin")
        if len(inputs) == len(types) + 1:
            types = (DType.INT32, *types)
        if len(inputs) != len(types):
            raise self._unfit()
        waits = node.control_inputs
        pivot = self._typed("Switch", DType.BOOL, truth, truth, *waits)
        sides = [
            self._typed("Switch", dtype, ref, truth, *waits)
            for ref, dtype in zip(inputs, types, strict=True)
        ]
        outcomes = []
        for way, run in ((1, then), (0, other)):
            entry = self._typed("Identity", DType.BOOL, Ref(pivot.node, way))
            done = run([Ref(s.node, way) for s in sides], (control(entry.node),))
            over = self._typed("Identity", DType.BOOL, entry, *map(control, done.ends))
            outcomes.append((done, over))
        (yes, yes_over), (no, no_over) = outcomes
        gives = node.attr_dtypes("Tout")
        if not len(yes.rets) == len(no.rets) == len(gives):
            raise self._unfit()
        rets = tuple(
            self._typed("Merge", dtype, b, a, N=attr.integer(2))
            for a, b, dtype in zip(yes.rets, no.rets, gives, strict=True)
        )
        end = self._typed("Merge", DType.BOOL, no_over, yes_over, N=attr.integer(2))
        return Outcome(rets, (end.node,))

    def _put(self, what: str, body: Body, inputs: Sequence[Ref], anchor: Anchor) -> Outcome:
        prefix = free_prefix(f"{self._node.name}/{what}", body, self._used_names)
        done = splice(prefix, self._node.device, body, tuple(inputs), anchor)
        self.bodies += [(inner, anchor) for inner in done.nodes]
        return Outcome(done.rets, done.ends)

    def _truth(self, ref: Ref, dtype: DType) -> Ref:
        if dtype is DType.BOOL:
            return ref
        if dtype.numpy is None:
            message = f"the condition of {self._node.name!r} ({self._node.op}) is {dtype.short}"
            raise UnsupportedError(message, "make it a bool, or keep control flow as functions")
        types = {"SrcT": attr.dtype(dtype), "DstT": attr.dtype(DType.BOOL)}
        return self._add("Cast", (ref,), types)

    def _enter(self, ref: Ref, dtype: DType, *, is_constant: bool) -> Ref:
        node = self._node
        return self._typed(
            "Enter",
            dtype,
            ref,
            *node.control_inputs,
            frame_name=attr.string(node.name),
            is_constant=attr.boolean(is_constant),
            parallel_iterations=attr.integer(node.attr_int("parallel_iterations", _PARALLEL)),
        )

    def _typed(self, op: str, dtype: DType, *inputs: Ref, **attrs: AttrValue) -> Ref:
        return self._add(op, inputs, {"T": attr.dtype(dtype), **attrs})

    def _add(self, op: str, inputs: tuple[Ref, ...], attrs: dict[str, AttrValue]) -> Ref:
        name = self._name(op)
        self.own[name] = Node(name, op, inputs, self._node.device, attrs)
        return Ref(name)

    def _name(self, what: str) -> str:
        """Return a free name; the second of a kind ends in "_1", like in TensorFlow."""
        return unique_name(f"{self._node.name}/{what}", self.own, self._used_names)

    def _body(self, func: FuncRef) -> Body:
        function = self._library.functions.get(func.name)
        if function is None:
            message = f"node {self._node.name!r} runs {func.name!r}, which does not exist"
            raise InvalidGraphError(message, "export the model again")
        return body_of(function, self._library, func.attrs)

    def _output_type(self, func: FuncRef) -> DType:
        return self._library.functions[func.name].signature.outputs[0].dtype

    def _unfit(self) -> InvalidGraphError:
        message = f"the functions of {self._node.name!r} ({self._node.op}) do not fit it"
        return InvalidGraphError(message, "export the model again")


def _origin(body: Body, ref: Ref) -> Ref:
    """Return the source of a tensor of a body, behind identities."""
    nodes = {n.name: n for n in body.nodes}
    for _ in nodes:
        node = nodes.get(ref.node)
        if node is None or node.op != "Identity" or len(node.inputs) != 1:
            break
        ref = node.inputs[0]
    return ref


MOST_NODES: Final = 1_000_000
"""Far more nodes than any model has after inlining."""


def check_growth(graph: Graph, called: Callable[[Node], Iterable[str]], where: str) -> None:
    """Raise an error for calls that grow a graph beyond ``MOST_NODES``, before inlining any.

    A function that calls another twice, which calls a third twice, and so on, doubles it at each
    level.
    """
    sizes = _Sizes(graph.library, called)
    whole, largest, name = 0, 0, ""
    for node in graph:
        for function in called(node):
            size = sizes.of(function)
            whole += size
            if size > largest:
                largest, name = size, function
    if len(graph) + whole > MOST_NODES:
        message = f"calls of the function {name!r} grow the graph beyond {MOST_NODES:,} nodes"
        raise InvalidGraphError(message, "export the model again", where)


class _Sizes:
    """Numbers of nodes that replace calls of functions, including nested calls."""

    def __init__(self, library: Library, called: Callable[[Node], Iterable[str]]) -> None:
        self._library = library
        self._called = called
        self._counts: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Return a function's size; a recursive call counts as zero."""
        stack = [name]
        while stack:
            here = stack[-1]
            function = self._library.functions.get(here)
            if function is None:
                self._counts[here] = 0
                stack.pop()
                continue
            inner = [f for node in function.nodes for f in self._called(node)]
            if here not in self._counts:
                self._counts[here] = 0
                waiting = [f for f in dict.fromkeys(inner) if f not in self._counts]
                stack += waiting
                continue
            self._counts[here] = len(function.nodes) + sum(self._counts.get(f, 0) for f in inner)
            stack.pop()
        return self._counts[name]


CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


class Functional(Struct, frozen=True):
    """How an op that runs functions passes its inputs to them.

    Args:
        functions: its attributes that name functions.
        types: its attribute with the dtypes of the arguments.
        first: the index of the first input that it passes.
    """

    functions: tuple[str, ...]
    types: str
    first: int


_IF: Final = Functional(("then_branch", "else_branch"), "Tin", 1)


_WHILE: Final = Functional(("cond", "body"), "T", 0)


_CASE: Final = Functional(("branches",), "Tin", 1)


LOOPS: Final = frozenset({"While", "StatelessWhile"})


FUNCTIONAL: Final[Mapping[str, Functional]] = {
    "If": _IF,
    "StatelessIf": _IF,
    "While": _WHILE,
    "StatelessWhile": _WHILE,
    "Case": _CASE,
    "StatelessCase": _CASE,
}


class Spliced(Struct, frozen=True):
    """The nodes of a body under unique names.

    Args:
        nodes: its nodes.
        rets: the sources of the caller's results.
        ends: nodes that have run when the call has ended.
    """

    nodes: tuple[Node, ...]
    rets: tuple[Ref, ...]
    ends: tuple[str, ...]


def splice(
    prefix: str, device: str, body: Body, inputs: tuple[Ref, ...], anchor: tuple[Ref, ...] = ()
) -> Spliced:
    """Copy a body's nodes with a prefix before their names and a caller's inputs.

    Nodes keep colocations with other nodes of the body. Other colocations are dropped, because they
    do not refer to nodes of the caller's graph.
    """
    if len(inputs) != len(body.args):
        message = f"{prefix!r} gives {len(inputs)} of {len(body.args)} arguments to its function"
        raise InvalidGraphError(message, "export the model again")
    tensors = dict(zip(body.args, inputs, strict=True))
    producers = {a.node: t.node for a, t in tensors.items()}
    own = {n.name for n in body.nodes}

    def moved(ref: Ref) -> Ref:
        if ref.is_control:
            return control(producers.get(ref.node, f"{prefix}/{ref.node}"))
        source = tensors.get(ref)
        return source if source is not None else ref.renamed(f"{prefix}/{ref.node}")

    def beside(name: str) -> str | None:
        return f"{prefix}/{name}" if name in own else None

    nodes = tuple(
        replace(
            colocated(n, beside),
            name=f"{prefix}/{n.name}",
            inputs=in_order(moved(r) for r in n.inputs) or anchor,
            device=n.device or device,
        )
        for n in body.nodes
    )
    ends = tuple(f"{prefix}/{name}" for name in body.control_rets)
    return Spliced(nodes, tuple(moved(r) for r in body.rets), ends)


def free_prefix(prefix: str, body: Body, used_names: Container[str]) -> str:
    """Return the prefix, extended if a node of the body would get a used name."""
    while any(f"{prefix}/{n.name}" in used_names for n in body.nodes):
        prefix += "_"
    return prefix


def in_order(inputs: Iterable[Ref]) -> tuple[Ref, ...]:
    """Move control dependencies behind the tensors, without duplicates."""
    listed = list(inputs)
    controls = dict.fromkeys(r for r in listed if r.is_control)
    return (*(r for r in listed if not r.is_control), *controls)
