"""The stages by which `quantize: auto` searches for the operators of a .tflite file to except.

They are like those of ``stages/search``: trials run one after another, an evaluation runs each
file, and a verdict adds its result. The first trial has everything in int8. After it, a stage ranks
exceptions unless the result is good enough; each other trial makes the first of them, as many as a
bisection asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct

from mobileprep.building.plan.engines import Measured, litert_choice, regex_engine
from mobileprep.building.plan.sources import data_files
from mobileprep.building.plan.spec import Files, Stage, StageSpec, Upstream, places
from mobileprep.building.stages.evaluate.spec import SOURCE_LABEL, evaluate_spec, labeled
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.building.stages.search.spec import VerdictStage
from mobileprep.building.stages.validate.spec import comparison
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputSpec
from mobileprep.recipe.validation_settings import Quantize, Validation
from mobileprep.targets.targets import Device


class ExceptionStage(Stage, frozen=True, kw_only=True):
    """Common fields of stages that convert the graph.

    Args:
        quantize: the settings of the recipe.
        min_runtime: oldest release that must run the file; empty for any.
        graph: the float graph after all transforms.
        ranges: range file of the calibration.
        interface: inputs and outputs.
        assets: files that the graph reads.
        regular_expressions: regular expression engine for the rules, with its version.
    """

    quantize: Quantize
    min_runtime: str = ""
    graph: Upstream
    ranges: Upstream
    interface: Upstream
    assets: Upstream
    regular_expressions: str = ""


class RankExceptionsStage(ExceptionStage, frozen=True, kw_only=True):
    """Round one tensor at a time, and rank exceptions by the error that they remove.

    Args:
        tries: result of the first try; if it meets the limits, nothing is ranked.
        data: the samples.
        reading: reading options; None to detect them from the content.
        samples: maximum number of samples.
        inputs: the inputs.
        engine: version of LiteRT's interpreter.
    """

    stage_name: ClassVar[str] = "rank_exceptions"
    stage_version: ClassVar[int] = 2
    RECORD: ClassVar[str] = "ranking.json"

    tries: Upstream
    data: Files
    reading: Data | None = None
    samples: int = 16
    inputs: tuple[InputSpec, ...] = ()
    engine: str


class TryExceptionsStage(ExceptionStage, frozen=True, kw_only=True):
    """Convert the graph with the next exceptions to try, or the best ones after the last try.

    Args:
        file: name of the file.
        ranking: ranked exceptions; None for the first try.
        tries: results of the tries before it; None for the first.
    """

    stage_name: ClassVar[str] = "try_exceptions"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "trial.json"

    file: str
    ranking: Upstream | None = None
    tries: Upstream | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        """The file and the record."""
        return (self.file, self.RECORD)


MODES: Final = ("int16x8", "float")
"""Modes of exceptions."""


def nodes_by_mode(
    exceptions: Sequence[RankedException | ChosenException],
) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each mode of several exceptions, without empty modes.

    A node that is in both is in float.
    """
    wide, floats = (
        dict.fromkeys(name for one in exceptions for name in one.modes.get(mode, ()))
        for mode in MODES
    )
    modes = {"int16x8": tuple(n for n in wide if n not in floats), "float": tuple(floats)}
    return {mode: names for mode, names in modes.items() if names}


class ExceptionsRecord(Struct, frozen=True):
    """The exceptions that ``quantize: auto`` chose, ``exceptions.json``.

    Args:
        rules: rules that make them, in the syntax of recipes.
        int8_macs: share of the multiply-accumulates in int8.
        integer_macs: share of the multiply-accumulates in int8 or with 16-bit activations.
        tries: number of files that were measured.
        exceptions: the exceptions in the order of their effect; empty if all is in int8.
        device: title of the device of the latencies; empty without one.
    """

    rules: tuple[str, ...]
    int8_macs: float
    integer_macs: float
    tries: int
    exceptions: tuple[ChosenException, ...]
    device: str = ""


class ChosenException(Struct, frozen=True):
    """Operators that compute more precisely than in int8, and the cost.

    Args:
        modes: nodes of each mode: ``int16x8`` and ``float``.
        int8_macs: share of the multiply-accumulates in int8 after it.
        gain: by how many dB it reduces the error of the outputs.
        bytes: by how many bytes it makes the file larger.
        latency_ms: by how many milliseconds the estimated latency rises; None without a device.
    """

    modes: Mapping[str, tuple[str, ...]]
    int8_macs: float
    gain: float
    bytes: int
    latency_ms: float | None = None


