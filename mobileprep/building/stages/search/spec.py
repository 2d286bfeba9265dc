"""The stages by which `quantize: auto` searches for layers to leave out of 8-bit arithmetic.

Trials run one after another: each builds a graph from the results of the trials before it, an
evaluation runs it, and a verdict adds its result. After the first trial, which has all layers in
8 bits, a stage ranks the layers unless the result is good enough. Once nothing is left to try, a
trial returns the best graph again and a verdict the same history, so that later stages are hits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.plan.engines import regex_engine
from mobileprep.building.plan.sources import data_files
from mobileprep.building.plan.spec import PAGE, Files, Stage, StageSpec, Upstream, places
from mobileprep.building.stages.evaluate.spec import SOURCE_LABEL, evaluate_spec
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.building.stages.transform.spec import TransformRecord
from mobileprep.building.stages.validate.spec import ValidateStage, comparison
from mobileprep.recipe.model import ParameterValue, Target
from mobileprep.recipe.settings import Data, InputSpec
from mobileprep.recipe.validation_settings import Validation


class SearchStage(Stage, frozen=True, kw_only=True):
    """What all of them have that quantize the graph.

    Args:
        options: those of ``quantize_nodes`` as the recipe has them.
        graph: the float graph.
        ranges: the range file that the calibration leaves.
        interface: what is fed and fetched.
        regular_expressions: what rules run by, with its version.
    """

    GRAPH: ClassVar[str] = "graph.pb"

    options: Mapping[str, ParameterValue]
    graph: Upstream
    ranges: Upstream
    interface: Upstream
    regular_expressions: str = ""


class RankStage(SearchStage, frozen=True, kw_only=True):
    """Quantizes one layer at a time, and ranks them by what that does to the outputs.

    Args:
        tries: what the first try came to; where that holds, no layer is ranked.
        data: the samples.
        reading: how they are read; None where their content tells.
        samples: how many are run at most.
        inputs: what is fed.
        assets: the files that the graph reads.
    """

    stage_name: ClassVar[str] = "rank"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "ranking.json"

    tries: Upstream
    data: Files
    reading: Data | None = None
    samples: int = 8
    inputs: tuple[InputSpec, ...] = ()
    assets: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


class TrialStage(SearchStage, frozen=True, kw_only=True):
    """Quantizes the graph by the next rules to try; the best again where nothing is left to try.

    Args:
        ranking: the layers, the worst first; None for the first try.
        tries: what the tries before it came to; None for the first.
    """

    stage_name: ClassVar[str] = "trial"
    stage_version: ClassVar[int] = 5
    RECORD: ClassVar[str] = "trial.json"

    ranking: Upstream | None = None
    tries: Upstream | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        """The graph, and what was tried."""
        return (self.GRAPH, self.RECORD)


class VerdictStage(ValidateStage, frozen=True, kw_only=True):
    """Judges a try as the validation judges what ships, and fails for none of it.

    Args:
        trial: what was tried.
        tries: what the tries before it came to; None for the first.
    """

    stage_name: ClassVar[str] = "verdict"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "tries.json"
    reported: ClassVar[type[Struct] | None] = None

    trial: Upstream
    tries: Upstream | None = None


class ChoiceStage(SearchStage, frozen=True, kw_only=True):
    """Quantizes the graph by the best rules that were tried: the step that the recipe asks for.

    Args:
        earlier: the transforms before it, for cautions.
        ranking: the layers, the worst first.
        tries: what all tries came to.
    """

    stage_name: ClassVar[str] = "choice"
    stage_version: ClassVar[int] = 4
    RECORD: ClassVar[str] = "step.json"
    reported: ClassVar[type[Struct] | None] = TransformRecord

    earlier: tuple[str, ...] = ()
    ranking: Upstream
    tries: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The graph, the record of a step, and the page's part."""
        return (self.GRAPH, self.RECORD, PAGE)


class RankedLayer(Struct, frozen=True):
    """What quantizing one layer alone does to the outputs.

    Args:
        layer: its name in the float graph.
        op: its op.
        sqnr: signal to noise in dB, of the output where it is lowest.
    """

    layer: str
    op: str
    sqnr: float


class RankingRecord(Struct, frozen=True):
    """The layers that may be left out of eight bits, ``ranking.json``.

    Args:
        samples: how many were run; 0 where all layers in eight bits are good enough.
        layers: the worst first; none in that case.
        fixed: how many others are quantized as the recipe's rules say.
    """

    samples: int
    layers: tuple[RankedLayer, ...]
    fixed: int


class TrialRecord(Struct, frozen=True):
    """How a graph was quantized, ``trial.json``.

    Args:
        floats: how many of the worst layers are left in float.
        weights: how many of the next worst have their weights alone in eight bits.
        is_new: whether it has not been tried before.
    """

    floats: int
    weights: int
    is_new: bool


class TryRecord(Struct, frozen=True):
    """What a try came to.

    Args:
        floats, weights: see ``TrialRecord``.
        shortfall: how far the limits are missed, in the metrics' units, the largest of them; 0
            where they hold, None where the outputs cannot be compared.
        told: a sentence for each limit that is missed.
    """

    floats: int
    weights: int
    shortfall: float | None
    told: tuple[str, ...]


class TriesRecord(Struct, frozen=True):
    """What all tries so far came to, ``tries.json``."""

    tries: tuple[TryRecord, ...]


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
