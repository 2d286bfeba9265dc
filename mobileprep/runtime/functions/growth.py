"""How large a graph becomes when calls are replaced by what they do, worked out ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.graph import Graph, Library
from mobileprep.ir.node import Node

MOST_NODES: Final = 1_000_000
"""Far more than any model has whose calls have been replaced."""


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
