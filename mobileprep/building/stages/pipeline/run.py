"""Compute the cost of a pipeline, and measure pass rates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct, structs

from mobileprep.building.plan.spec import Upstream
from mobileprep.building.report.layout import number_text
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.budget.spec import BudgetLine
from mobileprep.building.stages.evaluate.run import evaluated
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.package.spec import PackageRecord
from mobileprep.building.stages.pipeline.spec import (
    Amounts,
    PassRateRecord,
    PassRateStage,
    PipelineRecord,
    PipelineStage,
    StepCost,
)
from mobileprep.building.stages.running import (
    data_files,
    placed,
    stage_engine,
    stage_inputs,
    with_assets,
)
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import SampleChoice, data_inputs, no_samples
from mobileprep.data.survey import runs
from mobileprep.errors import (
    AccuracyError,
    InvalidGraphError,
    RecipeError,
    UsageError,
    nearest_hint,
)
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.recipe.pipeline_settings import (
    PassRate,
    PipelineStep,
    RunCounts,
    Windows,
)
from mobileprep.runtime.accounting.costs import GraphCosts, sample_costs
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.targets.op_classes import class_costs

# Samples that run at once. Images of a whole pipeline can be large.
_BATCH: Final = 8


def run_pass_rate(job: Job[PassRateStage]) -> None:
    """Write ``pass_rate.json``.

    Raises:
        AccuracyError: the data does not fit the model, or the output has no such class.
    """
    settings = job.asked
    graph = job.graph(settings.graph)
    interface = job.record(Interface, settings.interface)
    inputs = stage_inputs(job, graph, interface.inputs)
    place = job.place("pipeline")
    output = _output(settings.output, interface.outputs, place)
    samples = values = passed = 0
    with placed(place), with_assets(graph, job.path(settings.assets)) as whole:
        data = open_dataset(
            data_files(settings.data, settings.reading),
            inputs,
            SampleChoice(settings.samples),
            warn=job.warn,
        )
        engine = stage_engine(job, whole, data.name)
        try:
            for batch, (array,) in evaluated(engine, runs(data, inputs, _BATCH), [output]):
                scores = _scores(array, output, settings.class_index)
                samples += batch.count
                values += scores.size
                passed += int(np.count_nonzero(scores >= settings.threshold))
                job.progress(samples, len(data))
        except UsageError as error:
            raise AccuracyError(error.message, error.hint, error.where) from error
        if not samples:
            raise no_samples(data.name)
        if not values:
            message = f"the output {output!r} has no values for {data.name}"
            raise AccuracyError(message, "name another output, or larger samples")
    record = PassRateRecord(settings.data.name, samples, values, passed, engine.name)
    job.write_record(settings.RECORD, record)


def _output(named: str | None, outputs: Sequence[str], place: str) -> str:
    if named is None:
        return outputs[0]
    for output in outputs:
        if parse_ref(output) == parse_ref(named):
            return output
    message = f"the previous model has no output {named!r}; it has {', '.join(outputs)}"
    hint = nearest_hint(named, outputs) or f"choose one of {', '.join(outputs)}"
    raise AccuracyError(message, hint, place)


def _scores(array: Array, output: str, class_index: int | None) -> Array:
    """Return the values of an output that are compared with the threshold."""
    if array.dtype.kind not in "iufb":
        message = f"the output {output!r} has no numbers to compare with the threshold"
        raise AccuracyError(message, "name another output")
    if class_index is None:
        return array
    classes = array.shape[-1] if array.ndim > 1 else 0
    if class_index >= classes:
        message = f"the last axis of the output {output!r} has {classes} classes, so none has the "
        message += f"index {class_index}"
        raise AccuracyError(message, "choose a smaller 'class_index', or leave it out")
    return array[..., class_index]


def run_pipeline(job: Job[PipelineStage]) -> None:
    """Write ``pipeline.json``.

    Raises:
        AccuracyError: the pipeline exceeds a limit.
        RecipeError: the number of runs or the cost of a run is unknown.
    """
    settings = job.asked
    steps: list[StepCost] = []
    uncounted: set[str] = set()
    bases: dict[str, None] = {}
    rates = iter(settings.rates)
    passing = Count.of(1)
    for index, step in enumerate(settings.steps):
        model = _Model(job, index)
        if step.windows is not None:
            run, costs = _windows(model, step.windows)
        else:
            run, costs = _runs(job, step, passing, rates), [model.costs()]
        passing = run.passing
        uncounted.update(op for one in costs for op in one.uncounted)
        bases[model.package.model.basis] = None
        steps.append(_step_cost(job, model, step, run, costs))
    without = f"counts without {', '.join(sorted(uncounted))}" if uncounted else ""
    record = PipelineRecord(
        tuple(steps),
        _total([step.flops for step in steps]),
        None if settings.device is None else _total([s.latency_ms for s in steps if s.latency_ms]),
        _ram(steps, keep_loaded=settings.keep_loaded),
        settings.keep_loaded,
        "" if settings.device is None else _device(job),
        "; ".join(filter(None, (without, *bases))),
    )
    lines = tuple(_limits(job, record))
    _check(job, record, lines)
    job.write_record(settings.RECORD, structs.replace(record, budget=lines))


class _Runs(Struct, frozen=True):
    """How often a step runs.

    Args:
        count: number of runs.
        passing: number of windows or runs from which a pass rate selects.
        basis: source of the numbers.
    """

    count: Count
    passing: Count
    basis: str


def _runs(
    job: Job[PipelineStage], step: PipelineStep, previous: Count, rates: Iterator[Upstream]
) -> _Runs:
    """Return the runs of a step with given counts or a pass rate."""
    if step.pass_rate is None:
        if isinstance(step.runs, RunCounts):
            count = Count(step.runs.expected, step.runs.p95, step.runs.worst)
        else:
            count = Count.of(1 if step.runs is None else step.runs)
        return _Runs(count, count, "given")
    rate, basis = step.pass_rate, ""
    if isinstance(rate, PassRate):
        record = job.record(PassRateRecord, next(rates))
        rate = record.rate
        plural = "s" * (record.samples != 1)
        basis = f", measured on {record.samples:,} sample{plural} of {record.data}"
        basis = f" ({record.passed:,} of {record.values:,} values{basis}, {record.engine})"
    count = previous.passed(rate)
    return _Runs(count, count, f"{100 * rate:.4g} % of the previous step{basis}")


def _windows(model: _Model, windows: Windows) -> tuple[_Runs, list[GraphCosts]]:
    """Return the runs of a sliding window, and the costs of a run, or of a run for each scale."""
    sizes = windows.sizes()
    number = sum(map(windows.count, sizes))
    shape = " x ".join(map(str, windows.window))
    scales = f" at {len(sizes)} scales" if windows.scales is not None else ""
    positions = f"{number:,} windows of {shape}{scales}"
    if model.fits(windows):
        count = Count.of(number)
        return _Runs(count, count, positions), [model.costs()]
    costs = [model.costs(size) for size in sizes]
    basis = f"fully convolutional, {positions}"
    return _Runs(Count.of(len(sizes)), Count.of(number), basis), costs


class _Model:
    """The model of a step."""

    def __init__(self, job: Job[PipelineStage], index: int) -> None:
        settings = job.asked
        self.name = settings.steps[index].model
        self.place = settings.steps[index].place
        self.package = job.record(PackageRecord, settings.packages[index])
        self._graph = job.graph(settings.graphs[index])
        self._assets = job.path(settings.assets[index])
        self._interface = job.record(Interface, settings.interfaces[index])
        self._declared = {fed.name: fed.shape for fed in settings.inputs[index]}

    def fits(self, windows: Windows) -> bool:
        """Return whether the model runs for each window; False if it is fully convolutional.

        Raises:
            RecipeError: it does neither.
        """
        name, shape = self._image()
        sides = shape[-3:-1]
        if sides in (windows.window, (-1, -1), windows.image):
            return sides == windows.window
        message = f"the input {name!r} of {self.name!r} has a height and width of "
        message += f"{' x '.join(map(str, sides))}, and the window has "
        message += " x ".join(map(str, windows.window))
        hint = "write the size of the input as 'window', or leave both sizes of the input open, or "
        hint += "declare the size of the image for a fully convolutional model"
        raise RecipeError(message, hint, self.place)

    def costs(self, size: tuple[int, int] | None = None) -> GraphCosts:
        """Return the cost of a run.

        Args:
            size: height and width of the image; None for the input's own shape.

        Raises:
            RecipeError: the size of a tensor is unknown.
        """
        inputs = self._inputs
        if size is not None:
            name, declared = self._image()
            shape = (*declared[:-3], *size, declared[-1])
            inputs = [structs.replace(f, shape=shape) if f.name == name else f for f in inputs]
        try:
            with with_assets(self._graph, self._assets) as graph:
                return sample_costs(graph, inputs, self._interface.outputs)
        except (InvalidGraphError, UsageError) as error:
            message = f"{self.name}: {error.message}"
            raise RecipeError(message, error.hint, self.place) from error

    @cached_property
    def _inputs(self) -> list[FedTensor]:
        try:
            return data_inputs(self._graph, self._interface.inputs, self._declared)
        except (InvalidGraphError, UsageError) as error:
            message = f"{self.name}: {error.message}"
            raise RecipeError(message, error.hint, self.place) from error

    def _image(self) -> tuple[str, tuple[int, ...]]:
        """Return name and shape of the only input with height, width, and channels."""
        shapes = ((fed.name, fed.shape) for fed in self._inputs)
        images = [(n, shape) for n, shape in shapes if shape is not None and len(shape) in (3, 4)]
        if len(images) == 1:
            return images[0]
        message = f"windows need one input with height, width, and channels, and {self.name!r} has "
        message += f"{len(images)}"
        hint = "declare its shape, such as 'inputs: {image: {shape: [-1, -1, -1, 3]}}'"
        raise RecipeError(message, hint, self.place)


def _step_cost(
    job: Job[PipelineStage],
    model: _Model,
    step: PipelineStep,
    run: _Runs,
    costs: Sequence[GraphCosts],
) -> StepCost:
    """Return the cost of a step: the sum of several costs, or a cost for each run."""
    number = run.count.amounts
    flops = sum(one.flops for one in costs)
    if len(costs) > 1:
        total = Amounts(flops, flops, flops)
    else:
        total = Amounts(*(round(n * flops) for n in structs.astuple(number)))
    device = job.asked.device
    latency = None
    if device is not None:
        seconds = sum(device.seconds(class_costs(one.nodes)) for one in costs)
        latency = Amounts(*(seconds * n / max(flops, 1) * 1e3 for n in structs.astuple(total)))
    peak = max(one.peak_bytes for one in costs)
    size = model.package.model.bytes
    return StepCost(step.model, run.basis, number, total, latency, size, peak)


def _total(amounts: Sequence[Amounts]) -> Amounts:
    """Add the amounts of all steps.

    The sum of 95th percentiles is an estimate on the safe side, as if all steps run often for the
    same input.
    """
    return Amounts(*map(sum, zip(*map(structs.astuple, amounts), strict=True)))


def _ram(steps: Sequence[StepCost], *, keep_loaded: bool) -> int:
    """Return the memory of model files and of the tensors of one run at a time."""
    if not keep_loaded:
        return max(step.model_bytes + step.activation_bytes for step in steps)
    files = {step.model: step.model_bytes for step in steps}
    return sum(files.values()) + max(step.activation_bytes for step in steps)


def _device(job: Job[PipelineStage]) -> str:
    device = job.asked.device
    assert device is not None
    return f"{device.title}: {device.rate}"


_CASES: Final = {"expected": "on average", "p95": "at the 95th percentile", "worst": "at worst"}


def _limits(job: Job[PipelineStage], record: PipelineRecord) -> Iterator[BudgetLine]:
    """Yield the limits in the order of the recipe's keys, with the usage."""
    budget = job.asked.budget
    if budget is None:
        return
    for name, limits, amounts in (
        ("latency_ms", budget.latency_ms, record.latency_ms),
        ("flops", budget.flops, record.flops),
    ):
        for case in _CASES:
            limit = getattr(limits, case, None)
            if limit is not None:
                yield BudgetLine(f"pipeline {name} {case}", getattr(amounts, case), limit)
    if budget.ram is not None:
        yield BudgetLine("pipeline ram", record.ram_bytes, budget.ram)


