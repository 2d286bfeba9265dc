"""Compare the tensors of a float graph with those of the quantized graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.damage.spec import DamageRecord, DamageStage, TensorRecord
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.running import asset_folder, data_files, stage_inputs
from mobileprep.data.calibration.damage import TensorDamage, tensor_damage
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import Dataset, SampleChoice
from mobileprep.data.survey import runs
from mobileprep.errors import MobileprepError
from mobileprep.graph.tensor import Array
from mobileprep.runtime.engines.subgraph import with_found_assets
from mobileprep.runtime.sampling.inputs import FedTensor

# A run keeps all tensors of both graphs in memory, see ``tensor_damage``.
_BATCH: Final = 1


def run(job: Job[DamageStage]) -> None:
    """Write ``damage.json``.

    The record is informational, so an error is reported in it and does not fail the build. Stages
    whose results depend on the data raise the error themselves.
    """
    settings = job.asked
    try:
        samples, tensors = _measure_damage(job)
        record = DamageRecord(settings.data.name, samples, tuple(map(_record, tensors)))
    except MobileprepError as error:
        record = DamageRecord(settings.data.name, 0, unmeasured=error.message)
    job.write_record(settings.RECORD, record)


def _measure_damage(job: Job[DamageStage]) -> tuple[int, tuple[TensorDamage, ...]]:
    """Return the number of samples and the errors of the tensors."""
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    graph = job.graph(settings.graph)
    inputs = stage_inputs(job, graph, interface.inputs)
    choice = SampleChoice(settings.count, exactly=False)
    files = data_files(settings.data, settings.reading)
    data = open_dataset(files, inputs, choice, labels=settings.labels)
    with asset_folder(job.path(settings.assets)) as folder:
        graph, quantized = (
            with_found_assets(one, (folder,)) for one in (graph, job.graph(settings.quantized))
        )
        errors = tensor_damage(graph, quantized, _feeds(job, data, inputs))
    return len(data), errors


def _feeds(
    job: Job[DamageStage], data: Dataset, inputs: list[FedTensor]
) -> Iterator[Mapping[str, Array]]:
    done = 0
    for fed in runs(data, inputs, _BATCH):
        yield fed.feeds
        done += fed.count
        job.progress(done, len(data))


def _record(tensor: TensorDamage) -> TensorRecord:
    """Round the measurements to digits that do not depend on the processor's BLAS."""
    damage = tensor.damage
    return TensorRecord(
        tensor.tensor,
        tensor.op,
        tensor.is_weights,
        tensor.is_eightbit,
        round(damage.sqnr, 1),
        round(damage.cosine, 4),
        None if damage.clipped is None else round(damage.clipped, 4),
        None if damage.rmse_over_scale is None else round(damage.rmse_over_scale, 3),
    )
