"""How one recipe, model or target lays over another: mappings merge, the rest replaces."""

from __future__ import annotations

from collections.abc import Callable

from mobileprep.recipe.tree import Entry, MappingNode, Node, Scalar
from mobileprep.recipe.validation_settings import METRIC_KEYS

# Their keys belong together: half of one with half of another has no meaning.
_WHOLE = frozenset({"source", "quantize"})
# The same inside of sections.
_WHOLE_BELOW = frozenset({"data"})
# Each of their entries is again made of sections.
_NAMED = frozenset({"models", "targets"})


def merge_sections(base: MappingNode, over: MappingNode) -> MappingNode:
    """A recipe, model or target with another laid over it.

    Mappings merge key by key, ``null`` removes what is below it, everything else replaces;
    ``source``, ``quantize`` and a section's ``data`` replace as a whole, and a list of metrics a
    single one, or the other way around. Places stay those of where each value was written.
    """
    return _overlay(base, over, _section)


def is_null(node: Node | None) -> bool:
    """Whether a value is missing or ``null``."""
    return node is None or (isinstance(node, Scalar) and node.value is None)


def _overlay(
    below: Node, over: MappingNode, merge: Callable[[str, Node, Node], Node]
) -> MappingNode:
    entries = dict(below.entries) if isinstance(below, MappingNode) else {}
    for key, entry in over.items():
        inherited = entries.get(key)
        if inherited is None:
            entries[key] = entry
        elif is_null(entry.value):
            del entries[key]
        else:
            entries[key] = Entry(entry.key_place, merge(key, inherited.value, entry.value))
    return MappingNode(entries, over.place)


def _section(key: str, below: Node, over: Node) -> Node:
    if key in _WHOLE or not isinstance(over, MappingNode):
        return over
    if key == "validation" and isinstance(below, MappingNode):
        below = below.without(_replaced_metrics(over))
    return _overlay(below, over, _named if key in _NAMED else _deep)


def _replaced_metrics(over: MappingNode) -> tuple[str, ...]:
    """The inherited keys that a validation's own metric, or own list of metrics, stands for."""
    if "metrics" in over.entries:
        return tuple(key for key in METRIC_KEYS if key != "labels")
    return ("metrics",) if "metric" in over.entries else ()


def _named(_name: str, below: Node, over: Node) -> Node:
    return _overlay(below, over, _section) if isinstance(over, MappingNode) else over


def _deep(key: str, below: Node, over: Node) -> Node:
    if key in _WHOLE_BELOW or not isinstance(over, MappingNode):
        return over
    return _overlay(below, over, _deep)
