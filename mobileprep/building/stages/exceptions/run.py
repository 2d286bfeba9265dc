"""Search for the operators to except from int8."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mobileprep.building.plan.spec import Upstream
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.exceptions.report import mode_counts
from mobileprep.building.stages.exceptions.spec import (
    ChooseExceptionsStage,
    ChosenException,
    ExceptionRanking,
    ExceptionsRecord,
    ExceptionStage,
    RankedException,
    RankExceptionsStage,
    TryExceptionsStage,
    nodes_by_mode,
)
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.package.lite import integers_of, record_of, rules_of
from mobileprep.building.stages.running import data_files, placed, stage_inputs, with_assets
from mobileprep.building.stages.search.run import recorded_tries
from mobileprep.building.stages.search.spec import TrialRecord, TriesRecord
from mobileprep.core.files import write_bytes
from mobileprep.core.parallel import cores
from mobileprep.data.calibration.layers import (
    best_try,
    nearest_try,
    next_exceptions,
    recipe_rule,
)
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import SampleChoice
from mobileprep.data.survey import runs
from mobileprep.errors import AccuracyError
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.statistics import without_statistics
from mobileprep.graph.tensor import Array
from mobileprep.graph.tflite import parse_tflite
from mobileprep.inspection.lite_costs import lite_costs
from mobileprep.litert.assemble import assembled
from mobileprep.litert.convert import integer_units
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.program import Program
from mobileprep.litert.quantizing.exceptions import Level, Rounding, plan_exceptions
from mobileprep.litert.quantizing.roundings import IntegerUnits
from mobileprep.ops.numerics.differences import DamageSum, differences
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from mobileprep.targets.op_classes import class_costs

# Multiply-accumulates to spend on the ranking, in all runs together. Large networks use fewer
# samples than small ones.
_MOST_MACS: Final = 1e12
_FEWEST_SAMPLES: Final = 2
# Share of the error above which the weights of each layer are measured.
_WEIGHTS_MATTER: Final = 0.01
# Largest error of an output that counts, as a share of its peak; NaN has an infinite one.
_MOST_SHARE: Final = 100.0


def run_rank_exceptions(job: Job[RankExceptionsStage]) -> None:
    """Write ``ranking.json``.

    Raises:
        AccuracyError: the data does not fit the graph.
        CorruptFileError: the data cannot be read.
    """
    settings = job.asked
    graph, interface = _graph(job), job.record(Interface, settings.interface)
    specs = [CutInput(name) for name in interface.inputs]
    where = job.place("artifact")
    with placed(job.place("validation")), with_assets(graph, job.path(settings.assets)) as whole:
        ranges = None if settings.ranges is None else job.path(settings.ranges)
        options = integers_of(settings.quantize, ranges)
        units, convert = integer_units(whole, specs, interface.outputs, options, where=where)
        macs = round(units.int8_macs, 6)
        if best_try(recorded_tries(job, settings.tries)) is not None:
            job.write_record(settings.RECORD, ExceptionRanking(0, macs, 0.0, ()))
            return
        outputs = _ProgramOutputs(job, graph, units)
    roundings, weights = _errors(job, units, outputs)

    def measure(levels: Mapping[int, Level]) -> float:
        # Float is as precise as 16-bit activations, and LiteRT runs it many times faster.
        names = [name for some in units.names(levels).values() for name in some]
        return outputs.error(convert(rules_of({"float": names} if names else {})))

    steps = plan_exceptions(
        units.units,
        roundings,
        weights,
        measure,
        int8_macs=units.int8_macs,
        min_int8_macs=settings.quantize.min_int8_macs,
    )
    exceptions = []
    for step in steps:
        modes = {mode: tuple(names) for mode, names in units.names(step.units).items()}
        shares = round(step.macs, 6), round(step.integers, 6)
        exceptions.append(RankedException(modes, *shares, _decibels(step.error)))
    error = _decibels(measure({}))
    record = ExceptionRanking(outputs.samples, macs, error, tuple(exceptions))
    job.write_record(settings.RECORD, record)


def _graph(job: Job[ExceptionStage]) -> Graph:
    return without_statistics(job.graph(job.asked.graph))


def _decibels(error: float) -> float:
    """Express a squared error relative to the outputs in dB."""
    return round(10 * math.log10(max(error, 1e-20)), 2)


def _errors(
    job: Job[RankExceptionsStage], units: IntegerUnits, outputs: _ProgramOutputs
) -> tuple[list[Rounding], dict[int, float]]:
    """Measure the error of each rounding alone, and of the weights of each unit."""
    probes: list[tuple[int, int | None]] = []
    for index, tensor in enumerate(units.tensors):
        probes.append((index, None))
        if len(tensor.readers) > 1 or (tensor.readers and tensor.has_others):
            probes += [(index, reader) for reader in tensor.readers]
    errors: dict[tuple[int, int | None], float] = {}
    for done, (index, reader) in enumerate(probes):
        job.progress(done, len(probes) + 1)
        errors[index, reader] = outputs.error(units.with_rounded(units.tensors[index], reader))
    roundings = [
        Rounding(
            tensor.writer,
            tuple(tensor.readers),
            errors[index, None],
            {r: errors[index, r] for r in tensor.readers if (index, r) in errors},
            tensor.has_others,
        )
        for index, tensor in enumerate(units.tensors)
    ]
    layers = list(units.layers())
    weights: dict[int, float] = {}
    of_weights = outputs.error(units.with_int8_weights([op for _, op in layers]))
    if of_weights > _WEIGHTS_MATTER * sum(rounding.error for rounding in roundings):
        for unit, op in layers:
            weights[unit] = weights.get(unit, 0.0) + outputs.error(units.with_int8_weights([op]))
    job.progress(len(probes) + 1, len(probes) + 1)
    return roundings, weights


class _ProgramOutputs:
    """Runs float programs on the samples of the validation, and compares them with the first."""

    def __init__(self, job: Job[RankExceptionsStage], graph: Graph, units: IntegerUnits) -> None:
        settings = job.asked
        interface = job.record(Interface, settings.interface)
        self._names = interface.outputs
        inputs = stage_inputs(job, graph, interface.inputs)
        probes = sum(1 + len(tensor.readers) for tensor in units.tensors)
        macs = max(units.total_macs * probes, 1)
        samples = min(max(int(_MOST_MACS / macs), _FEWEST_SAMPLES), settings.samples)
        data = open_dataset(
            data_files(settings.data, settings.reading),
            inputs,
            SampleChoice(samples, exactly=False),
        )
        fed = list(runs(data, inputs, 1))
        self._feeds = [one.feeds for one in fed]
        self.samples = sum(one.count for one in fed)
        self._expected = self._run(units.program)

    def error(self, program: Program) -> float:
        """Return the squared error of a program's outputs, relative to the float program's.

        It is the sum over the outputs of their noise and of the square of their largest error,
        which limits are often about. Both are rounded, so that they do not depend on the processor.
        """
        actual = self._run(program)
        sums = [DamageSum() for _ in self._names]
        for run, expected in zip(actual, self._expected, strict=True):
            for total, x, y in zip(sums, expected, run, strict=True):
                total.add(_floats(x), _floats(y))
        noise = sum(10 ** (-round(total.damage().sqnr, 2) / 10) for total in sums)
        gaps = differences(self._names, self._expected, actual)
        largest = (min(round(gap.share, 4), _MOST_SHARE) for gap in gaps)
        return float(noise + sum(share * share for share in largest))

    def _run(self, program: Program) -> list[list[Array]]:
        content = bytes(model_bytes(assembled(program)))
        model = LiteRtModel(Path("model.tflite"), content, cores())
        return [[np.array(x) for x in model.run(self._names, feed)] for feed in self._feeds]


def _floats(array: Array) -> Array:
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def run_try_exceptions(job: Job[TryExceptionsStage]) -> None:
    """Write the file and ``trial.json``.

    After the last try, the file is the best one so far, or the nearest one. It is already
    evaluated, so the stages after it are cache hits.
    """
    settings = job.asked
    ranking, tries = _ranked(job, settings.ranking), recorded_tries(job, settings.tries)
    new = next_exceptions(len(ranking), tries)
    levels = new or (best_try(tries) or nearest_try(tries)).levels
    content = _content(job, rules_of(nodes_by_mode(ranking[: levels.floats])))
    write_bytes(job.output(settings.file), content)
    record = TrialRecord(levels.floats, levels.weights, new is not None)
    job.write_record(settings.RECORD, record)


def _ranked(job: Job[ExceptionStage], ranking: Upstream | None) -> Sequence[RankedException]:
    return () if ranking is None else job.record(ExceptionRanking, ranking).exceptions


def _content(job: Job[ExceptionStage], rules: Sequence[str]) -> bytes:
    """Return the .tflite file with additional rules."""
    graph, interface = _graph(job), job.record(Interface, job.asked.interface)
    with with_assets(graph, job.path(job.asked.assets)) as whole:
        return bytes(model_bytes(record_of(job, whole, interface, rules, lambda _: None)))


def run_choose_exceptions(job: Job[ChooseExceptionsStage]) -> None:
    """Write ``exceptions.json``.

    Raises:
        AccuracyError: no try meets the validation's limits.
    """
    settings = job.asked
    ranking = job.record(ExceptionRanking, settings.ranking)
    tries = recorded_tries(job, settings.tries)
    best = best_try(tries)
    if best is None:
        raise _none_holds(job, ranking)
    chosen = ranking.exceptions[: best.levels.floats]
    modes = nodes_by_mode(chosen)
    record = ExceptionsRecord(
        tuple(recipe_rule(mode, names) for mode, names in modes.items()),
        chosen[-1].int8_macs if chosen else ranking.int8_macs,
        chosen[-1].integer_macs if chosen else ranking.int8_macs,
        len(tries),
        tuple(_with_costs(job, ranking, chosen)),
        "" if settings.device is None else settings.device.title,
    )
    job.write_record(settings.RECORD, record)


def _with_costs(
    job: Job[ChooseExceptionsStage], ranking: ExceptionRanking, chosen: Sequence[RankedException]
) -> Iterator[ChosenException]:
    """Yield the exceptions with the bytes and the time that each adds to those before."""
    before = _content(job, ()) if chosen else b""
    error = ranking.error
    for count, one in enumerate(chosen, start=1):
        after = _content(job, rules_of(nodes_by_mode(chosen[:count])))
        times = [_milliseconds(job, content) for content in (before, after)]
        latency = None if times[0] is None or times[1] is None else times[1] - times[0]
        yield ChosenException(
            one.modes,
            one.int8_macs,
            round(error - one.error, 2),
            len(after) - len(before),
            None if latency is None else float(f"{latency:.6g}"),
        )
        before, error = after, one.error


def _milliseconds(job: Job[ChooseExceptionsStage], content: bytes) -> float | None:
    """Estimate the time of a run on the target's device, or None without one."""
    device = job.asked.device
    if device is None:
        return None
    lite = parse_tflite(content, "model.tflite")
    costs = lite_costs(lite.graph, lite.outputs, {}, 1)
    return float(device.seconds(class_costs(costs.nodes)) * 1e3)


