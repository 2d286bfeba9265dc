"""References to tensors in the form of node inputs: "name", "name:1", "^name"."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

CONTROL: Final = -1

Edge = tuple[str, int]
"""A tensor: name of its node and index of the node's output (``CONTROL`` for none)."""


class Ref(Struct, frozen=True, eq=False):
    """An input of a node, or a tensor named on the command line.

    Args:
        node: name of the node.
        index: index of its output, or ``CONTROL``.
        output: in functions, the name of the output argument that ``index`` refers to.
        explicit: whether an index of 0 was explicit; preserved for writing, but not compared.
    """

    node: str
    index: int = 0
    output: str = ""
    explicit: bool = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ref):
            return NotImplemented
        return (self.node, self.index, self.output) == (other.node, other.index, other.output)

    def __ne__(self, other: object) -> bool:  # Struct compares identities.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.node, self.index, self.output))

    @property
    def is_control(self) -> bool:
        """Whether this is a control dependency, without a tensor."""
        return self.index == CONTROL

    def renamed(self, node: str) -> Ref:
        """Return a reference to the same output of another node."""
        return Ref(node, self.index, self.output, self.explicit)

    def __str__(self) -> str:
        if self.index == CONTROL:
            return f"^{self.node}"
        if self.output:
            return f"{self.node}:{self.output}:{self.index}"
        if self.index or self.explicit:
            return f"{self.node}:{self.index}"
        return self.node


@lru_cache(maxsize=1 << 16)
def parse_ref(text: str) -> Ref:
    """Parse a reference in a graph; a suffix that is not a number is part of the name."""
    if text.startswith("^"):
        return Ref(text[1:], CONTROL)
    head, colon, digits = text.rpartition(":")
    if not colon or not _is_index(digits):
        return Ref(text)
    index = int(digits)
    return Ref(head, index, explicit=index == 0)


@lru_cache(maxsize=1 << 14)
def parse_function_ref(text: str) -> Ref:
    """Parse a reference in a function body: "argument", "node:output:0", "^node"."""
    parts = text.split(":")
    if len(parts) == 3 and _is_index(parts[2]):
        return Ref(parts[0], int(parts[2]), parts[1])
    return parse_ref(text)


def control(node: str) -> Ref:
    """Return a control dependency on a node."""
    return Ref(node, CONTROL)


def edge(ref: Ref) -> Edge:
    """Return the tensor that a reference names."""
    return ref.node, ref.index


def _is_index(digits: str) -> bool:
    # int() rejects 4,300 digits or more, and accepts signs, spaces, and digits of other scripts.
    return digits.isascii() and digits.isdigit() and len(digits) < 10


def unique_name(base: str, *used_names: Container[str]) -> str:
    """Return the name, with the smallest numeric suffix that makes it unique."""
    name, number = base, 0
    while any(name in names for names in used_names):
        number += 1
        name = f"{base}_{number}"
    return name


class FreshNames:
    """A generator of unique names.

    Args:
        taken: names that are already used.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)

    def name(self, base: str) -> str:
        """Return the name, or a similar unused one, and mark it as used."""
        name = unique_name(base, self._names)
        self._names.add(name)
        return name