class ChooseExceptionsStage(ExceptionStage, frozen=True, kw_only=True):
    """Choose the best exceptions that were tried.

    Args:
        ranking: ranked exceptions.
        tries: results of all tries.
        device: device for the latency.
    """

    stage_name: ClassVar[str] = "choose_exceptions"
    stage_version: ClassVar[int] = 2
    RECORD: ClassVar[str] = "exceptions.json"
    reported: ClassVar[type[Struct] | None] = ExceptionsRecord

    ranking: Upstream
    tries: Upstream
    device: Device | None = None


class RankedException(Struct, frozen=True):
    """Operators to except together, in addition to those before.

    Args:
        modes: nodes of each mode: ``int16x8`` and ``float``.
        int8_macs: share of the multiply-accumulates in int8 after it.
        integer_macs: the same in int8 or with 16-bit activations.
        error: error of the outputs after it, in dB of their signal.
    """

    modes: Mapping[str, tuple[str, ...]]
    int8_macs: float
    integer_macs: float
    error: float


class ExceptionRanking(Struct, frozen=True):
    """Exceptions by their effect, ``ranking.json``.

    Args:
        samples: number of samples; 0 if everything can be in int8.
        int8_macs: share of the multiply-accumulates in int8 without exceptions.
        error: error of the outputs without exceptions, in dB of their signal.
        exceptions: the exceptions, each in addition to those before.
    """

    samples: int
    int8_macs: float
    error: float
    exceptions: tuple[RankedException, ...]


class ExceptionPlanner(Struct, frozen=True):
    """Plan the search for the exceptions of a target.

    Args:
        target: the target.
        validation: its validation, which has the limits.
        file: name of the file.
        graph: the float graph after all transforms.
        ranges: range file of its tensors.
        frozen: outputs of the freeze stage.
        add: function that adds a stage to the plan and returns its task.
        tasks: list that receives the tasks.
    """

    target: Target
    validation: Validation
    file: str
    graph: Upstream
    ranges: Upstream
    frozen: Frozen
    add: Callable[[StageSpec], str]
    tasks: list[str]

    def plan(self) -> Upstream:
        """Plan the search, and return the record of the chosen exceptions."""
        label = labeled(SOURCE_LABEL, self.validation)
        before = self._add(
            evaluate_spec(self.target, self.validation, label, self.frozen, looks_at_data=True)
        )
        tries = self._try(1, before)
        ranking = Upstream(self._add(self._rank(tries)), RankExceptionsStage.RECORD)
        for number in range(2, self.target.quantize.trials + 1):
            tries = self._try(number, before, ranking, tries)
        choice = ChooseExceptionsStage(
            ranking=ranking, tries=tries, device=self.target.device, **self._shared()
        )
        return Upstream(self._add(self._spec("choice", choice)), ChooseExceptionsStage.RECORD)

    def _try(
        self,
        number: int,
        before: str,
        ranking: Upstream | None = None,
        tries: Upstream | None = None,
    ) -> Upstream:
        """Plan one try. Return the results of all tries including it."""
        stage = TryExceptionsStage(file=self.file, ranking=ranking, tries=tries, **self._shared())
        trial = self._add(self._spec(f"trial-{number}", stage))
        model = {
            "graph": self.graph,
            "engine": litert_choice(self.target, self.validation),
            "lite": Upstream(trial, self.file),
            "measured": Measured(name=self.file),
        }
        label = self._label(f"evaluate-{number}")
        after = self._add(evaluate_spec(self.target, self.validation, label, self.frozen, model))
        verdict = VerdictStage(
            trial=Upstream(trial, TryExceptionsStage.RECORD),
            tries=tries,
            **comparison(self.validation, before, after),
        )
        return Upstream(self._add(self._spec(f"verdict-{number}", verdict)), VerdictStage.RECORD)

    def _rank(self, tries: Upstream) -> StageSpec:
        engine = litert_choice(self.target, self.validation)
        assert engine is not None  # The recipe was checked.
        stage = RankExceptionsStage(
            tries=tries,
            data=data_files(self.validation.data),
            reading=self.validation.data,
            inputs=self.target.inputs,
            engine="".join(engine.versions.values()),
            **self._shared(),
        )
        return self._spec("rank", stage)

    def _shared(self) -> dict[str, Any]:
        return {
            "quantize": self.target.quantize,
            "min_runtime": self.target.min_runtime,
            "graph": self.graph,
            "ranges": self.ranges,
            "interface": self.frozen.interface,
            "assets": self.frozen.assets,
            "regular_expressions": regex_engine(),
        }

    def _label(self, name: str) -> str:
        return f"{self.target.folder}/exceptions-{name}"

    def _spec(self, name: str, stage: Stage) -> StageSpec:
        where = places(self.target, "inputs", "outputs", "validation", "artifact", "quantize")
        return StageSpec(self._label(name), stage, where)

    def _add(self, spec: StageSpec) -> str:
        task = self.add(spec)
        self.tasks.append(task)
        return task
