"""The metrics of an evaluation: made as the recipe asks, given batch after batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mobileprep.errors import AccuracyError, nearest_hint
from mobileprep.frozen import dataclass
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import (
    LabelError,
    Metric,
    MetricBatch,
    MetricOptions,
    OutputError,
    make_metric,
)
from mobileprep.metrics.classification import TopK
from mobileprep.plan.records import Interface
from mobileprep.plan.running_records import MetricValue
from mobileprep.plan.running_stages import EvaluateStage, MeasuredMetric
from mobileprep.stages.base import Job

_AUTO = "auto"


@dataclass(frozen=True)
class Measure:
    """A metric of an evaluation.

    Args:
        name: the metric's, ``auto`` resolved.
        outputs: the tensors that it is of; empty for each.
        metric: None for what compares with the source, which is done when both are evaluated.
        labels: what its labels are called; None where it takes none.
        note: what makes it worth less than it seems; empty for nothing.
    """

    name: str
    outputs: tuple[str, ...]
    metric: Metric | None
    labels: str | None
    note: str = ""


class Measures:
    """All metrics of an evaluation.

    Args:
        job: the stage's.
        interface: the model's.
        missing: the names of labels that the data has not, and why.

    Raises:
        AccuracyError: a metric's outputs are not there, or its file does not run.
    """

    def __init__(
        self, job: Job[EvaluateStage], interface: Interface, missing: Mapping[str, str]
    ) -> None:
        self._job = job
        self._interface = interface
        self._fetches = interface.outputs
        self._missing = missing
        self._measures = [self._measure(asked) for asked in job.asked.metrics]

    def update(
        self,
        outputs: Mapping[str, Array],
        labels: Mapping[str, Array],
        first: int,
        count: int,
    ) -> None:
        """Give a batch to each.

        Args:
            outputs: the fetched tensors by name.
            labels: those of the batch by name.
            first: the number of the batch's first sample.
            count: how many samples it has.

        Raises:
            AccuracyError: outputs or labels are not what a metric needs.
        """
        for measure in self._measures:
            if measure.metric is not None:
                chosen = measure.outputs or self._fetches[:1]
                name = measure.labels
                given = None if name is None else _an_entry_each(labels[name], count)
                with self._placed():
                    measure.metric.update(
                        MetricBatch(outputs, chosen, count, given, name or "", first)
                    )

    def values(self) -> tuple[MetricValue, ...]:
        """What each comes to, in the order in which they are asked for.

        Raises:
            AccuracyError: a metric is not defined for the samples.
        """
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
        """What makes the values worth less than they seem."""
        notes = [measure.note for measure in self._measures if measure.note]
        for measure in self._measures:
            notes += [] if measure.metric is None else measure.metric.notes()
        return tuple(dict.fromkeys(notes))

    def _measure(self, asked: MeasuredMetric) -> Measure:
        outputs = tuple(self._output(name) for name in asked.outputs)
        note = self._note(asked)
        labels = None if asked.labels in self._missing else asked.labels
        name = asked.metric
        if not asked.python and name == _AUTO:
            name = "agreement" if labels is None else "top1"
        metric = None
        if asked.python or labels is not None or (asked.labels is not None and name != "agreement"):
            metric = self._metric(asked, name)
        return Measure(name, outputs, metric, labels, note)

    def _metric(self, asked: MeasuredMetric, name: str) -> Metric:
        if asked.python:
            from mobileprep.metrics.base import PythonFunction

            return PythonFunction(self._job.asked.functions[asked.python].root, name)
        options = MetricOptions(asked.peak, asked.threshold, asked.ignore, asked.characters)
        return make_metric(name, options)

    def _output(self, name: str) -> str:
        """The name that the evaluation has for an output."""
        for fetch in self._fetches:
            if parse_ref(fetch) == parse_ref(name):
                return fetch
        message = f"the model has no output {name!r}; it has {', '.join(self._fetches)}"
        raise AccuracyError(message, nearest_hint(name, self._fetches), self._place_of(name))

    def _place_of(self, output: str) -> str:
        found = (m.place for m in self._job.asked.metrics if output in m.outputs)
        return next(found, "") or self._job.place("validation")

    def _note(self, asked: MeasuredMetric) -> str:
        """What is to be told where the labels of a metric are missing."""
        why = self._missing.get(asked.labels or "", "")
        if not why or asked.python:
            return ""
        told = f"{why}: without labels, the model is compared with the source alone"
        return f"{told}; write 'metric: agreement' if that is meant"

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Puts the place in the recipe before what a metric cannot use."""
        try:
            yield
        except AccuracyError as error:
            place = self._job.place("outputs" if isinstance(error, OutputError) else "validation")
            # What outputs are is told of the graph that gave them: the source's or what ships.
            of_graph = "" if error.where or isinstance(error, LabelError) else f"{self._job.task}: "
            message = f"{of_graph}{error.message}"
            raise AccuracyError(message, error.hint, error.where or place) from error


def _an_entry_each(labels: Array, count: int) -> Array:
    """Labels with the samples along their first axis; axes of one do not matter."""
    return labels.reshape(count) if labels.size == count else labels
