"""Merge recipe, model, and target sections into the sections of each target."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mobileprep.recipe.tree import Entry, MappingNode, Node, Place, Problem, Scalar, recipe_error
from mobileprep.recipe.validation_settings import METRIC_KEYS

MAX_TARGETS = 1_000
_ONLY_ABOVE = ("version", "name", "description", "cache", "memory", "plugins", "models", "targets")


class TargetSections(NamedTuple):
    """The sections that apply to one target of one model.

    Args:
        model: name of the model, or None if the recipe has a single model.
        name: name of the target.
        tree: its sections, with overrides applied.
        place: location of the target's name.
    """

    model: str | None
    name: str
    tree: MappingNode
    place: Place

    @property
    def folder(self) -> str:
        """Output directory, relative to that of the recipe."""
        return self.name if self.model is None else f"{self.model}/{self.name}"

    def nodes(self, key: str) -> dict[str, Node]:
        """Return the values of a section by key; empty if it is not a mapping."""
        node = self.tree.get(key)
        return node.nodes() if isinstance(node, MappingNode) else {}


class ModelSections(NamedTuple):
    """A model of a recipe: its name, the location for its problems, and its targets."""

    name: str | None
    place: Place
    targets: tuple[TargetSections, ...]


def model_sections(root: MappingNode) -> tuple[ModelSections, ...]:
    """Return every model with its targets, in the order written.

    Values of a wrong type, which the schema reports, are skipped.
    """
    models = root.get("models")
    targets = root.get("targets")
    if not isinstance(models, MappingNode):
        return (_model(None, root.place, root),)
    shared_targets = len(targets.entries) if isinstance(targets, MappingNode) else 0
    if len(models.entries) * shared_targets > MAX_TARGETS:
        message = f"models times targets come to more than {MAX_TARGETS:,}"
        raise recipe_error([Problem(models.place, message, "split the recipe")])
    shared = root.without(["models"])
    return tuple(
        _model(name, entry.key_place, merge_sections(shared, entry.value))
        for name, entry in models.items()
        if isinstance(entry.value, MappingNode)
    )


def _model(name: str | None, place: Place, tree: MappingNode) -> ModelSections:
    shared = tree.without(_ONLY_ABOVE)
    targets = tree.get("targets")
    entries = targets.entries if isinstance(targets, MappingNode) else {}
    return ModelSections(
        name,
        place,
        tuple(
            TargetSections(name, target, _over(shared, entry.value), entry.key_place)
            for target, entry in entries.items()
        ),
    )


def _over(shared: MappingNode, target: Node) -> MappingNode:
    return merge_sections(shared, target) if isinstance(target, MappingNode) else shared


# Sections that are replaced as a whole, because parts of two of them do not fit together.
_WHOLE = frozenset({"source", "quantize"})
# The same for keys within sections.
_WHOLE_BELOW = frozenset({"data"})
# Sections whose entries contain sections.
_NAMED = frozenset({"models", "targets"})


def merge_sections(base: MappingNode, over: MappingNode) -> MappingNode:
    """Merge a recipe, model, or target over another.

    Mappings merge key by key, ``null`` removes the inherited value, and other values replace it.
    ``source``, ``quantize``, and a section's ``data`` are replaced as a whole. A list of metrics
    replaces a single metric, and the reverse. Each value keeps its original location.
    """
    return _overlay(base, over, _section)


def is_null(node: Node | None) -> bool:
    """Return whether a value is missing or ``null``."""
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
    """Return the inherited keys that a validation's own metric or list of metrics replaces."""
    if "metrics" in over.entries:
        return tuple(key for key in METRIC_KEYS if key != "labels")
    return ("metrics",) if "metric" in over.entries else ()


def _named(_name: str, below: Node, over: Node) -> Node:
    return _overlay(below, over, _section) if isinstance(over, MappingNode) else over


def _deep(key: str, below: Node, over: Node) -> Node:
    if key in _WHOLE_BELOW or not isinstance(over, MappingNode):
        return over
    return _overlay(below, over, _deep)