_NAMED: Final = 3


def _none_holds(job: Job[ChooseExceptionsStage], ranking: ExceptionRanking) -> AccuracyError:
    """Return the error with the nearest try and the most useful exceptions."""
    settings = job.asked
    records = job.record(TriesRecord, settings.tries).tries
    tries = recorded_tries(job, settings.tries)
    nearest = nearest_try(tries)
    (record,) = (r for r, one in zip(records, tries, strict=True) if one == nearest)
    chosen = ranking.exceptions[: nearest.levels.floats]
    parts = mode_counts(nodes_by_mode(chosen))
    share = chosen[-1].int8_macs if chosen else ranking.int8_macs
    count = f"{len(records)} tries" if len(records) > 1 else "the one try"
    message = f"none of {count} of 'quantize: auto' keeps the limits; nearest is the one with "
    message += f"{' and '.join(parts) or 'everything in int8'}"
    message += f", which has {share:.1%} of the multiply-accumulates in int8:" if share else ":"
    message = "\n".join([message, *record.told])
    least = settings.quantize.min_int8_macs
    hint = f"lower 'min_int8_macs', which is {least:g}; or "
    hint += "repair the graph before, calibrate by another method, or change the limit"
    if next_exceptions(len(ranking.exceptions), tries) is not None:
        hint = f"raise 'trials'; or {hint}"
    first = nodes_by_mode(ranking.exceptions[:_NAMED])
    rules = [recipe_rule(mode, names) for mode, names in first.items()]
    if rules:
        hint += f"; the most useful exceptions, as rules:\n    rules: [{', '.join(rules)}]"
    return AccuracyError(message, hint, job.place("validation"))
