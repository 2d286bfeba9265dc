"""The stage `calibrate`: its parameters, inputs, outputs, and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field

from mobileprep.building.plan.engines import EngineChoice, engine_choice, regex_engine
from mobileprep.building.plan.sources import data_files, labels_of, single_file
from mobileprep.building.plan.spec import Files, Stage, StageFile, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data, InputSpec
from mobileprep.recipe.validation_settings import Calibration


class CalibrationRecord(Struct, frozen=True):
    """Where ranges come from, ``calibration.json``.

    Args:
        origin: the range file or the data, as the recipe names it.
        is_measured: whether the stage has measured them itself.
        method: how they were found.
        samples: on how many samples.
        tensors: how many have a range.
        unseen: those that no sample reached, as in branches that were never taken.
        warnings: what makes the ranges worth less than they seem.
        ranges: the lower and the upper end of each tensor's range.
    """

    origin: str
    is_measured: bool
    method: str
    samples: int
    tensors: int
    unseen: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


class CalibrateStage(Stage, frozen=True, kw_only=True):
    """The ranges of a float graph's tensors: of a range file, or measured on samples.

    Args:
        calibration: how they are measured; where that runs is no parameter.
        data: the samples; None where they are not there and a range file is.
        labels: the name of their labels, which are not fed, where the data does not say.
        inputs: what is fed.
        range_file: the ranges that were checked in, or None.
        graph: the float graph.
        source: the model before any transform, which shows what its inputs were trained with.
        interface: what is fed and fetched.
        assets: the files that the graph reads.
        regular_expressions: what the interpreter runs them by, with its version.
        for_litert: whether the ranges are for a file that LiteRT runs.
        engine: the engine that runs the samples; None for the interpreter.
    """

    stage_name: ClassVar[str] = "calibrate"
    stage_version: ClassVar[int] = 6
    RANGES: ClassVar[str] = "ranges.yaml"
    DATA: ClassVar[str] = "data.json"
    RECORD: ClassVar[str] = "calibration.json"
    reported: ClassVar[type[Struct] | None] = CalibrationRecord

    calibration: Calibration
    data: Files | None = None
    labels: str = "label"
    inputs: tuple[InputSpec, ...] = ()
    range_file: Files | None = None
    graph: Upstream
    source: Upstream
    interface: Upstream
    assets: Upstream
    regular_expressions: str = ""
    for_litert: bool = False
    engine: EngineChoice | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        """The ranges, the record, and the record of the data."""
        return (self.RANGES, self.RECORD, self.DATA)


class DataRecord(Struct, frozen=True):
    """The samples that a stage has run, ``data.json``.

    Args:
        name: what the recipe calls them.
        ends: the least and the greatest value of each input.
        digests: of each sample.
    """

    name: str = ""
    ends: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    digests: tuple[str, ...] = ()


def calibrate_spec(
    target: Target,
    calibration: Calibration,
    label: str,
    graph: Upstream,
    frozen: Frozen,
    *,
    for_litert: bool = False,
) -> StageSpec:
    """The stage that finds the ranges of a float graph."""
    data, range_file = calibration_files(calibration)
    stage = CalibrateStage(
        calibration=calibration,
        data=data,
        labels=labels_of(target),
        inputs=target.inputs,
        range_file=range_file,
        graph=graph,
        source=frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
        regular_expressions=regex_engine(),
        for_litert=for_litert,
        engine=engine_choice(target) if range_file is None and target.engine != "numpy" else None,
    )
    where = places(target, "calibration", "inputs", "outputs", "artifact", "engine")
    return StageSpec(label, stage, where)


def calibration_files(calibration: Calibration) -> tuple[Files | None, Files | None]:
    """The samples, and the range file; either may be missing where the other is there."""
    named, data = calibration.range_file, calibration.data
    if named is not None and named.path.is_file():
        known = None if data is None or not _is_there(data) else data_files(data)
        return known, single_file(named)
    if data is not None:
        return data_files(data), None
    hint = "name samples, 'data: samples.npz', and run 'mobileprep calibrate' to write it"
    name, place = ("", "") if named is None else (named.shown, named.place)
    message = f"the range file {name} does not exist"
    raise CorruptFileError(message, hint, place)


def _is_there(data: Data) -> bool:
    return all(named.path.exists() for named in (data.file, *data.beside))


def calibration_members(target: Target) -> Iterator[StageFile]:
    """The files from outside that a target's calibration reads."""
    if target.calibration is None or not target.takes_ranges:
        return
    for files in calibration_files(target.calibration):
        yield from () if files is None else files.members
