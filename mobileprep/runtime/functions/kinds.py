"""Ops that run functions, and how they hand their inputs to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mobileprep.frozen import dataclass

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
