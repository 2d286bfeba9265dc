"""Putting the nodes of a function in the place of a node."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from mobileprep.errors import InvalidGraphError
from mobileprep.frozen import dataclass
from mobileprep.ir.colocation import colocated
from mobileprep.ir.graph import Graph, Library
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref, control
from mobileprep.opdefs.bodies import Body

MOST_NODES: Final = 1_000_000


def check_growth(graph: Graph, called: Callable[[Node], Iterable[str]], where: str) -> None:
    """Refuse calls that grow a graph beyond ``MOST_NODES``, before any of them is replaced.

    A function that calls another twice, which calls a third twice and so on, doubles it at each.

    Args:
        graph: the graph.
        called: the functions that are put in a node's place.
        where: for messages.

    Raises:
        InvalidGraphError: they do; the function that grows most is named.
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
    """How many nodes take a function's place, those of the functions that it calls included."""

    def __init__(self, library: Library, called: Callable[[Node], Iterable[str]]) -> None:
        self._library = library
        self._called = called
        self._known: dict[str, int] = {}

    def of(self, name: str) -> int:
        """A function's size; a call of a function within itself counts nothing."""
        stack = [name]
        while stack:
            here = stack[-1]
            function = self._library.functions.get(here)
            if function is None:
                self._known[here] = 0
                stack.pop()
                continue
            inner = [f for node in function.nodes for f in self._called(node)]
            if here not in self._known:
                self._known[here] = 0
                waiting = [f for f in dict.fromkeys(inner) if f not in self._known]
                stack += waiting
                continue
            self._known[here] = len(function.nodes) + sum(self._known.get(f, 0) for f in inner)
            stack.pop()
        return self._known[name]


CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


@dataclass(frozen=True)
class Functional:
    """How an op that runs functions hands its inputs to them.

    Args:
        functions: its attributes that name functions.
        types: its attribute that lists the types of what it hands over.
        first: the index of the first input that it hands over.
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


@dataclass(frozen=True)
class Spliced:
    """A body under names of its own.

    Args:
        nodes: its nodes.
        rets: where the caller's results now come from.
        ends: nodes that have run when the call has ended.
    """

    nodes: tuple[Node, ...]
    rets: tuple[Ref, ...]
    ends: tuple[str, ...]


def splice(
    prefix: str, device: str, body: Body, inputs: tuple[Ref, ...], anchor: tuple[Ref, ...] = ()
) -> Spliced:
    """A body's nodes under names that begin with a prefix, fed with a caller's inputs.

    Nodes that are colocated with others of the body stay so. What else a function's body names
    there is no node of the caller's graph.

    Args:
        prefix: what their names begin with.
        device: for the nodes that have none.
        body: what to put in.
        inputs: a tensor for each argument.
        anchor: control inputs for the nodes that would else wait for nothing.

    Raises:
        InvalidGraphError: the numbers of inputs and arguments differ.
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
        found = tensors.get(ref)
        return found if found is not None else ref.renamed(f"{prefix}/{ref.node}")

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


def free_prefix(wanted: str, body: Body, taken: Container[str]) -> str:
    """The wanted prefix, longer where a node of the body would get a name that is taken."""
    while any(f"{wanted}/{n.name}" in taken for n in body.nodes):
        wanted += "_"
    return wanted


def in_order(inputs: Iterable[Ref]) -> tuple[Ref, ...]:
    """Inputs with each control dependency once, after the tensors."""
    listed = list(inputs)
    controls = dict.fromkeys(r for r in listed if r.is_control)
    return (*(r for r in listed if not r.is_control), *controls)
