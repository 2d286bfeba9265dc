"""What is said of constants that a step left twice."""

from __future__ import annotations

from msgspec.structs import replace

from mobileprep.graph.graph import Graph
from mobileprep.transforms.tf115 import copies_warning
from tests.transforms.graphs import const, placeholder

BIG, SMALL = const("big", range(300)), const("small", [1, 2])
BEFORE = Graph([placeholder(), BIG, SMALL])


def told(*names: str) -> str:
    """The warning of a step that copied these constants."""
    copies = [replace(BEFORE[name], name=f"copy_{i}") for i, name in enumerate(names)]
    return copies_warning("fold", BEFORE, Graph([*BEFORE, *copies]))


def test_copies_are_counted_with_their_bytes() -> None:
    assert told("big").startswith("fold: 1 constants are duplicated now, 1,200 bytes more, ")
    assert told("big", "small").startswith("fold: 2 constants are duplicated now, 1,208 bytes")
    assert told("big", "big").startswith("fold: 2 constants are duplicated now, 2,400 bytes")


def test_hint_names_the_step() -> None:
    assert "put remove_nodes(op=Identity) before fold, or merge_duplicate_nodes" in told("big")


def test_new_removed_and_moved_constants_are_not_copies() -> None:
    assert told() == ""
    new = [const("new", [5, 6]), const("newer", [5, 6])]
    assert copies_warning("fold", BEFORE, Graph([*BEFORE, *new])) == ""
    assert copies_warning("fold", BEFORE, Graph([replace(BIG, name="other")])) == ""
    assert copies_warning("fold", BEFORE, BEFORE) == ""


def test_existing_copies_are_not_reported_again() -> None:
    twice = Graph([*BEFORE, replace(BIG, name="copy")])
    assert copies_warning("fold", twice, Graph([*twice])) == ""
