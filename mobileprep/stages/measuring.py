"""The metrics of an evaluation: made as the recipe asks, given batch after batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from mobileprep.errors import AccuracyError, nearest_hint
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import LabelError, Metric, MetricBatch, MetricOptions, OutputError
from mobileprep.metrics.catalogue import make_metric
from mobileprep.metrics.python_function import PythonFunction
from mobileprep.plan.records import Interface, MetricValue
from mobileprep.plan.running_stages import EvaluateStage, MeasuredMetric
from mobileprep.runtime.sampling.recorded import array_of, is_nearly
from mobileprep.stages.base import Job

_AUTO = "auto"


@dataclass(frozen=True)
class Measure:
    """A metric of an evaluation.

    Args:
        name: the metric's, ``auto`` resolved.
        outputs: the tensors that it is of; empty for each.
        metric: None for what compares with the source, which is done when both are evaluated.
        labels: for all samples; None where it takes none.
        labels_name: what they are called.
        note: what makes it worth less than it seems; empty for nothing.
    """

    name: str
    outputs: tuple[str, ...]
    metric: Metric | None
    labels: Array | None
    labels_name: str
    note: str = ""


class Measures:
    """All metrics of an evaluation.

    Args:
        job: the stage's.
        interface: the model's.
        arrays: those of the data by name, from which each metric takes its labels.
        samples: how many samples there are.

    Raises:
        AccuracyError: a metric's labels or outputs are not there, or its file does not run.
    """

    def __init__(
        self,
        job: Job[EvaluateStage],
        interface: Interface,
        arrays: Mapping[str, Array],
        samples: int,
    ) -> None:
        self._job = job
        self._interface = interface
        self._fetches = interface.outputs
        self._measures = [self._measure(asked, arrays, samples) for asked in job.asked.metrics]

    def update(self, outputs: Mapping[str, Array], first: int, count: int) -> None:
        """Give a batch to each.

        Args:
            outputs: the fetched tensors by name.
            first: the number of the batch's first sample.
            count: how many samples it has.

        Raises:
            AccuracyError: outputs or labels are not what a metric needs.
        """
        for measure in self._measures:
            if measure.metric is not None:
                chosen = measure.outputs or self._fetches[:1]
                labels = None if measure.labels is None else measure.labels[first : first + count]
                with self._placed():
                    measure.metric.update(
                        MetricBatch(outputs, chosen, count, labels, measure.labels_name, first)
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
                )
                for m in self._measures
            )

    def warnings(self) -> tuple[str, ...]:
        """What makes the values worth less than they seem."""
        notes = [measure.note for measure in self._measures if measure.note]
        for measure in self._measures:
            notes += [] if measure.metric is None else measure.metric.notes()
        return tuple(dict.fromkeys(notes))

    def _measure(self, asked: MeasuredMetric, arrays: Mapping[str, Array], samples: int) -> Measure:
        outputs = tuple(self._output(name) for name in asked.outputs)
        labels, note = self._labels(asked, arrays, samples)
        name = asked.metric
        if not asked.python and name == _AUTO:
            name = "agreement" if labels is None else "top1"
        metric = None
        if asked.python or labels is not None or (asked.labels is not None and name != "agreement"):
            metric = self._metric(asked, name)
        return Measure(name, outputs, metric, labels, asked.labels or "", note)

    def _metric(self, asked: MeasuredMetric, name: str) -> Metric:
        if asked.python:
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

    def _labels(
        self, asked: MeasuredMetric, arrays: Mapping[str, Array], samples: int
    ) -> tuple[Array | None, str]:
        """The labels of a metric, and what is to be told where there are none."""
        if asked.labels is None:
            return None, ""
        data = self._job.asked.data.name
        try:
            labels = array_of(arrays, asked.labels, data)
        except AccuracyError as error:
            if asked.labels_needed or self._is_misspelt(asked, arrays):
                raise error.at(self._job.place("validation")) from error
            if asked.python:
                return None, ""
            told = f"{error.message}: without labels, the model is compared with the source alone"
            return None, f"{told}; write 'metric: agreement' if that is meant"
        # Axes of one do not matter, wherever they stand.
        flat: Array = labels.reshape(samples) if labels.size == samples else labels
        if not flat.ndim or len(flat) != samples:
            message = (
                f"the data does not fit together: {len(flat) if flat.ndim else 1} labels "
                f"{asked.labels!r}, and {samples} samples"
            )
            hint = "every array needs one entry a sample"
            raise AccuracyError(message, hint, self._job.place("validation"))
        return flat, ""

    def _is_misspelt(self, asked: MeasuredMetric, arrays: Mapping[str, Array]) -> bool:
        """Whether an array that is no input has nearly the name of the labels."""
        return not asked.python and is_nearly(asked.labels or "", arrays, self._interface.inputs)

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
