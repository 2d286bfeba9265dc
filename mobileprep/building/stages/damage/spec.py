"""The stage `damage`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct

from mobileprep.building.plan.engines import regex_engine
from mobileprep.building.plan.sources import data_files, labels_of
from mobileprep.building.plan.spec import Files, Stage, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import GRAPH, Frozen
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputSpec


class DamageRecord(Struct, frozen=True):
    """What quantizing has done to each tensor of a graph, ``damage.json``.

    Args:
        data: the samples' file, as the recipe names it.
        samples: how many were run.
        tensors: those that can be compared, by signal to noise, the lowest first.
        unmeasured: why nothing was measured; empty where it was.
    """

    data: str
    samples: int
    tensors: tuple[TensorRecord, ...] = ()
    unmeasured: str = ""


# So few tell which tensors lose most, and cost less than a validation.
_SAMPLES: Final = 16


class DamageStage(Stage, frozen=True, kw_only=True):
    """Compares the tensors of a float graph with those of what quantizing made of it.

    Args:
        data: the samples.
        reading: how they are read; None where their content tells.
        labels: the name of their labels, which are not fed, where ``reading`` does not say.
        count: how many samples, or all of fewer.
        inputs: what is fed.
        graph: the float graph.
        quantized: the other.
        interface: what is fed and fetched.
        assets: the files that the graphs read.
        regular_expressions: what the interpreter runs them by, with its version.
    """

    stage_name: ClassVar[str] = "damage"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "damage.json"
    reported: ClassVar[type[Struct] | None] = DamageRecord

    data: Files
    reading: Data | None = None
    labels: str = "label"
    count: int
    inputs: tuple[InputSpec, ...] = ()
    graph: Upstream
    quantized: Upstream
    interface: Upstream
    assets: Upstream
    regular_expressions: str = ""

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


class TensorRecord(Struct, frozen=True):
    """What quantizing has done to a tensor.

    Args:
        tensor: its name in the float graph: ``node`` or ``node:1``.
        op: of the node that makes it.
        is_weights: whether it is a constant, and not an activation.
        is_eightbit: whether it is kept in eight bits itself, and not only made of what is.
        sqnr: signal to quantization noise in dB, from -200 to 200.
        cosine: of the angle between both, as vectors.
        clipped: the share of float values beyond the range by more than half a step; None where
            there is no range.
        rmse_over_scale: the root mean square of the errors, in steps; None where there are none.
            Rounding alone gives 0.289.
    """

    tensor: str
    op: str
    is_weights: bool
    is_eightbit: bool
    sqnr: float
    cosine: float
    clipped: float | None
    rmse_over_scale: float | None


_NODES: Final = frozenset({"quantize_nodes"})


_WEIGHTS: Final = frozenset(
    {"quantize_weights", "round_weights", "linear_quantize_weights", "cast_weights"}
)


def damage_spec(target: Target, frozen: Frozen, steps: Sequence[str]) -> StageSpec | None:
    """The stage that compares the graph before a target quantizes with the one after.

    Returns:
        None where nothing is quantized, there are no samples, or the recipe does not want it.
    """
    data = _data(target)
    asked = target.quantization_report
    wanted = {None: _NODES, False: frozenset[str](), True: _NODES | _WEIGHTS}[asked]
    places_of_steps = [at for at, step in enumerate(target.transforms) if step.name in wanted]
    if data is None or not places_of_steps:
        return None
    first, last = places_of_steps[0], places_of_steps[-1]
    stage = DamageStage(
        data=data_files(data),
        reading=data,
        labels=labels_of(target),
        count=_SAMPLES,
        inputs=target.inputs,
        graph=Upstream(steps[first - 1], GRAPH) if first else frozen.graph,
        quantized=Upstream(steps[last], GRAPH),
        interface=frozen.interface,
        assets=frozen.assets,
        regular_expressions=regex_engine(),
    )
    label = f"{last + 1:02d}-{target.transforms[last].name}-damage"
    return StageSpec(label, stage, places(target, "inputs", "outputs"))


def _data(target: Target) -> Data | None:
    """The validation's samples, else the calibration's; none that are not there.

    A range file does without samples, and so does this.
    """
    if target.validation is not None:
        return target.validation.data
    data = None if target.calibration is None else target.calibration.data
    return data if data is not None and data.file.path.exists() else None
