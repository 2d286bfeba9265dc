"""The samples of an evaluation, with the labels of every name that its metrics take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mobileprep.datasets.opening import open_dataset
from mobileprep.datasets.source import Dataset, NoLabelsError, SampleChoice
from mobileprep.datasets.survey import DataSurvey, FedRun, runs
from mobileprep.ir.tensor import Array
from mobileprep.plan.running_stages import EvaluateStage
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.stages.base import Job
from mobileprep.stages.data import data_files


class LabelledData:
    """The data of an evaluation.

    Args:
        job: the stage's.
        inputs: what is fed.
        survey: takes note of the samples.

    Raises:
        AccuracyError: the data does not fit the graph, or has no labels and a metric needs them.
        CorruptFileError: it cannot be read.
    """

    def __init__(
        self, job: Job[EvaluateStage], inputs: Sequence[FedTensor], survey: DataSurvey
    ) -> None:
        self._job = job
        self._survey = survey
        self._inputs = inputs
        self._opened: dict[str, Dataset] = {}
        self.missing: dict[str, str] = {}
        """Why there are none, by the name of labels."""
        self.labels: Mapping[str, Array] = {}
        """Those of the samples that ``runs`` gave last, by name."""
        for name in dict.fromkeys(m.labels for m in job.asked.metrics if m.labels is not None):
            self._open_labelled(name)
        if not self._opened:
            self._opened[""] = self._open("", labelled=False)

    @property
    def name(self) -> str:
        """What messages call the data."""
        return self._samples.name

    def __len__(self) -> int:
        return len(self._samples)

    def runs(self) -> Iterator[FedRun]:
        """What the graph is fed, batch by batch."""
        size = self._job.asked.batch
        # All of them have the same samples: one look is enough.
        surveys = [self._survey, *[None] * (len(self._opened) - 1)]
        each = (
            runs(data, self._inputs, size, survey=survey)
            for data, survey in zip(self._opened.values(), surveys, strict=True)
        )
        for alike in zip(*each, strict=True):
            self.labels = {
                name: one.labels
                for name, one in zip(self._opened, alike, strict=True)
                if one.labels is not None
            }
            yield alike[0]
        self._survey.check(len(self), self._job.warn)

    @property
    def _samples(self) -> Dataset:
        return next(iter(self._opened.values()))

    def _open_labelled(self, name: str) -> None:
        needed = any(m.labels_needed for m in self._job.asked.metrics if m.labels == name)
        try:
            self._opened[name] = self._open(name, labelled=True)
        except NoLabelsError as error:
            if needed:
                raise
            self.missing[name] = error.message

    def _open(self, labels: str, *, labelled: bool) -> Dataset:
        asked = self._job.asked
        return open_dataset(
            data_files(asked.data, asked.reading),
            self._inputs,
            SampleChoice(asked.samples, asked.seed, asked.strict),
            labels=labels,
            labelled=labelled,
            # What is left out is told once.
            warn=(lambda _: None) if self._opened else self._job.warn,
        )
