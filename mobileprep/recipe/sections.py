"""Lays recipe, model and target over each other: the sections that hold for each target."""

from __future__ import annotations

from typing import NamedTuple

from mobileprep.recipe.merge import is_null, merge_sections
from mobileprep.recipe.problems import Problem, recipe_error
from mobileprep.recipe.tree import MappingNode, Node, Place

MAX_TARGETS = 1_000
_ONLY_ABOVE = ("version", "name", "description", "cache", "memory", "plugins", "models", "targets")


class TargetSections(NamedTuple):
    """What holds for one target of one model.

    Args:
        model: the model's name, or None where the recipe is of one model.
        name: the target's name.
        tree: its sections, overrides applied.
        place: of the target's name.
    """

    model: str | None
    name: str
    tree: MappingNode
    place: Place

    @property
    def folder(self) -> str:
        """The folder of its outputs, below the recipe's."""
        return self.name if self.model is None else f"{self.model}/{self.name}"

    def get(self, key: str) -> Node | None:
        """A section, or None where it is missing or null."""
        node = self.tree.get(key)
        return None if is_null(node) else node

    def mapping(self, key: str) -> MappingNode | None:
        """A section that is a mapping; None otherwise."""
        node = self.tree.get(key)
        return node if isinstance(node, MappingNode) else None

    def section(self, key: str) -> MappingNode:
        """A section that is a mapping; an empty one where it is missing."""
        return self.mapping(key) or MappingNode({}, self.place)


class ModelSections(NamedTuple):
    """One model of a recipe: its name, the place to name when it lacks something, its targets."""

    name: str | None
    place: Place
    targets: tuple[TargetSections, ...]


def model_sections(root: MappingNode) -> tuple[ModelSections, ...]:
    """Every model with its targets, in the order written.

    Values of a wrong type, which the schema reports, are passed over.

    Raises:
        RecipeError: models times targets come to more than ``MAX_TARGETS``.
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
