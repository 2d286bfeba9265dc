"""Compare graphs of the build with the source on samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.plan.spec import PUBLISHED, Files
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.check.spec import (
    CheckRecord,
    CheckStage,
    DefaultCheckRecord,
    DefaultCheckStage,
    SamplesRecord,
    SamplesStage,
)
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.running import (
    REFERENCE,
    basis_of,
    basis_text,
    compared_with_reference,
    data_files,
    measured_graph,
    measuring_engine,
    stage_engine,
    stage_inputs,
    storable,
    with_assets,
)
from mobileprep.core.files import atomic_writer
from mobileprep.data.opening import data_kind, open_dataset
from mobileprep.data.source import SampleChoice
from mobileprep.data.survey import DataSurvey
from mobileprep.errors import (
    AccuracyError,
    InvalidGraphError,
    MissedLimitError,
    MobileprepError,
    RecipeError,
    UnsupportedError,
    UsageError,
)
from mobileprep.formats.arrays import map_arrays, read_arrays, write_arrays
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.differences import (
    Difference,
    differences,
    is_counted,
    not_finite,
    shown_difference,
)
from mobileprep.ops.numerics.texts import class_count
from mobileprep.runtime.accounting.costs import inferred_costs
from mobileprep.runtime.engines.agreement import TOLERANCE
from mobileprep.runtime.engines.choose import LITERT
from mobileprep.runtime.sampling.data_files import array_of, recorded_feeds
from mobileprep.runtime.sampling.draw import Samples, draw_samples
from mobileprep.runtime.sampling.first_ops import first_ops, standing_still
from mobileprep.runtime.sampling.inputs import FedTensor

# Operations to spend on all samples of a default check. Large networks run fewer samples.
_MOST_FLOPS: Final = 4e10
_FEWEST_SAMPLES: Final = 3

_NO_INPUTS: Final = "no inputs are named, so the check runs the model on its constants alone"


_SHORT_LOOP: Final = (
    "the check runs the model's loops over sequences of length one, because longer ones do not fit "
    "its inputs; give the inputs longer shapes, or name samples: 'check: {data: FILE.npz}'"
)


def run_samples(job: Job[SamplesStage]) -> None:
    """Write ``samples.npz``, ``expected.npz``, and ``samples.json``.

    Raises:
        AccuracyError: the data does not fit the source, unless the samples are optional.
        RecipeError: no data is named and none can be drawn, unless the samples are optional.
    """
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    try:
        inputs, samples, doubts = _source_run(job, interface)
    except MobileprepError as error:
        if not settings.optional:
            raise
        inputs, samples, warnings = [], Samples((), (), {}), [error.message]
    else:
        warnings = standing_still(interface.outputs, samples.outputs, samples.inputs)
        if samples.has_short_loop:
            warnings.append(_SHORT_LOOP)
        warnings = [*(warnings if inputs else [_NO_INPUTS]), *doubts]
    _write(
        job.output(settings.FED), [[feeds[fed.name] for fed in inputs] for feeds in samples.feeds]
    )
    _write(job.output(settings.EXPECTED), samples.outputs)
    for warning in () if settings.optional else warnings:
        job.warn(warning)
    data = settings.data.name if settings.data is not None and inputs else None
    record = SamplesRecord(
        "drawn" if data is None else settings.section,
        data,
        len(samples.feeds),
        samples.inputs,
        tuple(warnings),
    )
    job.write_record(settings.RECORD, record)


def _source_run(
    job: Job[SamplesStage], interface: Interface
) -> tuple[Sequence[FedTensor], Samples, Sequence[str]]:
    """Return the inputs, the samples with the source's outputs, and warnings about the samples."""
    settings = job.asked
    graph = job.graph(settings.graph)
    inputs = stage_inputs(job, graph, interface.inputs)
    survey = DataSurvey("" if settings.data is None else settings.data.name)
    with with_assets(graph, job.path(settings.assets)) as graph:
        engine = stage_engine(job, graph, "the source")
        run_graph = partial(engine.run, interface.outputs)
        count = _count(settings, graph, inputs, interface.outputs)
        samples = _samples(job, graph, inputs, run_graph, survey, count)
    # Validation and calibration stages inspect their own data.
    is_own = settings.data is not None and settings.section == "check"
    return inputs, samples, list(survey.doubts(graph, inputs)) if is_own else []


