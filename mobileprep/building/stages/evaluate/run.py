"""Run a graph on data, compute its metrics, and store and read its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from msgspec import Struct

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.evaluate.spec import (
    EvaluateStage,
    EvaluationRecord,
    MeasuredMetric,
    MetricValue,
)
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.running import (
    basis_of,
    compared_with_reference,
    data_files,
    data_record,
    measured_graph,
    measuring_engine,
    norm_doubts,
    placed,
    stage_inputs,
    storable,
    with_assets,
)
from mobileprep.core.files import atomic_writer
from mobileprep.data.metrics.base import (
    LabelError,
    Metric,
    MetricBatch,
    MetricOptions,
    OutputError,
    make_metric,
)
from mobileprep.data.metrics.classification import TopK
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import Dataset, NoLabelsError, SampleChoice, no_samples
from mobileprep.data.survey import DataSurvey, FedRun, runs
from mobileprep.errors import AccuracyError, UsageError, nearest_hint
from mobileprep.formats.arrays import array_writer, each_array
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.runtime.engines.agreement import Engine
from mobileprep.runtime.sampling.inputs import FedTensor

# Number of samples that a second engine runs too.
_COMPARED = 4


# Typical minimum accuracy of a source with inputs in the range of its training data.
_OFTEN = 0.5


def run(job: Job[EvaluateStage]) -> None:
    """Write ``outputs.npz``, ``evaluation.json``, and ``data.json``.

    Raises:
        AccuracyError: the data is inconsistent, or does not fit the graph or a metric.
    """
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    graph = measured_graph(job)
    inputs = stage_inputs(job, graph, interface.inputs)
    survey = DataSurvey(settings.data.name)
    with placed(job.place("validation")):
        data = LabeledData(job, inputs, survey)
        measures = Measures(job, interface, data.missing)
        samples, engine = _run(job, graph, data, interface.outputs, measures)
    values = measures.values()
    doubts: list[str] = []
    if settings.looks_at_data:
        doubts += survey.doubts(graph, inputs)
        doubts += _bytes_doubts(values, survey.unscaled(graph, inputs))
        with with_assets(graph, job.path(settings.assets)) as whole:
            doubts += norm_doubts(data_files(settings.data, settings.reading), whole, inputs)
    for doubt in doubts:
        job.warn(doubt)
    warnings = (*measures.warnings(), *doubts)
    basis = basis_of(job, engine)
    record = EvaluationRecord(interface.outputs, samples, values, warnings, engine, basis)
    job.write_record(settings.RECORD, record)
    job.write_record(settings.DATA, data_record(survey))


def _bytes_doubts(values: Sequence[MetricValue], unscaled: Iterable[str]) -> Iterator[str]:
    """Warn if a source with low accuracy is fed 0 to 255 and does not scale its input."""
    for metric in values:
        if metric.classes is None or metric.value is None or metric.value >= _OFTEN:
            continue
        for fed in unscaled:
            yield (
                f"{fed}, the graph does not scale that, and the source's {metric.metric} accuracy "
                f"is {metric.value:.4f}: if it was trained on 0 to 1, divide by 255 ('std: 255')"
            )
        return


def _run(
    job: Job[EvaluateStage],
    graph: Graph,
    data: LabeledData,
    fetches: Sequence[str],
    measures: Measures,
) -> tuple[int, EngineRecord]:
    """Run all samples and store the outputs. Return the number of samples and the engine."""
    first: FedRun | None = None
    samples = 0
    with with_assets(graph, job.path(job.asked.assets)) as graph:
        engine = measuring_engine(job, graph, data.name, "validation")
        try:
            with kept_outputs(job.output(job.asked.OUTPUTS)) as keep:
                for batch, outputs in evaluated(engine, data.runs(), fetches):
                    first = first or batch
                    keep(outputs, batch.count)
                    named = dict(zip(fetches, outputs, strict=True))
                    measures.update(named, data.labels, samples, batch.count)
                    samples += batch.count
                    job.progress(samples, len(data))
            if first is None:
                raise no_samples(data.name)
            few = first.head(_COMPARED)
            record = compared_with_reference(
                job, engine, graph, fetches, few.feeds, samples=few.count, where=data.name
            )
        except UsageError as error:
            raise AccuracyError(error.message, error.hint, error.where) from error
    return samples, record


def evaluated(
    engine: Engine, batches: Iterable[FedRun], fetches: Sequence[str]
) -> Iterator[tuple[FedRun, list[Array]]]:
    """Run the graph batch by batch, and yield outputs in types that files can store.

    Outputs with an entry for each sample have no entries for padding.
    """
    for batch in batches:
        outputs = [storable(array) for array in engine.run(fetches, batch.feeds)]
        yield batch, [a[: batch.count] if a.ndim and len(a) == batch.fed else a for a in outputs]


class LabeledData:
    """Data of an evaluation.

    Args:
        job: job of the stage.
        inputs: the inputs.
        survey: collector for sample statistics.

    Raises:
        AccuracyError: the data does not fit the graph, or lacks labels that a metric needs.
        CorruptFileError: the data cannot be read.
    """

    def __init__(
        self, job: Job[EvaluateStage], inputs: Sequence[FedTensor], survey: DataSurvey
    ) -> None:
        self._job = job
        self._survey = survey
        self._inputs = inputs
        self._opened: dict[str, Dataset] = {}
        self.missing: dict[str, str] = {}
        """Why labels are missing, by name of the labels."""
        self.labels: Mapping[str, Array] = {}
        """Labels of the samples that ``runs`` yielded last, by name."""
        for name in dict.fromkeys(m.labels for m in job.asked.metrics if m.labels is not None):
            self._open_labeled(name)
        if not self._opened:
            self._opened[""] = self._open("", labeled=False)

    @property
    def name(self) -> str:
        """Name of the data for messages."""
        return self._samples.name

    def __len__(self) -> int:
        return len(self._samples)

    def runs(self) -> Iterator[FedRun]:
        """Yield the inputs of the graph, batch by batch."""
        size = self._job.asked.batch
        # All of them have the same samples, so survey only the first.
        surveys = [self._survey, *[None] * (len(self._opened) - 1)]
        each = (
            runs(data, self._inputs, size, survey=survey)
            for data, survey in zip(self._opened.values(), surveys, strict=True)
        )
        for batches in zip(*each, strict=True):
            self.labels = {
                name: one.labels
                for name, one in zip(self._opened, batches, strict=True)
                if one.labels is not None
            }
            yield batches[0]
        self._survey.check(len(self), self._job.warn)

    @property
    def _samples(self) -> Dataset:
        return next(iter(self._opened.values()))

    def _open_labeled(self, name: str) -> None:
        needed = any(m.labels_needed for m in self._job.asked.metrics if m.labels == name)
        try:
            self._opened[name] = self._open(name, labeled=True)
        except NoLabelsError as error:
            if needed:
                raise
            self.missing[name] = error.message

    def _open(self, labels: str, *, labeled: bool) -> Dataset:
        settings = self._job.asked
        return open_dataset(
            data_files(settings.data, settings.reading),
            self._inputs,
            SampleChoice(settings.samples, settings.seed, settings.strict),
            labels=labels,
            labeled=labeled,
            # Report skipped samples only once.
            warn=(lambda _: None) if self._opened else self._job.warn,
        )


_AUTO = "auto"


class Measure(Struct, frozen=True):
    """A metric of an evaluation.

    Args:
        name: metric name, with ``auto`` resolved.
        outputs: measured tensors; empty for all.
        metric: None for comparisons with the source, which run when both are evaluated.
        labels: name of its labels; None if it needs none.
        note: why the metric may be unreliable; usually empty.
    """

    name: str
    outputs: tuple[str, ...]
    metric: Metric | None
    labels: str | None
    note: str = ""


class Measures:
    """All metrics of an evaluation.

    Args:
        job: job of the stage.
        interface: the model's inputs and outputs.
        missing: names of labels that the data lacks, with the reason.

    Raises:
        AccuracyError: an output of a metric does not exist, or its Python file fails.
    """

    def __init__(
        self, job: Job[EvaluateStage], interface: Interface, missing: Mapping[str, str]
    ) -> None:
        self._job = job
        self._interface = interface
        self._fetches = interface.outputs
        self._missing = missing
        self._measures = [self._measure(spec) for spec in job.asked.metrics]

    def update(
        self,
        outputs: Mapping[str, Array],
        labels: Mapping[str, Array],
        first: int,
        count: int,
    ) -> None:
        """Update each metric with a batch."""
        for measure in self._measures:
            if measure.metric is not None:
                chosen = measure.outputs or self._fetches[:1]
                name = measure.labels
                values = None if name is None else _an_entry_each(labels[name], count)
                with self._placed():
                    measure.metric.update(
                        MetricBatch(outputs, chosen, count, values, name or "", first)
                    )

    def values(self) -> tuple[MetricValue, ...]:
        """Return the values of the metrics, in the order of the recipe."""
        with self._placed():
            return tuple(
                MetricValue(
                    m.name,
                    m.outputs or (self._fetches[:1] if m.metric is not None else ()),
                    None if m.metric is None else m.metric.value(),
                    m.metric.classes if isinstance(m.metric, TopK) else None,
                )
                for m in self._measures
            )

    def warnings(self) -> tuple[str, ...]:
        """Return reasons why the values may be unreliable."""
        notes = [measure.note for measure in self._measures if measure.note]
        for measure in self._measures:
            notes += [] if measure.metric is None else measure.metric.notes()
        return tuple(dict.fromkeys(notes))

    def _measure(self, spec: MeasuredMetric) -> Measure:
        outputs = tuple(self._output(name) for name in spec.outputs)
        note = self._note(spec)
        labels = None if spec.labels in self._missing else spec.labels
        name = spec.metric
        if not spec.python and name == _AUTO:
            name = "agreement" if labels is None else "top1"
        metric = None
        if spec.python or labels is not None or (spec.labels is not None and name != "agreement"):
            metric = self._metric(spec, name)
        return Measure(name, outputs, metric, labels, note)

    def _metric(self, spec: MeasuredMetric, name: str) -> Metric:
        if spec.python:
            from mobileprep.data.metrics.base import PythonFunction

            return PythonFunction(self._job.asked.functions[spec.python].root, name)
        options = MetricOptions(spec.peak, spec.threshold, spec.ignore, spec.characters)
        return make_metric(name, options)

    def _output(self, name: str) -> str:
        """Return the evaluation's name for an output."""
        for fetch in self._fetches:
            if parse_ref(fetch) == parse_ref(name):
                return fetch
        message = f"the model has no output {name!r}; it has {', '.join(self._fetches)}"
        raise AccuracyError(message, nearest_hint(name, self._fetches), self._place_of(name))

    def _place_of(self, output: str) -> str:
        matches = (m.place for m in self._job.asked.metrics if output in m.outputs)
        return next(matches, "") or self._job.place("validation")

    def _note(self, spec: MeasuredMetric) -> str:
        """Return the warning for a metric without labels."""
        reason = self._missing.get(spec.labels or "", "")
        if not reason or spec.python:
            return ""
        sentence = f"{reason}: without labels, the model is compared with the source alone"
        return f"{sentence}; write 'metric: agreement' if that is meant"

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Add the location in the recipe to the errors of a metric."""
        try:
            yield
        except AccuracyError as error:
            place = self._job.place("outputs" if isinstance(error, OutputError) else "validation")
            # Errors about outputs name the graph: the source or the published model.
            of_graph = "" if error.where or isinstance(error, LabelError) else f"{self._job.task}: "
            message = f"{of_graph}{error.message}"
            raise AccuracyError(message, error.hint, error.where or place) from error


def _an_entry_each(labels: Array, count: int) -> Array:
    """Move the samples to the first axis, dropping axes of length 1."""
    return labels.reshape(count) if labels.size == count else labels


class KeepOutputs(Protocol):
    """Writer for the outputs of one batch."""

    def __call__(self, outputs: Sequence[Array], count: int) -> None:
        """Write the outputs for ``count`` samples, in the same order each time."""


@contextmanager
def kept_outputs(path: Path) -> Iterator[KeepOutputs]:
    """Open a file for outputs. It exists after the block.

    Args:
        path: path of an ``.npz`` file with an array ``batch/output`` for each output, numbered from
            0, after ``batch/count`` with the number of samples.

    Yields:
        The writer.
    """
    number = 0
    with atomic_writer(path) as stream, array_writer(stream) as write:

        def keep(outputs: Sequence[Array], count: int) -> None:
            nonlocal number
            write(f"{number}/count", np.asarray(count, np.int64))
            for at, array in enumerate(outputs):
                write(f"{number}/{at}", array)
            number += 1

        yield keep


class KeptOutputs(Struct, frozen=True):
    """Outputs that ``kept_outputs`` wrote.

    Args:
        path: the file.
        outputs: number of outputs in a batch.
    """

    path: Path
    outputs: int

    def each_batch(self) -> Iterator[tuple[int, list[Array]]]:
        """Yield the number of samples and the outputs of each batch."""
        batch: list[Array] = []
        for _, array in each_array(self.path):
            batch.append(array)
            if len(batch) > self.outputs:
                yield int(batch[0]), batch[1:]
                batch = []


Pair: TypeAlias = tuple[Array, Array]


def each_pair(first: KeptOutputs, second: KeptOutputs) -> Iterator[tuple[int, list[Pair | None]]]:
    """Pair the outputs of two graphs for the same samples. Their batch sizes may differ.

    Yields:
        Number of samples, and both arrays of each output; None for an output without an entry for
        each sample, because batches of different sizes cannot be joined.
    """
    sides = _Side(first), _Side(second)
    for _ in iter(lambda: all(side.read() for side in sides), False):
        while sides[0].count != sides[1].count:
            if not min(sides, key=lambda side: side.count).read():
                return
        count = sides[0].count
        arrays = zip(*(side.take() for side in sides), strict=True)
        yield count, [None if x is None or y is None else (x, y) for x, y in arrays]


class _Side:
    """Batches that were read but not yet returned."""

    def __init__(self, outputs: KeptOutputs) -> None:
        self.count = 0
        self._batches = outputs.each_batch()
        self._read: list[tuple[int, list[Array]]] = []

    def read(self) -> bool:
        """Read a batch, and return whether there was one."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        self._read.append(batch)
        self.count += batch[0]
        return True

    def take(self) -> list[Array | None]:
        """Return all batches read so far as one batch, and clear them."""
        counts, batches = zip(*self._read, strict=True)
        self._read, self.count = [], 0
        if len(batches) == 1:
            return list(batches[0])
        return [_joined(pieces, counts) for pieces in zip(*batches, strict=True)]


def _joined(pieces: Sequence[Array], counts: Sequence[int]) -> Array | None:
    if not all(p.ndim and len(p) == n for p, n in zip(pieces, counts, strict=True)):
        return None
    alike = len({piece.shape[1:] for piece in pieces}) == 1
    return np.concatenate(pieces) if alike else None
