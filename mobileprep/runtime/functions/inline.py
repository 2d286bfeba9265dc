"""Inlining of function calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.colocation import without_dangling
from mobileprep.ir.graph import Graph, Library
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import closure
from mobileprep.ir.refs import Ref, control
from mobileprep.opdefs.bodies import body_of
from mobileprep.opdefs.signatures import output_types, signature_of
from mobileprep.runtime.functions.lower import lower
from mobileprep.runtime.functions.splice import (
    CALLS,
    FUNCTIONAL,
    MOST_NODES,
    check_growth,
    free_prefix,
    in_order,
    splice,
)

"""Far more than any model has whose calls have been replaced."""


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
    """The graph with every call replaced by the nodes of its function, calls in those too.

    A node of a function gets the name "caller/node". A caller among the roots stays, under its
    name, as an Identity or IdentityN of its results, so that they can be fetched as before.

    Args:
        graph: the graph.
        roots: names of nodes that are to keep their names.
        where: for messages.
        ops: the only ops that count as calls; without it those of ``kinds.CALLS``, and every op
            that is a function's name.
        lower_control_flow: whether loops and conditionals are taken apart too.

    Raises:
        InvalidGraphError: a function calls itself, or calls grow beyond a million nodes.
        UnsupportedError: a function's body cannot be taken apart.
    """
    calls = {*CALLS, *graph.library.functions} if ops is None else ops
    lowered: Collection[str] = FUNCTIONAL if lower_control_flow else ()
    work = _Inliner(graph, frozenset(roots), where, calls, lowered)
    if not any(work.takes_apart(n) for n in graph):
        return graph
    check_growth(graph, work.functions_of, where)
    # In a graph with loops or branches, what a call does must happen only where the call stands.
    is_switching = any(n.op in _SWITCHING for n in graph)
    for node in graph:
        beside = node.data_inputs[:1] if is_switching else ()
        work.add(node, _Site((), tuple(control(r.node) for r in beside)))
    return graph.with_nodes(work.finished())


@dataclass(frozen=True)
class _Site:
    """Where a node stands: in which functions, and what a node waits for that has no inputs."""

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
        self._taken = set(graph.by_name)
        self._library = graph.library
        self._roots = roots
        self._where = where
        self._calls = calls
        self._lowered = lowered
        self._nodes: list[Node] = []
        self._results: dict[str, tuple[Ref, ...]] = {}
        self._ends: dict[str, tuple[str, ...]] = {}

    def takes_apart(self, node: Node) -> bool:
        """Whether a node calls a function that is to be put in its place."""
        return node.op in self._lowered or bool(self._called(node)[0])

    def functions_of(self, node: Node) -> list[str]:
        """The functions that take a node's place."""
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
        """Take over a node, or what the function does that it calls."""
        if node.op in self._lowered:
            self._lower(node, site)
            return
        name, bindings = self._called(node)
        if not name:
            self._append(node)
            return
        function = self._library.functions.get(name)
        if function is None:
            message = f"node {node.name!r} calls the function {name!r}, which is not there"
            raise InvalidGraphError(message, "export the model again", self._where)
        inside = self._enter(name, site, site.anchor)
        body = body_of(function, self._library, bindings)
        prefix = free_prefix(node.name, body, self._taken)
        done = splice(prefix, node.device, body, node.data_inputs, site.anchor)
        self._taken.update(n.name for n in done.nodes)
        for inner in done.nodes:
            self.add(_waiting(inner, node.control_inputs, self._library), inside)
        self._keep_results(node, done.rets, done.ends)

    def finished(self) -> list[Node]:
        """All nodes, with every reference to a call led to where its result comes from."""
        nodes = [self._led(n) for n in self._nodes]
        return without_dangling(nodes, {n.name for n in nodes})

    def _lower(self, node: Node, site: _Site) -> None:
        done = lower(node, self._library, self._taken)
        self._taken.update(n.name for n in done.own)
        self._taken.update(n.name for n, _ in done.bodies)
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
        """The function that a call names and the attributes it binds; no name for no call."""
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
        # Calls count too: a few functions that call each other twice make millions of them.
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
        """A node that gives a call's results under the call's name."""
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
                message = f"node {node.name!r} takes {str(ref)!r}, which is not there"
                raise InvalidGraphError(message, "export the model again", self._where)
            seen.add(ref)
            ref = results[ref.index]
        return ref

    def _last(self, name: str) -> list[str]:
        """The nodes to wait for instead of a call, calls among those followed too."""
        found = closure([name], lambda here: self._ends.get(here, ()))
        return sorted(here for here in found if here not in self._ends)


def _waiting(node: Node, waits: tuple[Ref, ...], library: Library) -> Node:
    """The node made to wait for what its caller waited for, where it does more than compute."""
    if not waits:
        return node
    definition = signature_of(node, library)
    if definition is not None and not definition.is_stateful:
        return node
    return replace(node, inputs=in_order((*node.inputs, *waits)))