def _check(job: Job[PipelineStage], record: PipelineRecord, lines: Sequence[BudgetLine]) -> None:
    """Raise an error that names the most expensive step of each exceeded limit."""
    exceeded = [line for line in lines if line.found > line.limit]
    if not exceeded:
        return
    messages = [
        f"{_usage(line)}, {number_text(line.found - line.limit)} over the budget of "
        f"{number_text(line.limit)}"
        for line in exceeded
    ]
    # One suggestion for operations, for the last limit, and one for memory.
    hints = {line.name.endswith(" ram"): _hint(line, record) for line in exceeded}
    hint = f"{'; '.join(hints.values())}, or raise the budget"
    device = f" ({record.device})" if any("latency_ms" in line.name for line in exceeded) else ""
    message = f"{'; '.join(messages)}{device}"
    raise AccuracyError(message, hint, job.place("budget"))


def _usage(line: BudgetLine) -> str:
    _, name, *case = line.name.split()
    usage = number_text(line.found)
    if name == "ram":
        return f"the models of the pipeline take {usage} bytes of memory"
    unit = "ms" if name == "latency_ms" else "operations"
    return f"the pipeline takes {usage} {unit} {_CASES[case[0]]}"


def _hint(line: BudgetLine, record: PipelineRecord) -> str:
    """Name the step with the largest share of a limited resource."""
    _, name, *case = line.name.split()
    if name == "ram":
        largest = max(record.steps, key=lambda step: step.model_bytes + step.activation_bytes)
        sizes = (
            f"{largest.model_bytes:,} bytes of model and {largest.activation_bytes:,} of tensors"
        )
        loaded = "write 'keep_loaded: false' if the app loads one model at a time, or "
        return f"{loaded * record.keep_loaded}make {largest.model!r} smaller ({sizes})"
    whole = getattr(record.flops, case[0])
    largest = max(record.steps, key=lambda step: float(getattr(step.flops, case[0])))
    runs, flops = (getattr(amounts, case[0]) for amounts in (largest.runs, largest.flops))
    share = f"{100 * flops / whole:.0f} % of the operations are in its {number_text(runs)} run"
    share += "s" * (runs != 1)
    return f"run {largest.model!r} less often, or make it smaller: {share}"


