"""Common code of stages that run graphs: engines, assets, and samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from mobileprep.building.plan.engines import (
    EngineRecord,
    MeasuringStage,
    RunningSection,
    RunningStage,
)
from mobileprep.building.plan.spec import PUBLISHED, Files, Section, Upstream
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.calibrate.spec import CalibrateStage, DataRecord
from mobileprep.building.stages.check.spec import SamplesStage
from mobileprep.building.stages.damage.spec import DamageStage
from mobileprep.building.stages.evaluate.spec import EvaluateStage
from mobileprep.building.stages.exceptions.spec import RankExceptionsStage
from mobileprep.building.stages.layers.spec import LayersStage
from mobileprep.building.stages.pipeline.spec import PassRateStage
from mobileprep.building.stages.search.spec import RankStage
from mobileprep.core.files import atomic_writer, inside, read_bytes, write_bytes
from mobileprep.core.keys import key_from_environment
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import DataFiles, SampleChoice, data_inputs
from mobileprep.data.survey import DataSurvey, runs
from mobileprep.errors import (
    AccuracyError,
    InvalidGraphError,
    MobileprepError,
    UnsupportedError,
    UsageError,
)
from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.graph.files import parse_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.recipe.settings import Data
from mobileprep.runtime.engines.agreement import TOLERANCE, Agreement, Engine, agreement_of
from mobileprep.runtime.engines.choose import AUTO, open_engine
from mobileprep.runtime.engines.subgraph import with_found_assets
from mobileprep.runtime.sampling.first_ops import first_norm_spread
from mobileprep.runtime.sampling.inputs import FedTensor

REFERENCE: Final = "numpy"


# Remaining dropout ops draw random numbers, even if they drop nothing.
_SEED: Final = 20160823


# Smaller differences are float32 rounding.
_FINEST: Final = -7


def stage_engine(job: Job[RunningStage], graph: Graph, where: str) -> Engine:
    """Open the engine that the recipe names for a graph."""
    choice = job.asked.engine
    opened = open_engine(
        choice.name,
        graph,
        None,
        where=where,
        seed=_SEED,
        among=choice.versions,
        convert=tflite_in_memory,
        verify=True,
    )
    return _PlacedEngine(
        job, opened, "engine", "write 'engine: auto' to take the fastest engine that runs the graph"
    )


def measured_graph(job: Job[MeasuringStage]) -> Graph:
    """Read the graph that a stage runs. Decrypt its file if it is encrypted."""
    file, is_lite = job.asked.graph, job.asked.lite is not None
    content = None if is_lite else _decrypted(job, file)
    return job.graph(file) if content is None else parse_graph(content, file.output)


def _decrypted(job: Job[MeasuringStage], file: Upstream) -> bytes | None:
    """Decrypt a packaged file. Return None if it is not encrypted."""
    measured = job.asked.measured
    if measured is None or not measured.variable:
        return None
    from mobileprep.targets.memmapped import decrypt  # few targets are encrypted

    key = key_from_environment(measured.variable, job.place("protect"), measured.key_id)
    return decrypt(b"".join(job.data(file)), key, file.output)


def measuring_engine(
    job: Job[MeasuringStage], graph: Graph, where: str, section: RunningSection
) -> Engine:
    """Return the engine of a stage: LiteRT's interpreter for a .tflite file, else the recipe's."""
    if job.asked.lite is None:
        return stage_engine(job, graph, where)
    from mobileprep.runtime.engines.litert_engine import LiteRtModel

    hint = f"write 'engine: graph' in '{section}' to measure the graph before conversion instead"
    file = job.asked.lite.output.removeprefix(PUBLISHED)
    content = _decrypted(job, job.asked.lite)
    model = LiteRtModel(job.path(job.asked.lite) if content is None else Path(file), content)
    return _PlacedEngine(job, model, section, hint, file)


def basis_of(job: Job[MeasuringStage], engine: EngineRecord) -> str:
    """Describe the measured file for reports; empty for graphs other than a target's model."""
    measured = job.asked.measured
    return "" if measured is None else basis_text(measured.name, engine)


def basis_text(name: str, engine: EngineRecord) -> str:
    """Describe a measured file for reports."""
    return f"measured on {name} ({f'{engine.name} {engine.version}'.strip()})"


def compared_with_reference(
    job: Job[RunningStage],
    engine: Engine,
    graph: Graph,
    fetches: Sequence[str],
    feeds: Mapping[str, Array],
    *,
    samples: int,
    where: str,
) -> EngineRecord:
    """Compare an engine's outputs with the interpreter's, unless the interpreter is the engine.

    Raises:
        AccuracyError: the outputs differ, and the engine did not run a .tflite file.
    """
    if engine.name == REFERENCE:
        return EngineRecord(REFERENCE, TOLERANCE)
    version = job.asked.engine.versions.get(engine.name, "")
    try:
        reference = open_engine(REFERENCE, graph, None, where=where, seed=_SEED)
        expected = reference.run(fetches, feeds)
    except UnsupportedError as error:
        return EngineRecord(engine.name, TOLERANCE, version, unlike=error.message)
    results = engine.run(fetches, feeds)
    agreement = agreement_of(engine.name, results, REFERENCE, expected, fetches)
    settings = job.asked
    if not agreement.holds and isinstance(settings, MeasuringStage) and settings.lite is not None:
        # A file may have fewer bits than its graph. Metrics decide whether it is good enough.
        return _apart(job, agreement, samples)
    if not agreement.holds:
        message = f"{where}: {agreement}; at most {TOLERANCE:.0e} is allowed"
        raise AccuracyError(message, "write 'engine: numpy' to go on", job.place("engine"))
    within = _within(agreement.largest)
    return EngineRecord(engine.name, TOLERANCE, version, samples, within)


