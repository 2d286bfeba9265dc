"""The stages of ``quantize: auto``: a ranking of the layers, tries one after another, a choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.plan.checks import Frozen
from mobileprep.building.plan.regular_expressions import regex_engine
from mobileprep.building.plan.search_stages import ChoiceStage, RankStage, TrialStage, VerdictStage
from mobileprep.building.plan.sources import data_files
from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.plan.validation import SOURCE_LABEL, comparison, evaluate_spec
from mobileprep.recipe.model import Target
from mobileprep.recipe.validation_settings import Validation


class SearchPlanner(Struct, frozen=True):
    """Plans the search that stands in the place of a target's step.

    Args:
        target: the target.
        validation: its validation, whose limits are to hold.
        label: the step's.
        number: the step's, from 1.
        graph: the float graph.
        ranges: the range file of its tensors.
        frozen: what freezing left.
        add: adds a stage to the plan, and gives its task.
        tasks: takes those that were added before the last one.
    """

    target: Target
    validation: Validation
    label: str
    number: int
    graph: Upstream
    ranges: Upstream
    frozen: Frozen
    add: Callable[[StageSpec], str]
    tasks: list[str]

    def plan(self) -> str:
        """The task that leaves the quantized graph and the step's record."""
        steps = self.target.transforms
        before = self._add(evaluate_spec(self.target, self.validation, SOURCE_LABEL, self.frozen))
        tries = self._try(1, before)
        ranking = Upstream(self._add(self._rank(tries)), RankStage.RECORD)
        for number in range(2, steps[self.number - 1].trials + 1):
            tries = self._try(number, before, ranking, tries)
        earlier = tuple(s.name for s in steps[: self.number - 1])
        choice = ChoiceStage(
            earlier=earlier,
            ranking=ranking,
            tries=tries,
            **self._shared(),
        )
        return self.add(self._spec("", choice))

    def _try(
        self,
        number: int,
        before: str,
        ranking: Upstream | None = None,
        tries: Upstream | None = None,
    ) -> Upstream:
        """One try; what all tries up to it came to."""
        stage = TrialStage(ranking=ranking, tries=tries, **self._shared())
        trial = self._add(self._spec(f"-trial-{number}", stage))
        graph = replace(self.frozen, graph=Upstream(trial, TrialStage.GRAPH))
        label = f"{self.label}-evaluate-{number}"
        after = self._add(evaluate_spec(self.target, self.validation, label, graph))
        verdict = VerdictStage(
            trial=Upstream(trial, TrialStage.RECORD),
            tries=tries,
            **comparison(self.validation, before, after),
        )
        task = self._add(self._spec(f"-verdict-{number}", verdict))
        return Upstream(task, VerdictStage.RECORD)

    def _rank(self, tries: Upstream) -> StageSpec:
        data = self.validation.data
        stage = RankStage(
            tries=tries,
            data=data_files(data),
            reading=data,
            inputs=self.target.inputs,
            assets=self.frozen.assets,
            **self._shared(),
        )
        return self._spec("-rank", stage)

    def _shared(self) -> dict[str, Any]:
        return {
            "options": self.target.transforms[self.number - 1].options,
            "graph": self.graph,
            "ranges": self.ranges,
            "interface": self.frozen.interface,
            "regular_expressions": regex_engine(),
        }

    def _spec(self, suffix: str, stage: Stage) -> StageSpec:
        where = places(self.target, "inputs", "outputs", "validation")
        step = self.target.transforms[self.number - 1]
        return StageSpec(f"{self.label}{suffix}", stage, {**where, "transforms": step.place})

    def _add(self, spec: StageSpec) -> str:
        task = self.add(spec)
        self.tasks.append(task)
        return task
