"""The calibrate stage: ranges of a float graph's tensors, for the step that quantizes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.calibration.methods import Method
from mobileprep.calibration.observation import Subject
from mobileprep.calibration.ranges import ranges_of
from mobileprep.calibration.shards import observed
from mobileprep.calibration.staleness import check_fresh
from mobileprep.errors import AccuracyError, UsageError
from mobileprep.formats.range_file import RangeFile, TensorRange, range_file_text, read_range_file
from mobileprep.fsio import sha256_bytes, sha256_file, write_text
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import Edge, Ref, edge, parse_ref
from mobileprep.ir.tensor_digests import tensor_digests
from mobileprep.plan.records import CalibrationRecord, Interface
from mobileprep.plan.running_stages import CalibrateStage
from mobileprep.runtime.engines.assets import with_found_assets
from mobileprep.runtime.sampling.inputs import fixed_batch
from mobileprep.stages.assets import asset_folder
from mobileprep.stages.base import Job, stage
from mobileprep.stages.calibration_data import samples_of
from mobileprep.transforms.quantize_nodes.ranged import ranged_tensors

_NAMED: Final = 5


@stage(CalibrateStage)
def run(job: Job[CalibrateStage]) -> None:
    """Leaves ``ranges.yaml`` and ``calibration.json``.

    Raises:
        AccuracyError: the range file is stale; or the data does not fit the graph, or makes a
            tensor NaN or infinite.
        CorruptFileError: the data or the range file cannot be read.
    """
    asked = job.asked
    graph = job.graph(asked.graph)
    interface = job.record(Interface, asked.interface)
    tensors = ranged_tensors(graph)
    fed = [edge(parse_ref(name)) for name in interface.inputs]
    digests = {str(Ref(*t)): d for t, d in tensor_digests(graph, tensors, fed).items()}
    if asked.range_file is not None:
        found = read_range_file(asked.range_file.root)
        data = None if asked.data is None else _digest(asked)
        where = job.place("calibration")
        check_fresh(found, digests, method_of(asked), asked.calibration.samples, data, where)
        kept = {name: found.tensors[name] for name in digests if name in found.tensors}
        ranges = RangeFile(kept, found.method, found.samples, found.data)
        origin = asked.range_file.name
    else:
        ranges = _measured(job, graph, interface, tensors, digests)
        origin = "" if asked.data is None else asked.data.name
    write_text(job.output(asked.RANGES), range_file_text(ranges))
    unseen = tuple(name for name in digests if name not in ranges.tensors)
    record = CalibrationRecord(
        origin,
        asked.range_file is None,
        ranges.method,
        ranges.samples,
        len(ranges.tensors),
        unseen,
        tuple(_warnings(unseen)),
    )
    for warning in record.warnings:
        job.warn(warning)
    job.write_record(asked.RECORD, record)


def method_of(asked: CalibrateStage) -> Method:
    """How the recipe has ranges measured."""
    calibration = asked.calibration
    return Method(calibration.method, calibration.percentile, calibration.decay)


def _measured(
    job: Job[CalibrateStage],
    graph: Graph,
    interface: Interface,
    tensors: Sequence[Edge],
    digests: dict[str, str],
) -> RangeFile:
    """Ranges by running the float graph on the samples."""
    asked = job.asked
    assert asked.data is not None
    calibration, place = asked.calibration, job.place("calibration")
    fixed = fixed_batch(graph, interface.inputs)
    method = method_of(asked)
    try:
        data = samples_of(asked.data, interface.inputs, calibration.samples, calibration.seed)
        with asset_folder(job.path(asked.assets)) as folder:
            subject = Subject(
                with_found_assets(graph, (folder,)),
                interface.outputs,
                tuple(tensors),
                method,
                fixed or calibration.batch,
                bool(fixed),
            )
            seen = observed(subject, data, workers=calibration.workers, dask=calibration.dask)
            found, samples = ranges_of(seen, method)
    except (AccuracyError, UsageError) as error:
        raise AccuracyError(error.message, error.hint, place) from error
    by_name = {str(Ref(*tensor)): ends for tensor, ends in found.items()}
    return RangeFile(
        {n: TensorRange(*by_name[n], digest) for n, digest in digests.items() if n in by_name},
        str(method),
        samples,
        _digest(asked),
        tuple(n for n in digests if n not in by_name),
    )


def _digest(asked: CalibrateStage) -> str:
    """A digest of the samples that are drawn: of the files, and of which of their samples."""
    assert asked.data is not None
    files = [f"{f.name} {sha256_file(f.path)}" for f in asked.data.members]
    drawn = f"{asked.calibration.samples} {asked.calibration.seed}"
    return sha256_bytes("\n".join([drawn, *files]).encode())


def _warnings(unseen: Sequence[str]) -> list[str]:
    if not unseen:
        return []
    named = ", ".join(map(repr, unseen[:_NAMED])) + (", ..." if len(unseen) > _NAMED else "")
    message = f"no sample reached {len(unseen)} tensors ({named}), which get no range"
    return [f"{message}; take samples that take every branch"]
