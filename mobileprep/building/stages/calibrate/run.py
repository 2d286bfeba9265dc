"""Determine the ranges of a float graph's tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import structs

from mobileprep.building.plan.engines import EngineChoice
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.calibrate.spec import CalibrateStage, CalibrationRecord
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.running import (
    data_files,
    data_record,
    norm_doubts,
    stage_inputs,
    with_assets,
)
from mobileprep.core.files import sha256_bytes, sha256_file, write_text
from mobileprep.data.calibration.observation import Subject, check_fresh
from mobileprep.data.calibration.range_choice import calibrated
from mobileprep.data.calibration.shards import observed
from mobileprep.data.opening import open_dataset
from mobileprep.data.options import AUTO, MOVING_AVERAGE, Method
from mobileprep.data.source import SampleChoice
from mobileprep.data.survey import DataSurvey
from mobileprep.errors import AccuracyError, UsageError
from mobileprep.formats.range_file import RangeFile, TensorRange, range_file_text, read_range_file
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge, Ref, edge, parse_ref
from mobileprep.graph.tensor_digests import tensor_digests
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.transforms.quantize_nodes import ranged_tensors

_NAMED: Final = 5


def run(job: Job[CalibrateStage]) -> None:
    """Write ``ranges.yaml``, ``calibration.json``, and ``data.json``.

    Raises:
        AccuracyError: the range file is stale, the data does not fit the graph, or a tensor becomes
            NaN or infinite.
        CorruptFileError: the data or the range file cannot be read.
    """
    settings = job.asked
    graph = job.graph(settings.graph)
    interface = job.record(Interface, settings.interface)
    if settings.for_litert:
        graph, interface, tensors = _of_file(job, graph, interface)
    else:
        tensors = ranged_tensors(graph)
    fed = [edge(parse_ref(name)) for name in interface.inputs]
    warnings: list[str] = []
    survey = DataSurvey("" if settings.data is None else settings.data.name)
    digests = {str(Ref(*t)): d for t, d in tensor_digests(graph, tensors, fed).items()}
    if settings.range_file is not None:
        range_file = read_range_file(settings.range_file.root)
        data = None if settings.data is None else _digest(settings)
        where = job.place("calibration")
        method = method_of(settings)
        if range_file.method == str(_measuring(settings)):
            method = _measuring(settings)
        check_fresh(range_file, digests, method, settings.calibration.samples, data, where)
        current = {name: range_file.tensors[name] for name in digests if name in range_file.tensors}
        ranges = RangeFile(current, range_file.method, range_file.samples, range_file.data)
        origin = settings.range_file.name
    else:
        ranges = _measure_ranges(job, graph, interface, tensors, digests, survey, warnings.append)
        warnings += _doubts(job, survey)
        origin = "" if settings.data is None else settings.data.name
    write_text(job.output(settings.RANGES), range_file_text(ranges))
    unseen = tuple(name for name in digests if name not in ranges.tensors)
    record = CalibrationRecord(
        origin,
        settings.range_file is None,
        ranges.method,
        ranges.samples,
        len(ranges.tensors),
        unseen,
        (*warnings, *_warnings(unseen)),
        {name: (measured.low, measured.high) for name, measured in ranges.tensors.items()},
    )
    for warning in record.warnings:
        job.warn(warning)
    job.write_record(settings.RECORD, record)
    job.write_record(settings.DATA, data_record(survey))


def _of_file(
    job: Job[CalibrateStage], graph: Graph, interface: Interface
) -> tuple[Graph, Interface, tuple[Edge, ...]]:
    """Return the graph to convert to .tflite, its interface, and the tensors that need a range.

    Unsupported ops are reported when the file is written.
    """
    # Slow to import, and few targets need it.
    from mobileprep.litert.convert import to_calibrate
    from mobileprep.litert.prepare import CutInput

    specs = [CutInput(name) for name in interface.inputs]
    where = job.place("artifact")
    with with_assets(graph, job.path(job.asked.assets)) as whole:
        prepared = to_calibrate(
            whole,
            specs,
            interface.outputs,
            flex=True,
            # Other engines may not run TensorLists; `auto` leaves those out.
            observes_loops=job.asked.engine is None or job.asked.engine.name == "auto",
            where=where,
        )
    ends = structs.replace(interface, inputs=prepared.inputs, outputs=prepared.outputs)
    return prepared.graph, ends, prepared.tensors


def method_of(settings: CalibrateStage) -> Method:
    """Return the calibration method of the recipe."""
    calibration = settings.calibration
    return Method(calibration.method, calibration.percentile, calibration.decay)


def _measuring(settings: CalibrateStage) -> Method:
    """Return the method that measures: ``auto`` chooses ranges for LiteRT's integers only."""
    method = method_of(settings)
    is_plain = method.name == AUTO and not settings.for_litert
    return structs.replace(method, name="percentile") if is_plain else method