def _apart(job: Job[RunningStage], agreement: Agreement, samples: int) -> EngineRecord:
    """Return the record of a .tflite file whose outputs differ from its graph's."""
    version = job.asked.engine.versions.get(agreement.engine, "")
    if math.isfinite(agreement.largest):
        within = _within(agreement.largest)
        return EngineRecord(agreement.engine, TOLERANCE, version, samples, within)
    unlike = "the file returns other integers, strings, shapes, NaN, or infinities than its graph"
    return EngineRecord(agreement.engine, TOLERANCE, version, unlike=unlike)


def storable(array: Array) -> Array:
    """Convert dtypes that numpy does not have to float32, and strings to bytes."""
    if array.dtype.kind == "O":
        return array.astype(np.bytes_)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _within(largest: float) -> float:
    power = _FINEST if largest <= 0 else max(math.ceil(math.log10(largest)), _FINEST)
    return float(f"1e{power}")


class _PlacedEngine:
    """An engine whose errors name the location in the recipe and a fix.

    Args:
        job: job of the stage.
        engine: the engine.
        section: recipe section of the engine.
        hint: the fix.
        file: file that the engine runs; errors name it instead of its path in the cache.
    """

    def __init__(
        self, job: Job[RunningStage], engine: Engine, section: Section, hint: str, file: str = ""
    ) -> None:
        self._job = job
        self._engine = engine
        self._section = section
        self._hint = hint
        self._file = file

    @property
    def name(self) -> str:
        """See ``Engine.name``."""
        return self._engine.name

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``."""
        try:
            return self._engine.run(fetches, feeds)
        except UnsupportedError as error:
            if self._job.asked.engine.name in (AUTO, REFERENCE):
                raise
            where = self._file or error.where
            message = f"{where}: {error.message}" if where else error.message
            hint = f"{error.hint}, or {self._hint}" if self._file else self._hint
            raise UnsupportedError(message, hint, self._job.place(self._section)) from error


def write_assets(target: Path, files: Mapping[str, Path]) -> None:
    """Write the files that a graph reads, by their names in the graph."""
    arrays = {name: np.frombuffer(read_bytes(path), np.uint8) for name, path in files.items()}
    with atomic_writer(target) as stream:
        write_arrays(stream, arrays)


@contextmanager
def with_assets(graph: Graph, assets: Path) -> Iterator[Graph]:
    """Provide the files that a graph reads, inside the context."""
    with asset_folder(assets) as folder:
        yield with_found_assets(graph, (folder,))


@contextmanager
def asset_folder(assets: Path) -> Iterator[Path]:
    """Extract an archive of assets to a temporary directory, inside the context."""
    import tempfile  # slow to import

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in read_arrays(assets).items():
            write_bytes(inside(folder, file), content.tobytes())
        yield folder


# Number of samples for measuring the spread, and the ratios that indicate another scale.
_LOOKED_AT: Final = 8


_MOST: Final = 8.0


_LEAST: Final = 1 / 32


def data_files(files: Files, data: Data | None) -> DataFiles:
    """Return the files of a stage's data for the readers."""
    if data is None:
        return DataFiles(files.name, files.root)
    labels, classes = (None if f is None else f.path for f in (data.labels, data.classes))
    return DataFiles(files.name, files.root, data.kind, data.reading, labels, classes)


def stage_inputs(
    job: Job[EvaluateStage]
    | Job[SamplesStage]
    | Job[DamageStage]
    | Job[LayersStage]
    | Job[CalibrateStage]
    | Job[RankStage]
    | Job[RankExceptionsStage]
    | Job[PassRateStage],
    graph: Graph,
    names: Sequence[str],
) -> list[FedTensor]:
    """Return the inputs of a stage's graph, with the shapes that its recipe declares."""
    try:
        return data_inputs(graph, names, {fed.name: fed.shape for fed in job.asked.inputs})
    except (InvalidGraphError, UsageError) as error:
        raise error.at(job.place("inputs")) from error


def data_record(survey: DataSurvey) -> DataRecord:
    """Return the statistics of a survey for later stages. Infinite and NaN ends are omitted."""
    ends = {
        name: (low, high)
        for name, (low, high) in survey.ends.items()
        if math.isfinite(low) and math.isfinite(high)
    }
    return DataRecord(survey.data, ends, tuple(survey.digests))


def norm_doubts(files: DataFiles, graph: Graph, inputs: Sequence[FedTensor]) -> Iterator[str]:
    """Warn if values before the first batch normalization differ from those in training."""
    data = open_dataset(files, inputs, SampleChoice(_LOOKED_AT, exactly=False))
    try:
        spread = first_norm_spread(graph, [run.feeds for run in runs(data, inputs, _LOOKED_AT)])
    except MobileprepError:
        return  # the stage that runs the graph for its results reports the error
    if spread is None or _LEAST < spread.found / spread.trained < _MOST:
        return
    yield (
        f"{files.name}: before the first batch normalization, {spread.node!r}, values have a "
        f"standard deviation of {spread.found:.2g}, and had {spread.trained:.2g} in training; look "
        "at the scale of the samples, such as 'mean' and 'std'"
    )


@contextmanager
def placed_step(job: Job[Any]) -> Iterator[None]:
    """Locate errors of a transform in the recipe, and keep their location in the graph."""
    try:
        yield
    except MobileprepError as error:
        message = f"{error.where}: {error.message}" if error.where else error.message
        raise error.at(job.place("transforms"), message=message) from error


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Add a location in the recipe to errors about data that have none."""
    try:
        yield
    except AccuracyError as error:
        if error.where:
            raise
        raise error.at(place) from error
