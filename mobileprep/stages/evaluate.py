"""The evaluate stage: runs a graph on labelled data and keeps its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mobileprep.datasets.dataset import Dataset
from mobileprep.datasets.opening import open_dataset
from mobileprep.datasets.runs import FedRun, runs
from mobileprep.datasets.source import SampleChoice, no_samples
from mobileprep.errors import AccuracyError, UsageError
from mobileprep.formats.arrays import write_arrays
from mobileprep.fsio import atomic_writer
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.plan.records import EngineRecord, EvaluationRecord, Interface
from mobileprep.plan.running_stages import EvaluateStage
from mobileprep.runtime.engines.assets import with_found_assets
from mobileprep.runtime.engines.base import Engine
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.runtime.sampling.labels import (
    class_count,
    counts_fault,
    labels_fault,
    no_scores,
    range_fault,
)
from mobileprep.stages.assets import asset_folder
from mobileprep.stages.base import Job, stage
from mobileprep.stages.data import data_files, placed, stage_inputs
from mobileprep.stages.running import compared_with_reference, stage_engine, storable

# Samples that a second engine runs too.
_COMPARED = 4


@dataclass(frozen=True)
class Evaluated:
    """What a graph gives for samples.

    Args:
        outputs: the tensors, an entry for each sample.
        labels: of the samples.
        first: the first run.
    """

    outputs: list[Array]
    labels: Array
    first: FedRun


@stage(EvaluateStage)
def run(job: Job[EvaluateStage]) -> None:
    """Leaves ``outputs.npz`` and ``evaluation.json``.

    Raises:
        AccuracyError: the data does not fit together, the graph, or the metric.
    """
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    graph = job.graph(asked.graph)
    inputs = stage_inputs(job, graph, interface.inputs)
    with placed(job.place("validation")):
        data = open_dataset(
            data_files(asked.data, asked.reading),
            inputs,
            SampleChoice(asked.samples, asked.seed, asked.strict),
            labels=asked.labels,
            labelled=True,
            warn=job.warn,
        )
        found, engine = _run(job, graph, inputs, data, interface.outputs)
    outputs, labels = found.outputs, found.labels
    correct = _correct(outputs[0], labels, job)
    with atomic_writer(job.output(asked.OUTPUTS)) as stream:
        write_arrays(stream, {str(i): a for i, a in enumerate(outputs)})
    top1 = correct / len(labels)
    record = EvaluationRecord(interface.outputs, len(labels), correct, top1, engine)
    job.write_record(asked.RECORD, record)


def _run(
    job: Job[EvaluateStage],
    graph: Graph,
    inputs: Sequence[FedTensor],
    data: Dataset,
    fetches: Sequence[str],
) -> tuple[Evaluated, EngineRecord]:
    """The outputs and labels of all samples, and what computed the outputs."""
    with asset_folder(job.path(job.asked.assets)) as folder:
        graph = with_found_assets(graph, (folder,))
        engine = stage_engine(job, graph, data.name)
        try:
            found = evaluate(
                engine,
                _checked(runs(data, inputs, job.asked.batch), job),
                fetches,
                where=data.name,
                progress=_Progress(job, data),
            )
            few = found.first.head(_COMPARED)
            record = compared_with_reference(
                job, engine, graph, fetches, few.feeds, samples=few.count, where=data.name
            )
        except UsageError as error:
            raise AccuracyError(error.message, error.hint, error.where) from error
    return found, record


def _checked(given: Iterable[FedRun], job: Job[EvaluateStage]) -> Iterable[FedRun]:
    """What is fed, after a look at its labels: those of no classes are told before all is run."""
    for one in given:
        if one.labels is None:
            message = f"{job.asked.data.name} has no labels"
            raise AccuracyError(message, "name data with labels", job.place("validation"))
        fault = labels_fault(one.labels, job.asked.labels, one.count)
        if fault is not None:
            raise AccuracyError(*fault, job.place("validation"))
        yield one


def evaluate(
    engine: Engine,
    given: Iterable[FedRun],
    fetches: Sequence[str],
    *,
    where: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Evaluated:
    """The fetched tensors for every sample, run by run, joined along the first axis.

    Tensors after the first that have no axis for the samples are stacked, one entry a run.

    Args:
        engine: what runs the graph.
        given: what it is fed.
        fetches: the tensors.
        where: what the data is called, for messages.
        progress: told how many samples are done.

    Raises:
        AccuracyError: the first output has no axis for the samples, or another changes its
            shape from run to run.
        UsageError: the data does not fit the graph's inputs.
    """
    columns: list[list[Array]] = [[] for _ in fetches]
    fed: list[tuple[int, int]] = []
    labels: list[Array] = []
    first: FedRun | None = None
    for one in given:
        first = first or one
        for pieces, piece in zip(columns, engine.run(fetches, one.feeds), strict=True):
            pieces.append(piece)
        fed.append((one.fed, one.count))
        if one.labels is not None:
            labels.append(one.labels)
        progress(one.count)
    if first is None:
        raise no_samples(where)
    outputs = [
        _joined(name, pieces, fed, where, required=i == 0)
        for i, (name, pieces) in enumerate(zip(fetches, columns, strict=True))
    ]
    return Evaluated(outputs, np.concatenate(labels) if labels else np.zeros(0), first)


def _joined(
    name: str,
    pieces: list[Array],
    fed: Sequence[tuple[int, int]],
    where: str,
    *,
    required: bool,
) -> Array:
    """What each run gave for an output, as one array of a type that files can hold.

    Args:
        name: the output's.
        pieces: what each run gave.
        fed: how many samples each run was fed, and how many of them count.
        where: what the data is called, for messages.
        required: whether it needs an entry for each sample.
    """
    if all(p.ndim and len(p) == size for p, (size, _) in zip(pieces, fed, strict=True)):
        cut = [p[:count] for p, (_, count) in zip(pieces, fed, strict=True)]
        return storable(np.concatenate(cut))
    if required and max(size for size, _ in fed) > 1:
        shape = list(pieces[0].shape)
        message = f"the output {name!r} has the shape {shape} for {fed[0][0]} samples"
        raise AccuracyError(message, "name an output first that has an entry a sample", where)
    if len({p.shape for p in pieces}) > 1:
        message = f"the output {name!r} changes its shape from batch to batch"
        raise AccuracyError(message, "leave it out of the outputs", where)
    return storable(np.stack(pieces))


def _correct(output: Array, labels: Array, job: Job[EvaluateStage]) -> int:
    """How many samples have their greatest score at their label.

    Raises:
        AccuracyError: the output is no score for each class, is NaN, or a label is no class.
    """
    fault = labels_fault(labels, job.asked.labels, len(output))
    fault = fault or counts_fault(labels.size, {"the data": len(output)})
    if fault is not None:
        raise AccuracyError(*fault, job.place("validation"))
    classes = class_count(output.shape)
    if classes is None or output.dtype.kind not in "iuf":
        found = f"{output.dtype} of shape {list(output.shape)}"
        raise AccuracyError(*no_scores(found), job.place("outputs"))
    fault = range_fault(labels, job.asked.labels, classes)
    if fault is not None:
        raise AccuracyError(*fault, job.place("validation"))
    scores = output.reshape(len(output), -1)
    lost = np.flatnonzero(np.isnan(scores).any(axis=1))
    if len(lost):
        message = (
            f"{job.task}: the scores of {len(lost)} of {len(scores)} samples are NaN, the first of "
            f"them those of sample {lost[0]}; an accuracy of them would mean nothing"
        )
        hint = "look for NaN in the data, and for a transform that breaks the model (check: true)"
        raise AccuracyError(message, hint, job.place("validation"))
    return int(np.count_nonzero(scores.argmax(axis=1) == labels))


class _Progress:
    """Tells how many samples are done.

    Args:
        job: whom to tell.
        data: the samples.
    """

    def __init__(self, job: Job[EvaluateStage], data: Dataset) -> None:
        self._job = job
        self._total = len(data)
        self._done = 0

    def __call__(self, count: int) -> None:
        self._done += count
        self._job.progress(self._done, self._total)
