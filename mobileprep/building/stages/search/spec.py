"""The stages by which `quantize: auto` searches for layers to leave out of 8-bit arithmetic.

Trials run one after another: each builds a graph from the results of the trials before it, an
evaluation runs it, and a verdict adds its result. After the first trial, which has all layers in
8 bits, a stage ranks the layers unless the result is good enough. Once everything was tried, a
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
from mobileprep.building.stages.evaluate.spec import SOURCE_LABEL, evaluate_spec, labeled
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.building.stages.transform.spec import TransformRecord
from mobileprep.building.stages.validate.spec import ValidateStage, comparison
from mobileprep.recipe.model import ParameterValue, Target
from mobileprep.recipe.settings import Data, InputSpec
from mobileprep.recipe.validation_settings import Validation


class SearchStage(Stage, frozen=True, kw_only=True):
    """Common fields of stages that quantize the graph.

    Args:
        options: options of ``quantize_nodes`` from the recipe.
        graph: the float graph.
        ranges: range file of the calibration.
        interface: inputs and outputs.
        regular_expressions: regular expression engine for the rules, with its version.
    """

    GRAPH: ClassVar[str] = "graph.pb"

    options: Mapping[str, ParameterValue]
    graph: Upstream
    ranges: Upstream
    interface: Upstream
    regular_expressions: str = ""


class RankStage(SearchStage, frozen=True, kw_only=True):
    """Quantize one layer at a time, and rank them by the error of the outputs.

    Args:
        tries: result of the first try; if it meets the limits, no layer is ranked.
        data: the samples.
        reading: reading options; None to detect them from the content.
        samples: maximum number of samples.
        inputs: the inputs.
        assets: files that the graph reads.
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


class TrialStage(SearchStage, frozen=True, kw_only=True):
    """Quantize the graph with the next rules to try, or with the best ones after the last try.

    Args:
        ranking: layers by error, largest first; None for the first try.
        tries: results of the tries before it; None for the first.
    """

    stage_name: ClassVar[str] = "trial"
    stage_version: ClassVar[int] = 5
    RECORD: ClassVar[str] = "trial.json"

    ranking: Upstream | None = None
    tries: Upstream | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        """The graph and the record."""
        return (self.GRAPH, self.RECORD)


class VerdictStage(ValidateStage, frozen=True, kw_only=True):
    """Compare a try with the validation's limits, without failing.

    Args:
        trial: record of the trial.
        tries: results of the tries before it; None for the first.
    """

    stage_name: ClassVar[str] = "verdict"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "tries.json"
    reported: ClassVar[type[Struct] | None] = None

    trial: Upstream
    tries: Upstream | None = None


class ChoiceStage(SearchStage, frozen=True, kw_only=True):
    """Quantize the graph with the best rules that were tried. This is the step of the recipe.

    Args:
        earlier: names of the transforms before it, for warnings.
        ranking: layers by error, largest first.
        tries: results of all tries.
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
        """The graph, the record of a step, and the data for the report page."""
        return (self.GRAPH, self.RECORD, PAGE)


class RankedLayer(Struct, frozen=True):
    """Error of the outputs if a single layer is quantized.

    Args:
        layer: name in the float graph.
        op: op of the layer.
        sqnr: lowest signal-to-noise ratio of any output, in dB.
    """

    layer: str
    op: str
    sqnr: float


class RankingRecord(Struct, frozen=True):
    """Layers that may be excluded from 8-bit arithmetic, ``ranking.json``.

    Args:
        samples: number of samples; 0 if all layers can be 8-bit.
        layers: layers by error, largest first; empty if all layers can be 8-bit.
        fixed: number of other layers, which the recipe's rules determine.
    """

    samples: int
    layers: tuple[RankedLayer, ...]
    fixed: int


class TrialRecord(Struct, frozen=True):
    """Quantization of a trial's graph, ``trial.json``.

    Args:
        floats: number of layers to keep in float, from the largest error.
        weights: number of the following layers with only 8-bit weights.
        is_new: whether it was not tried before.
    """

    floats: int
    weights: int
    is_new: bool


class TryRecord(Struct, frozen=True):
    """Result of a try.

    Args:
        floats, weights: see ``TrialRecord``.
        shortfall: largest amount by which a limit is missed, in the metric's unit; 0 if all are
            met, None if the outputs cannot be compared.
        told: a sentence for each missed limit.
    """

    floats: int
    weights: int
    shortfall: float | None
    told: tuple[str, ...]


class TriesRecord(Struct, frozen=True):
    """Results of all tries so far, ``tries.json``."""

    tries: tuple[TryRecord, ...]


class SearchPlanner(Struct, frozen=True):
    """Plan the search that replaces a step of a target.

    Args:
        target: the target.
        validation: its validation, which has the limits.
        label: label of the step.
        number: number of the step, from 1.
        graph: the float graph.
        ranges: range file of its tensors.
        frozen: outputs of the freeze stage.
        add: function that adds a stage to the plan and returns its task.
        tasks: list that receives the tasks before the last one.
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
        """Plan the search, and return the task that writes the graph and the step's record."""
        steps = self.target.transforms
        label = labeled(SOURCE_LABEL, self.validation)
        before = self._add(
            evaluate_spec(self.target, self.validation, label, self.frozen, looks_at_data=True)
        )
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
        """Plan one try. Return the results of all tries including it."""
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
