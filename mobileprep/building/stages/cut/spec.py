"""The stage `cut`: its parameters, inputs, outputs, record, and lines of the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from mobileprep.building.plan.sources import data_files
from mobileprep.building.plan.spec import Files, Stage, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import GRAPH, INTERFACE, Frozen
from mobileprep.data.options import Preprocessing
from mobileprep.recipe.model import Target
from mobileprep.recipe.preprocessing import StatedPreprocessing
from mobileprep.recipe.settings import Data, InputSpec


class PreprocessingRecord(Struct, frozen=True):
    """Preprocessing that the app does before the model, ``preprocessing.json``.

    Args:
        preprocessing: the conversion of decoded images or audio to the input.
        summary: the same in one line.
        nodes: number of nodes that the cut removed.
        data: the files of the comparison, or ``drawn`` for random pixels or samples; None if the
            recipe states the preprocessing, so that there is nothing to compare.
        samples: number of samples of the comparison.
        largest_difference: largest difference of the new input or an output between the source and
            the cut graph, as a share of its largest magnitude.
        tolerance: largest permitted difference.
    """

    preprocessing: Preprocessing
    summary: str
    nodes: int = 0
    data: str | None = None
    samples: int = 0
    largest_difference: float | None = None
    tolerance: float | None = None


class CutStage(Stage, frozen=True, kw_only=True):
    """Replace the decoder and the ops that prepare its output with an input.

    Args:
        data: images or audio on which the source and the cut graph must agree; None for random
            values.
        reading: reading options of ``data``.
        graph: the frozen graph.
        interface: its inputs and outputs.
    """

    stage_name: ClassVar[str] = "cut"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "preprocessing.json"
    reported: ClassVar[type[Struct] | None] = PreprocessingRecord

    data: Files | None = None
    reading: Data | None = None
    graph: Upstream
    interface: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The cut graph, its interface, and the record."""
        return (GRAPH, INTERFACE, self.RECORD)


def cut_spec(target: Target, frozen: Frozen) -> StageSpec | None:
    """Return the stage that cuts the preprocessing, if the recipe asks for it."""
    if target.preprocessing != "cut":
        return None
    data = _file_data(target)
    stage = CutStage(
        data=None if data is None else data_files(data),
        reading=data,
        graph=frozen.graph,
        interface=frozen.interface,
    )
    return StageSpec("cut_preprocessing", stage, places(target, "preprocessing", "outputs"))


class StatedStage(Stage, frozen=True, kw_only=True):
    """Check that the stated preprocessing fits the input.

    Args:
        stated: preprocessing of the recipe.
        inputs: inputs that the recipe declares.
        graph: the frozen graph.
        interface: its inputs and outputs.
    """

    stage_name: ClassVar[str] = "stated"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = CutStage.RECORD
    reported: ClassVar[type[Struct] | None] = PreprocessingRecord

    stated: StatedPreprocessing
    inputs: tuple[InputSpec, ...] = ()
    graph: Upstream
    interface: Upstream


def stated_spec(target: Target, frozen: Frozen) -> StageSpec | None:
    """Return the stage that checks the preprocessing that the recipe states, if it does."""
    if not isinstance(target.preprocessing, StatedPreprocessing):
        return None
    stage = StatedStage(
        stated=target.preprocessing,
        inputs=target.inputs,
        graph=frozen.graph,
        interface=frozen.interface,
    )
    return StageSpec("stated_preprocessing", stage, places(target, "preprocessing", "inputs"))


def _file_data(target: Target) -> Data | None:
    """Return the first samples of the recipe that are image or audio files."""
    sections = (target.validation, target.calibration, target.check)
    named = (section.data for section in sections if section is not None)
    return next((d for d in named if d is not None and d.kind in ("pictures", "wav")), None)


def preprocessing_lines(record: PreprocessingRecord) -> Iterator[str]:
    """Yield the preprocessing and, if it was cut from the graph, the comparison with the source."""
    yield f"preprocessing: {record.summary}; input {record.preprocessing.input}"
    if record.largest_difference is not None and record.tolerance is not None:
        samples = f"{record.samples} sample{'s' * (record.samples != 1)}"
        yield (
            f"  agrees with the graph on {samples} ({record.data}): largest difference "
            f"{record.largest_difference:.2g} of the peak, at most {record.tolerance:.0e}"
        )