_P95: Final = 0.95
# Probabilities below this fraction of the largest one do not affect a percentile.
_NEGLIGIBLE: Final = 1e-18


class Count(Struct, frozen=True):
    """Number of runs, or of windows, of a step for one input.

    Args:
        expected: mean.
        trials: 95th percentile before pass rates: the number that can pass.
        rate: product of the pass rates.
        worst: maximum. In the worst case, everything passes.
    """

    expected: float
    trials: int
    worst: int
    rate: float = 1.0

    @classmethod
    def of(cls, number: int) -> Count:
        """Create the count of a fixed number."""
        return cls(number, number, number)

    def passed(self, rate: float) -> Count:
        """Return how many of them pass, each independently with the same probability."""
        return Count(self.expected * rate, self.trials, self.worst, self.rate * rate)

    @property
    def amounts(self) -> Amounts:
        """Mean, 95th percentile, and maximum."""
        p95 = binomial_percentile(self.trials, self.rate)
        return Amounts(self.expected, p95, self.worst)


def binomial_percentile(trials: int, rate: float) -> int:
    """Return the smallest k for which at most k of some trials succeed with a probability of 95 %.

    Sums the probabilities around the mode, each computed from its neighbor, so that the result
    depends only on basic arithmetic, and is the same on all platforms.
    """
    if rate <= 0 or trials == 0:
        return 0
    if rate >= 1:
        return trials
    odds = rate / (1 - rate)
    mode = min(int((trials + 1) * rate), trials)
    below = list(_below(mode, trials, odds))
    above = list(_above(mode, trials, odds))
    total = math.fsum([1.0, *below, *above])
    k = mode - len(below)
    reached = 0.0
    for weight in (*reversed(below), 1.0, *above):
        reached += weight
        if reached >= _P95 * total:
            return k
        k += 1
    return trials


def _below(mode: int, trials: int, odds: float) -> Iterator[float]:
    """Yield the probabilities of mode - 1, mode - 2, and so on, relative to that of the mode."""
    weight = 1.0
    for k in range(mode, 0, -1):
        weight *= k / ((trials - k + 1) * odds)
        if weight < _NEGLIGIBLE:
            return
        yield weight


def _above(mode: int, trials: int, odds: float) -> Iterator[float]:
    """Yield the probabilities of mode + 1, mode + 2, and so on, relative to that of the mode."""
    weight = 1.0
    for k in range(mode, trials):
        weight *= (trials - k) * odds / (k + 1)
        if weight < _NEGLIGIBLE:
            return
        yield weight
