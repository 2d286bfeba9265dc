"""Colocation constraints, the ``loc:@node`` entries of ``_class``, when nodes go or are renamed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.node import Node

_CLASS: Final = "_class"
_PREFIX: Final = b"loc:@"


def without_dangling(nodes: Iterable[Node], names: Container[str]) -> list[Node]:
    """The nodes without constraints on nodes that are not among ``names``.

    TensorFlow refuses to load a graph in which a node is to be colocated with an unknown one.
    """

    def known(name: str) -> str | None:
        return name if name in names else None

    return [colocated(n, known) for n in nodes]


def colocated(node: Node, new_name: Callable[[str], str | None]) -> Node:
    """The node with its constraints on other names; those for which None is given are dropped."""
    given = node.attrs.get(_CLASS)
    if given is None or given.kind != "list(string)":
        return node
    kept = tuple(entry for old in given.value if (entry := _entry(old, new_name)) is not None)
    if kept == given.value:
        return node
    if not kept:
        return node.without_attrs(_CLASS)
    return node.with_attrs(_class=AttrValue("list(string)", kept))


def _entry(entry: bytes, new_name: Callable[[str], str | None]) -> bytes | None:
    if not entry.startswith(_PREFIX):
        return entry
    name = new_name(entry[len(_PREFIX) :].decode("utf-8", "surrogateescape"))
    return None if name is None else _PREFIX + name.encode("utf-8", "surrogateescape")
