"""The stage `calibrate`: its parameters, inputs, outputs, record, and lines of the report."""

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
from mobileprep.recipe.settings import InputSpec
from mobileprep.recipe.validation_settings import Calibration


class CalibrationRecord(Struct, frozen=True):
    """Source of ranges, ``calibration.json``.

    Args:
        origin: the range file or the data, as named in the recipe.
        is_measured: whether the stage measured the ranges itself.
        method: calibration method.
        samples: number of samples.
        tensors: number of tensors with a range.
        unseen: tensors that no sample reached, for example in untaken branches.
        warnings: reasons why the ranges may be unreliable.
        ranges: lower and upper end of each tensor's range.
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
    """Determine the ranges of a float graph's tensors, from a range file or by running samples.

    Args:
        calibration: calibration settings; ``workers`` and ``dask`` are not parameters.
        data: the samples; None if they do not exist but a range file does.
        labels: default name of the labels, which are not inputs.
        inputs: the inputs.
        range_file: the checked-in range file, or None.
        graph: the float graph.
        source: the model before any transform, for comparison with its training data.
        interface: inputs and outputs.
        assets: files that the graph reads.
        regular_expressions: the interpreter's regular expression engine, with its version.
        for_litert: whether the ranges are for a .tflite file.
        engine: engine that runs the samples; None for the interpreter.
    """

    stage_name: ClassVar[str] = "calibrate"
    stage_version: ClassVar[int] = 9
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
        return (self.RANGES, self.RECORD, self.DATA)


class DataRecord(Struct, frozen=True):
    """The samples that a stage ran, ``data.json``.

    Args:
        name: name in the recipe.
        ends: minimum and maximum of each input.
        digests: digest of each sample.
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
    """Return the stage that determines the ranges of a float graph."""
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
    """Return the samples and the range file. Only one of them must exist."""
    named, data = calibration.range_file, calibration.data
    if named is not None and named.path.is_file():
        has_samples = data is not None and all(f.path.exists() for f in (data.file, *data.beside))
        return data_files(data) if data is not None and has_samples else None, single_file(named)
    if data is not None:
        return data_files(data), None
    hint = "name samples, 'data: samples.npz', and run 'mobileprep calibrate' to write it"
    name, place = ("", "") if named is None else (named.shown, named.place)
    message = f"the range file {name} does not exist"
    raise CorruptFileError(message, hint, place)


def calibration_members(target: Target) -> Iterator[StageFile]:
    """Yield the external files that a target's calibration reads."""
    if target.calibration is None or not target.takes_ranges:
        return
    for files in calibration_files(target.calibration):
        yield from () if files is None else files.members


def calibration_lines(calibration: CalibrationRecord) -> Iterator[str]:
    yield f"ranges   {calibration_text(calibration)}"
    yield from (f"  warning: {warning}" for warning in calibration.warnings)


def calibration_text(record: CalibrationRecord) -> str:
    """Describe the number of ranges, their source and method, and the number of missing ones."""
    tensors = f"{record.tensors:,} tensor{'s' * (record.tensors != 1)}"
    samples = f"{record.samples:,} sample{'s' * (record.samples != 1)}"
    if record.is_measured:
        text = f"of {tensors} measured by {record.method} on {samples} of {record.origin}"
    else:
        text = f"of {tensors} from {record.origin}, by {record.method} on {samples}"
    return f"{text}; {len(record.unseen):,} not reached" if record.unseen else text
