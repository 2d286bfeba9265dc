"""The data that a recipe names for a stage, opened for the stage's graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from mobileprep.building.plan.records import DataRecord
from mobileprep.building.plan.running_stages import (
    CalibrateStage,
    DamageStage,
    EvaluateStage,
    SamplesStage,
)
from mobileprep.building.plan.search_stages import RankStage
from mobileprep.building.plan.spec import Files
from mobileprep.building.stages.base import Job
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import DataFiles, SampleChoice, data_inputs
from mobileprep.data.survey import DataSurvey, runs
from mobileprep.errors import AccuracyError, InvalidGraphError, MobileprepError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.recipe.settings import Data
from mobileprep.runtime.sampling.first_ops import first_norm_spread
from mobileprep.runtime.sampling.inputs import FedTensor

# How many samples are run to see their spread, and by how much it differs in another scale.
_LOOKED_AT: Final = 8
_MOST: Final = 8.0
_LEAST: Final = 1 / 32


def data_files(files: Files, data: Data | None) -> DataFiles:
    """The files of a stage's data, as readers take them."""
    if data is None:
        return DataFiles(files.name, files.root)
    labels, classes = (None if f is None else f.path for f in (data.labels, data.classes))
    return DataFiles(files.name, files.root, data.kind, data.reading, labels, classes)


def stage_inputs(
    job: Job[EvaluateStage]
    | Job[SamplesStage]
    | Job[DamageStage]
    | Job[CalibrateStage]
    | Job[RankStage],
    graph: Graph,
    names: Sequence[str],
) -> list[FedTensor]:
    """The inputs of a stage's graph, with the shapes that its recipe declares."""
    try:
        return data_inputs(graph, names, {fed.name: fed.shape for fed in job.asked.inputs})
    except (InvalidGraphError, UsageError) as error:
        raise error.at(job.place("inputs")) from error


def data_record(survey: DataSurvey) -> DataRecord:
    """What a survey noted, for later stages to compare; ends that are not finite are left out."""
    ends = {
        name: (low, high)
        for name, (low, high) in survey.ends.items()
        if math.isfinite(low) and math.isfinite(high)
    }
    return DataRecord(survey.data, ends, tuple(survey.digests))


def norm_doubts(files: DataFiles, graph: Graph, inputs: Sequence[FedTensor]) -> Iterator[str]:
    """That values before the first batch normalization are not as they were in training."""
    data = open_dataset(files, inputs, SampleChoice(_LOOKED_AT, exactly=False))
    try:
        spread = first_norm_spread(graph, [run.feeds for run in runs(data, inputs, _LOOKED_AT)])
    except MobileprepError:
        return  # what runs the graph for its results reports that
    if spread is None or _LEAST < spread.found / spread.trained < _MOST:
        return
    yield (
        f"{files.name}: before the first batch normalization, {spread.node!r}, values have a "
        f"standard deviation of {spread.found:.2g}, and had {spread.trained:.2g} in training; look "
        "at the scale of the samples, such as 'mean' and 'std'"
    )


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Names a place of the recipe in errors about data that name none of their own."""
    try:
        yield
    except AccuracyError as error:
        if error.where:
            raise
        raise error.at(place) from error
