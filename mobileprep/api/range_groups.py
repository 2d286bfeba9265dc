"""Targets that take observed ranges, by the range file that they share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mobileprep.errors import RecipeError, UsageError
from mobileprep.formats.range_file import RangeFile
from mobileprep.frozen import dataclass
from mobileprep.recipe.model import Recipe, Target


@dataclass(frozen=True)
class RangeGroup:
    """Targets whose ranges go into one file.

    Args:
        path: the file; None where the recipe names none.
        name: as the recipe has it.
        members: the targets with their recipes.
    """

    path: Path | None
    name: str | None
    members: tuple[tuple[Recipe, Target], ...]

    @property
    def folders(self) -> tuple[str, ...]:
        """The targets' folders below the output folder."""
        return tuple(f"{recipe.name}/{target.folder}" for recipe, target in self.members)


def range_groups(recipes: Sequence[Recipe], wanted: frozenset[str]) -> list[RangeGroup]:
    """The targets that take observed ranges, by the file that keeps them.

    Args:
        recipes: with their targets.
        wanted: the names or folders of targets, or none for all; those that share a range file
            with one of them are taken too.

    Raises:
        UsageError: there is none.
        RecipeError: a calibration names no samples.
    """
    named: dict[str, list[tuple[Recipe, Target]]] = {}
    for recipe in recipes:
        for target in recipe.targets:
            if target.calibration is not None and target.takes_ranges:
                file = target.calibration.range_file
                own = f"{recipe.name}/{target.folder}"
                key = own if file is None else os.path.realpath(file.path)
                named.setdefault(key, []).append((recipe, target))
    chosen = [
        members
        for members in named.values()
        if not wanted or any({t.name, t.folder} & wanted for _, t in members)
    ]
    if not chosen:
        hint = "write 'quantize: {mode: nodes, ranges: observed}' and a calibration"
        message = f"no target {' or '.join(sorted(wanted))} takes observed ranges".replace(
            "  ", " "
        )
        raise UsageError(message, hint)
    return [_group(members) for members in chosen]


def _group(members: Sequence[tuple[Recipe, Target]]) -> RangeGroup:
    calibration = members[0][1].calibration
    file = None if calibration is None else calibration.range_file
    for _, target in members:
        if target.calibration is not None and target.calibration.data is None:
            message = "the calibration names no samples to measure ranges on"
            place = target.place(("calibration",))
            raise RecipeError(message, "add 'data: samples.npz'", place)
    if file is None:
        return RangeGroup(None, None, tuple(members))
    return RangeGroup(file.path, file.shown, tuple(members))


def joined_ranges(group: RangeGroup, found: Mapping[str, RangeFile]) -> RangeFile:
    """The ranges of several targets as one file has them.

    Raises:
        RecipeError: they differ.
    """
    joined = found[group.folders[0]]
    for folder, (_, target) in zip(group.folders[1:], group.members[1:], strict=True):
        more = found[folder]
        same = (more.method, more.samples, more.data) == (
            *(joined.method, joined.samples),
            joined.data,
        )
        other = [n for n, r in more.tensors.items() if joined.tensors.get(n, r) != r]
        if not same or other:
            why = f"{other[0]!r} has another range" if other else "they are measured otherwise"
            message = f"{folder} and {group.folders[0]} cannot share {group.name}: {why}"
            hint = "name a range file in the target's own calibration"
            raise RecipeError(message, hint, target.place(("calibration", "range_file")))
        tensors = {**joined.tensors, **more.tensors}
        unseen = tuple(sorted({*joined.unseen, *more.unseen}))
        joined = replace(joined, tensors=tensors, unseen=unseen)
    return joined
