"""Calls of functions replaced by what the functions do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.freeze.bodies import Body, body_of
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.graph import Graph, Library
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref, control
from mobileprep.ops.opdefs import any_op_def
from mobileprep.ops.signature import output_types

_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_MAX_NODES: Final = 2_000_000
_DEEPEST: Final = 64


@dataclass(frozen=True)
class Inlined:
    """A body put in a caller's place.

    Args:
        nodes: under names of their own.
        rets: where the caller's results now come from.
        ends: nodes that have run when the call has ended.
    """

    nodes: tuple[Node, ...]
    rets: tuple[Ref, ...]
    ends: tuple[str, ...]


def inline_calls(graph: Graph, roots: Iterable[str], where: str) -> Graph:
    """The graph with every call replaced by the nodes of its function, calls in those too.

    A node of a function gets the name "caller/node". A caller among the roots stays, under its
    name, as an Identity or IdentityN of its results, so that they can be fetched as before.

    Args:
        graph: the graph.
        roots: names of nodes that are to keep their names.
        where: for messages.

    Raises:
        InvalidGraphError: a function calls itself, or calls grow beyond two million nodes.
        UnsupportedError: a function's body cannot be taken apart.
    """
    if not any(_is_call(n, graph.library) for n in graph):
        return graph
    work = _Inliner(graph, frozenset(roots), where)
    for node in graph:
        work.add(node, ())
    return graph.with_nodes(work.finished())


def splice(caller: Node, body: Body, inputs: tuple[Ref, ...], anchor: tuple[Ref, ...]) -> Inlined:
    """A body's nodes under the caller's name, fed with its inputs.

    Args:
        caller: gives names and the device of nodes that have none.
        body: what to put in.
        inputs: a tensor for each argument.
        anchor: control inputs for the nodes that would else wait for nothing.

    Raises:
        InvalidGraphError: the numbers of inputs and arguments differ.
    """
    if len(inputs) != len(body.args):
        message = f"node {caller.name!r} gives {len(inputs)} of {len(body.args)} arguments"
        raise InvalidGraphError(message, "export the model again")
    tensors = dict(zip(body.args, inputs, strict=True))
    producers = {a.node: t.node for a, t in tensors.items()}

    def moved(ref: Ref) -> Ref:
        if ref.is_control:
            return control(producers.get(ref.node, f"{caller.name}/{ref.node}"))
        found = tensors.get(ref)
        return found if found is not None else ref.renamed(f"{caller.name}/{ref.node}")

    nodes = tuple(
        replace(
            n,
            name=f"{caller.name}/{n.name}",
            inputs=_in_order(moved(r) for r in n.inputs) or anchor,
            device=n.device or caller.device,
        )
        for n in body.nodes
    )
    ends = tuple(f"{caller.name}/{name}" for name in body.control_rets)
    return Inlined(nodes, tuple(moved(r) for r in body.rets), ends)


def called_function(node: Node, library: Library) -> tuple[str, Mapping[str, AttrValue]]:
    """The function that a call names, and the attributes it binds; an empty name for no call."""
    if node.op in library.functions:
        return node.op, node.attrs
    if node.op in _CALLS:
        func = node.attr_func("f")
        return func.name, func.attrs
    return "", {}


class _Inliner:
    def __init__(self, graph: Graph, roots: frozenset[str], where: str) -> None:
        self._library = graph.library
        self._roots = roots
        self._where = where
        self._nodes: list[Node] = []
        self._moved: dict[str, tuple[Ref, ...]] = {}
        self._ends: dict[str, tuple[str, ...]] = {}

    def add(self, node: Node, callers: tuple[str, ...]) -> None:
        """Take over a node, or what the function does that it calls."""
        name, bindings = called_function(node, self._library)
        if not name:
            self._nodes.append(node)
            if len(self._nodes) > _MAX_NODES:
                message = f"calls of functions grow the graph beyond {_MAX_NODES} nodes"
                raise InvalidGraphError(message, "export the model again", self._where)
            return
        if name in callers or len(callers) >= _DEEPEST:
            message = f"the function {name!r} calls itself, or calls nest too deep"
            raise UnsupportedError(message, "functions must not be recursive", self._where)
        function = self._library.functions.get(name)
        if function is None:
            message = f"node {node.name!r} calls the function {name!r}, which is not there"
            raise InvalidGraphError(message, "export the model again", self._where)
        body = body_of(function, self._library, bindings)
        done = splice(node, body, node.data_inputs, ())
        waits = node.control_inputs
        for inner in done.nodes:
            self.add(_waiting(inner, waits), (*callers, name))
        self._keep_results(node, done)

    def _keep_results(self, node: Node, done: Inlined) -> None:
        self._ends[node.name] = (*done.ends, *(r.node for r in node.control_inputs))
        if node.name not in self._roots:
            self._moved[node.name] = done.rets
            return
        ends = tuple(control(e) for e in done.ends)
        if not done.rets:
            self._nodes.append(Node(node.name, "NoOp", ends, node.device))
            return
        types = output_types(node, _definition(node, self._library))
        kinds = {"T": attr.dtype(types[0])}
        if len(types) > 1:
            kinds = {"T": AttrValue("list(type)", tuple(types))}
        op = "IdentityN" if len(types) > 1 else "Identity"
        self._nodes.append(Node(node.name, op, (*done.rets, *ends), node.device, kinds))

    def finished(self) -> list[Node]:
        """All nodes, with every reference to a call led to where its result comes from."""
        return [self._led(n) for n in self._nodes]

    def _led(self, node: Node) -> Node:
        if not any(r.node in self._moved or r.node in self._ends for r in node.inputs):
            return node
        inputs: list[Ref] = []
        for ref in node.inputs:
            if ref.is_control:
                inputs += [control(name) for name in self._last(ref.node)]
            else:
                inputs.append(self._tensor(ref, node))
        return replace(node, inputs=_in_order(inputs))

    def _tensor(self, ref: Ref, node: Node) -> Ref:
        while ref.node in self._moved:
            results = self._moved[ref.node]
            if ref.index >= len(results):
                message = f"node {node.name!r} takes {str(ref)!r}, which is not there"
                raise InvalidGraphError(message, "export the model again", self._where)
            ref = results[ref.index]
        return ref

    def _last(self, name: str) -> list[str]:
        """The nodes to wait for instead of a call, calls among those followed too."""
        found: dict[str, None] = {}
        waiting, seen = [name], {name}
        while waiting:
            here = waiting.pop()
            if here not in self._ends:
                found[here] = None
                continue
            if here in self._roots:
                found[here] = None
            fresh = [e for e in self._ends[here] if e not in seen]
            seen.update(fresh)
            waiting += fresh
        return sorted(found)
