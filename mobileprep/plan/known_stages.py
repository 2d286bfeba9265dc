"""The stages of a plan: one that several targets need is planned once."""

from __future__ import annotations

import dataclasses

from mobileprep.plan.canonical import canonical
from mobileprep.plan.spec import StageSpec
from mobileprep.recipe.model import Recipe, Target


class KnownStages:
    """The stages planned so far; one that two targets both need is planned once."""

    def __init__(self) -> None:
        self.stages: list[StageSpec] = []
        self._tasks: dict[str, str] = {}
        self._names: set[str] = set()

    def add(self, recipe: Recipe, target: Target, spec: StageSpec) -> str:
        """Add a stage unless an equal one is planned; its task's name."""
        stage = spec.stage
        key = canonical(
            [
                spec.kind,
                stage.parameters,
                {s: [str(f.path) for f in files.members] for s, files in stage.files.items()},
                {slot: [up.task, up.output] for slot, up in stage.upstream.items()},
            ]
        )
        if key in self._tasks:
            return self._tasks[key]
        name = f"{recipe.name}/{spec.task}"
        if name in self._names:
            name = f"{recipe.name}/{target.folder}/{spec.task}"
        self._names.add(name)
        self._tasks[key] = name
        self.stages.append(dataclasses.replace(spec, task=name))
        return name