def _count(
    settings: SamplesStage, graph: Graph, inputs: Sequence[FedTensor], outputs: Sequence[str]
) -> int:
    """Return the number of samples: that of the recipe, or fewer for a large network."""
    if not settings.optional:
        return settings.count
    shapes = {f.name: f.shape and tuple(max(size, 1) for size in f.shape) for f in inputs}
    flops = inferred_costs(graph, outputs, shapes).flops
    return min(max(int(_MOST_FLOPS // max(flops, 1)), _FEWEST_SAMPLES), settings.count)


def read_runs(path: Path) -> list[list[Array]]:
    """Read the arrays of each run from a file that the samples stage wrote."""
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
    run_graph: Callable[[Mapping[str, Array]], list[Array]],
    survey: DataSurvey,
    count: int,
) -> Samples:
    data = job.asked.data
    if data is None or not inputs:
        try:
            return draw_samples(graph, inputs, count, run_graph)
        except UsageError as error:
            raise RecipeError(error.message, error.hint, job.place("check")) from error
    ops = [first_ops(graph, fed.ref) for fed in inputs]
    try:
        arrays = _arrays(job, data, inputs, survey, count)
        feeds = recorded_feeds(arrays, inputs, ops, count, data.name)
        outputs = tuple(run_graph(values) for values in feeds)
        for values in feeds:
            for name, array in values.items():
                survey.note(name, array)
    except (AccuracyError, InvalidGraphError, UsageError) as error:
        raise _about_data(error, data.name, job.place("data")) from error
    shapes = {f.name: f"{f.dtype.short} {list(feeds[0][f.name].shape)}" for f in inputs}
    return Samples(feeds, outputs, shapes)


def _arrays(
    job: Job[SamplesStage],
    data: Files,
    inputs: Sequence[FedTensor],
    survey: DataSurvey,
    count: int,
) -> Mapping[str, Array]:
    """Return the array of each input: whole arrays of an .npz file, else the chosen samples."""
    files = data_files(data, job.asked.reading)
    if (files.kind or data_kind(files)) == "npz":
        keys = dict(files.reading.inputs)
        arrays = map_arrays(files.root)
        return arrays | {name: array_of(arrays, key, data.name) for name, (key,) in keys.items()}
    choice = SampleChoice(count, exactly=False)
    dataset = open_dataset(files, inputs, choice, labels=job.asked.labels, warn=job.warn)
    (batch,) = dataset.batches(len(dataset))
    survey.look(batch)
    return batch.feeds


def _about_data(error: MobileprepError, data: str, place: str) -> AccuracyError:
    if isinstance(error, AccuracyError):
        return AccuracyError(error.message, error.hint, error.where or place)
    message = f"the source does not run on the samples of {data}: {error.message}"
    return AccuracyError(message, error.hint, place)


_STEP_HINT = "leave the step out, or look at its parameters"


_MODEL_HINT = "use a gentler quantization"


# Fraction of the peak that is large enough for a warning.
_LARGE = 0.1


_NO_DIFFERENCE: Final = Difference("", 0.0, 0.0, 0.0)


def run_check(job: Job[CheckStage]) -> None:
    """Write ``check.json``.

    Raises:
        AccuracyError: an output differs from the source's by more than ``max_difference``, has
            another shape, or only one of the two is NaN or infinite.
        InvalidGraphError: the graph does not run.
    """
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    expected = read_runs(job.path(settings.expected))
    feeds = _feeds(job, interface)
    results, engine = _run(job, interface, feeds)
    gaps = differences(interface.outputs, expected, results, job.place("transforms"))
    worst = max(gaps, key=lambda gap: (gap.share, not gap.is_source_lost), default=_NO_DIFFERENCE)
    if not math.isfinite(worst.share):
        place = job.place("max_difference" if worst.is_source_lost else "transforms")
        raise not_finite(worst, _subject(job), feeds, _hint(job)).at(place)
    _judge(job, worst)
    basis = basis_of(job, engine)
    record = _record(settings.step, gaps, worst, settings.max_difference, engine, basis)
    job.write_record(settings.RECORD, record)


def _record(
    step: str,
    gaps: Sequence[Difference],
    worst: Difference,
    limit: float | None,
    engine: EngineRecord,
    basis: str,
) -> CheckRecord:
    largest = shown_difference(max((gap.absolute for gap in gaps), default=0.0))
    share = shown_difference(worst.share)
    return CheckRecord(step, worst.name, largest, share, limit, engine, basis)


def _judge(job: Job[CheckStage], worst: Difference) -> None:
    """Warn or raise an error if the largest difference is too large."""
    where, hint, limit = _subject(job), _hint(job), job.asked.max_difference
    sentence = f"{where} the output {worst}"
    if limit is None:
        if worst.share > max([_LARGE, *_earlier(job)]):
            job.warn(f"{sentence}; 'check: {{max_difference: ...}}' would refuse it")
    elif worst.share > limit:
        message = f"{sentence}; at most {limit:.3g} is allowed"
        hint = f"{hint}, or raise max_difference ({job.place('max_difference')})"
        raise MissedLimitError(message, hint, job.place("transforms"), job.task)


def _subject(job: Job[CheckStage]) -> str:
    """Return the checked graph or file for messages: ``after a_step`` or ``in digits.tflite``."""
    measured = job.asked.measured
    return f"after {job.asked.step}" if measured is None else f"in {measured.name}"


def _earlier(job: Job[CheckStage]) -> Iterator[float]:
    """Yield the differences after each step, so that the model's check repeats no warning."""
    for upstream in job.asked.earlier:
        yield job.record(CheckRecord, upstream).share_of_peak


def _hint(job: Job[CheckStage]) -> str:
    return _STEP_HINT if job.asked.measured is None else _MODEL_HINT


def _feeds(
    job: Job[CheckStage] | Job[DefaultCheckStage], interface: Interface
) -> list[dict[str, Array]]:
    """Return the inputs of each run. Without inputs, the source ran once."""
    runs = read_runs(job.path(job.asked.samples))
    return [dict(zip(interface.inputs, arrays, strict=True)) for arrays in runs] or [{}]


def _run(
    job: Job[CheckStage], interface: Interface, feeds: Sequence[Mapping[str, Array]]
) -> tuple[list[list[Array]], EngineRecord]:
    """Return the outputs for each sample, and the engine that ran the graph or file."""
    settings = job.asked
    graph = measured_graph(job)
    where = _subject(job)
    with with_assets(graph, job.path(settings.assets)) as graph:
        engine = measuring_engine(job, graph, where, "check")
        try:
            results = [engine.run(interface.outputs, values) for values in feeds]
        except (InvalidGraphError, UsageError) as error:
            # The source ran, so the step or the packaging is at fault.
            message = f"{where} the graph does not run: {error.message}"
            raise InvalidGraphError(message, _hint(job), job.place("transforms")) from error
        record = compared_with_reference(
            job, engine, graph, interface.outputs, feeds[0], samples=1, where=where
        )
    return [[storable(array) for array in outputs] for outputs in results], record


# Scores of the source that differ by less, as a fraction of the best, count as a tie.
_TIE: Final = 0.01


def run_default_check(job: Job[DefaultCheckStage]) -> None:
    """Write ``default_check.json``. Problems are only warnings because the check is implicit."""
    settings = job.asked
    samples = job.record(SamplesRecord, settings.drawn)
    interface = job.record(Interface, settings.interface)
    check: CheckRecord | None = None
    if samples.warnings:
        hint = "add 'check: {data: FILE.npz}' with an array for each input"
        warnings = [_unchecked(job, samples.warnings[0], hint)]
    else:
        try:
            check, warnings = _check_quantized(job, interface, samples)
        except MobileprepError as error:
            warnings = [_unchecked(job, error.message, error.hint)]
    for warning in warnings:
        job.warn(warning)
    job.write_record(settings.RECORD, DefaultCheckRecord(settings.number, check, tuple(warnings)))


def _unchecked(job: Job[DefaultCheckStage], reason: str, hint: str) -> str:
    first, _, _ = reason.partition("\n")
    advice = f"{hint}; " if hint else ""
    return (
        f"{job.asked.step} was not checked against the source: {first}; {advice}"
        "'check: false' turns this warning off"
    )


def _check_quantized(
    job: Job[DefaultCheckStage], interface: Interface, samples: SamplesRecord
) -> tuple[CheckRecord, list[str]]:
    settings = job.asked
    expected = read_runs(job.path(settings.expected))
    results, engine = _results(job, interface.outputs, _feeds(job, interface))
    gaps = differences(interface.outputs, expected, results)
    worst = max(gaps, key=lambda gap: gap.share, default=_NO_DIFFERENCE)
    evidence = [f"the output {worst}"] if worst.share > _LARGE else []
    evidence += _flips(interface.outputs, expected, results)
    source = "drawn samples" if samples.data is None else f"samples of {samples.data}"
    warning = (
        f"{'in' if settings.file else 'after'} {settings.step}, on {samples.samples} {source}, "
        f"{', and '.join(evidence)}{_advice(settings.alternatives)}"
    )
    file = settings.file
    basis = "" if file is None else basis_text(file.output.removeprefix(PUBLISHED), engine)
    record = _record(settings.step, gaps, worst, None, engine, basis)
    return record, [warning] if evidence else []


def _advice(alternatives: Sequence[str]) -> str:
    if not alternatives:
        return "; leave the weights in float32, or validate on data of your own"
    return f"; to change less, try in this order: {', '.join(alternatives)}"


def _results(
    job: Job[DefaultCheckStage], outputs: Sequence[str], feeds: Sequence[Mapping[str, Array]]
) -> tuple[list[list[Array]], EngineRecord]:
    """Return the quantized model's outputs for each sample, and the engine that ran it."""
    settings = job.asked
    if settings.file is not None:
        if not settings.litert:
            message = "LiteRT is not installed"
            raise UnsupportedError(message, "pip install 'mobileprep[litert]'")
        from mobileprep.runtime.engines.litert_engine import LiteRtModel

        model = LiteRtModel(job.path(settings.file))
        results = [model.run(outputs, values) for values in feeds]
        record = EngineRecord(LITERT, TOLERANCE, settings.litert, unlike="the check compares it")
    else:
        with with_assets(job.graph(settings.graph), job.path(settings.assets)) as graph:
            engine = stage_engine(job, graph, f"after {settings.step}")
            results = [engine.run(outputs, values) for values in feeds]
        record = EngineRecord(REFERENCE, TOLERANCE)
    return [[storable(array) for array in arrays] for arrays in results], record


def _flips(
    outputs: Sequence[str], expected: Sequence[Sequence[Array]], results: Sequence[Sequence[Array]]
) -> Iterator[str]:
    """Yield a sentence for each output with scores of classes whose top-1 class changed."""
    for at, output in enumerate(outputs):
        before, after = (
            [outputs_of_run[at] for outputs_of_run in runs] for runs in (expected, results)
        )
        classes = class_count(before[0].shape) if before and before[0].ndim > 1 else None
        if classes is None or classes < 2 or any(map(is_counted, before)):
            continue
        scores, others = (
            np.concatenate([array.reshape(-1, classes) for array in arrays])
            for arrays in (before, after)
        )
        rows = np.arange(len(scores))
        best = scores.max(axis=1)
        lead = best - scores[rows, others.argmax(axis=1)]
        changed = int(np.sum(lead > _TIE * np.abs(best)))
        if changed:
            yield f"{changed} of {len(scores)} samples have another top-1 class in {output!r}"