def _measure_ranges(
    job: Job[CalibrateStage],
    graph: Graph,
    interface: Interface,
    tensors: Sequence[Edge],
    digests: dict[str, str],
    survey: DataSurvey,
    warn: Callable[[str], None],
) -> RangeFile:
    """Measure ranges by running the float graph on the samples."""
    settings = job.asked
    assert settings.data is not None
    calibration = settings.calibration
    method = _measuring(settings)
    inputs = stage_inputs(job, graph, interface.inputs)
    fetches = interface.outputs
    if settings.for_litert:
        # The file can have outputs that the interpreter cannot compute.
        fetches = tuple(str(Ref(*tensor)) for tensor in tensors)
    try:
        data = open_dataset(
            data_files(settings.data, calibration.data),
            inputs,
            SampleChoice(calibration.samples, calibration.seed, calibration.strict),
            labels=settings.labels,
        )
        with with_assets(graph, job.path(settings.assets)) as whole:
            engine = settings.engine or EngineChoice("numpy", {})
            subject = Subject(
                whole,
                fetches,
                tuple(tensors),
                method,
                tuple(inputs),
                calibration.batch,
                engine.name,
                tuple(engine.versions),
                tflite_in_memory,
                interface.outputs,
            )
            seen = observed(
                subject,
                data,
                workers=calibration.workers,
                dask=calibration.dask,
                warn=warn,
                tell=job.progress,
                survey=survey,
            )
            measured = calibrated(subject, data, seen)
    except (AccuracyError, UsageError) as error:
        where = error.where or job.place("calibration")
        raise AccuracyError(error.message, error.hint, where) from error
    by_name = {
        str(Ref(*tensor)): TensorRange(
            *ends, digests[str(Ref(*tensor))], measured.sixteen.get(tensor)
        )
        for tensor, ends in measured.ranges.items()
    }
    return RangeFile(
        {name: by_name[name] for name in digests if name in by_name},
        str(method_of(settings)),
        measured.samples,
        _digest(settings),
        tuple(n for n in digests if n not in by_name),
    )


def _doubts(job: Job[CalibrateStage], survey: DataSurvey) -> Iterator[str]:
    """Yield warnings about samples that do not match the training data of the source."""
    settings = job.asked
    source = job.graph(settings.source)
    names = job.record(Interface, settings.interface).inputs
    inputs = stage_inputs(job, source, names)
    yield from survey.doubts(source, inputs)
    assert settings.data is not None
    with with_assets(source, job.path(settings.assets)) as whole:
        yield from norm_doubts(data_files(settings.data, settings.calibration.data), whole, inputs)


def _digest(settings: CalibrateStage) -> str:
    """Compute a digest of the samples: all files, reading options, and the sample selection."""
    assert settings.data is not None
    calibration, parameters = settings.calibration, settings.parameters
    drawn: dict[str, object] = {
        "data": parameters["calibration"]["data"],
        "labels": settings.labels,
        "inputs": parameters["inputs"],
        "samples": calibration.samples,
        "seed": calibration.seed,
        "files": [[f.name, sha256_file(f.path)] for f in settings.data.members],
    }
    # Moving averages depend on the batch size.
    if calibration.method == MOVING_AVERAGE:
        drawn["batch"] = calibration.batch
    return sha256_bytes(json.dumps(drawn, sort_keys=True).encode())


def _warnings(unseen: Sequence[str]) -> list[str]:
    if not unseen:
        return []
    named = ", ".join(map(repr, unseen[:_NAMED])) + (", ..." if len(unseen) > _NAMED else "")
    message = f"no sample reached {len(unseen)} tensors ({named}), which get no range"
    return [f"{message}; take samples that take every branch"]
