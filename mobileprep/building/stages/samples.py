"""The samples stage: what checks feed, and what the source gives for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from mobileprep.building.plan.records import Interface, SamplesRecord
from mobileprep.building.plan.running_stages import SamplesStage
from mobileprep.building.plan.spec import Files
from mobileprep.building.stages.assets import with_assets
from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.data import data_files, stage_inputs
from mobileprep.building.stages.running import stage_engine, storable
from mobileprep.core.files import atomic_writer
from mobileprep.data.opening import data_kind, open_dataset
from mobileprep.data.source import SampleChoice
from mobileprep.data.survey import DataSurvey
from mobileprep.errors import (
    AccuracyError,
    InvalidGraphError,
    MobileprepError,
    RecipeError,
    UsageError,
)
from mobileprep.formats.arrays import map_arrays, read_arrays, write_arrays
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.runtime.sampling.data_files import array_of, recorded_feeds
from mobileprep.runtime.sampling.draw import Samples, draw_samples
from mobileprep.runtime.sampling.first_ops import first_ops, standing_still
from mobileprep.runtime.sampling.inputs import FedTensor

_NO_INPUTS: Final = "no inputs are named, so the check runs the model on its constants alone"
_SHORT_LOOP: Final = (
    "the check runs the model's loops over sequences of length one, because longer ones do not fit "
    "its inputs; give the inputs longer shapes, or name samples: 'check: {data: FILE.npz}'"
)


@stage(SamplesStage)
def run(job: Job[SamplesStage]) -> None:
    """Leaves ``samples.npz``, ``expected.npz`` and ``samples.json``.

    Raises:
        AccuracyError: the data does not fit the source; not if the samples are optional.
        RecipeError: no data is named, and none can be drawn; likewise.
    """
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    try:
        inputs, samples, doubts = _source_run(job, interface)
    except MobileprepError as error:
        if not asked.optional:
            raise
        inputs, samples, warnings = [], Samples((), (), {}), [error.message]
    else:
        warnings = standing_still(interface.outputs, samples.outputs, samples.inputs)
        if samples.has_short_loop:
            warnings.append(_SHORT_LOOP)
        warnings = [*(warnings if inputs else [_NO_INPUTS]), *doubts]
    _write(job.output(asked.FED), [[feeds[fed.name] for fed in inputs] for feeds in samples.feeds])
    _write(job.output(asked.EXPECTED), samples.outputs)
    for warning in () if asked.optional else warnings:
        job.warn(warning)
    data = asked.data.name if asked.data is not None and inputs else None
    record = SamplesRecord(
        "drawn" if data is None else asked.section,
        data,
        len(samples.feeds),
        samples.inputs,
        tuple(warnings),
    )
    job.write_record(asked.RECORD, record)


def _source_run(
    job: Job[SamplesStage], interface: Interface
) -> tuple[Sequence[FedTensor], Samples, Sequence[str]]:
    """The inputs, the samples with what the source gives for them, and doubts about the samples."""
    asked = job.asked
    graph = job.graph(asked.graph)
    inputs = stage_inputs(job, graph, interface.inputs)
    survey = DataSurvey("" if asked.data is None else asked.data.name)
    with with_assets(graph, job.path(asked.assets)) as graph:
        engine = stage_engine(job, graph, "the source")
        run = partial(engine.run, interface.outputs)
        samples = _samples(job, graph, inputs, run, survey)
    # The stages of a validation or calibration look at its data.
    is_own = asked.data is not None and asked.section == "check"
    return inputs, samples, list(survey.doubts(graph, inputs)) if is_own else []


def read_runs(path: Path) -> list[list[Array]]:
    """The arrays of each run in a file that the samples stage left."""
    runs: dict[int, dict[int, Array]] = {}
    for key, array in read_arrays(path).items():
        number, _, index = key.partition("-")
        runs.setdefault(int(number), {})[int(index)] = array
    return [[parts[i] for i in sorted(parts)] for _, parts in sorted(runs.items())]


def _write(target: Path, runs: Sequence[Sequence[Array]]) -> None:
    arrays = {
        f"{number}-{index}": storable(array)
        for number, arrays in enumerate(runs)
        for index, array in enumerate(arrays)
    }
    with atomic_writer(target) as stream:
        write_arrays(stream, arrays)


def _samples(
    job: Job[SamplesStage],
    graph: Graph,
    inputs: Sequence[FedTensor],
    run: Callable[[Mapping[str, Array]], list[Array]],
    survey: DataSurvey,
) -> Samples:
    count, data = job.asked.count, job.asked.data
    if data is None or not inputs:
        try:
            return draw_samples(graph, inputs, count, run)
        except UsageError as error:
            raise RecipeError(error.message, error.hint, job.place("check")) from error
    ops = [first_ops(graph, fed.ref) for fed in inputs]
    try:
        arrays = _arrays(job, data, inputs, survey)
        feeds = recorded_feeds(arrays, inputs, ops, count, data.name)
        outputs = tuple(run(given) for given in feeds)
        for given in feeds:
            for name, array in given.items():
                survey.note(name, array)
    except (AccuracyError, InvalidGraphError, UsageError) as error:
        raise _about_data(error, data.name, job.place("data")) from error
    told = {f.name: f"{f.dtype.short} {list(feeds[0][f.name].shape)}" for f in inputs}
    return Samples(feeds, outputs, told)


def _arrays(
    job: Job[SamplesStage], data: Files, inputs: Sequence[FedTensor], survey: DataSurvey
) -> Mapping[str, Array]:
    """The array of each input: all that a file of arrays holds, else as many samples as wanted."""
    files = data_files(data, job.asked.reading)
    if (files.kind or data_kind(files)) == "npz":
        given = dict(files.reading.inputs)
        arrays = map_arrays(files.root)
        return arrays | {name: array_of(arrays, key, data.name) for name, (key,) in given.items()}
    choice = SampleChoice(job.asked.count, exactly=False)
    dataset = open_dataset(files, inputs, choice, labels=job.asked.labels, warn=job.warn)
    (batch,) = dataset.batches(len(dataset))
    survey.look(batch)
    return batch.feeds


def _about_data(error: MobileprepError, data: str, place: str) -> AccuracyError:
    if isinstance(error, AccuracyError):
        return AccuracyError(error.message, error.hint, error.where or place)
    message = f"the source does not run on the samples of {data}: {error.message}"
    return AccuracyError(message, error.hint, place)
