"""Search for the layers to exclude from 8-bit arithmetic."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from mobileprep.building.plan.spec import PAGE, Stage, Upstream
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.page.run import write_graph_page
from mobileprep.building.stages.running import (
    data_files,
    placed,
    placed_step,
    stage_inputs,
    with_assets,
)
from mobileprep.building.stages.search.spec import (
    ChoiceStage,
    RankedLayer,
    RankingRecord,
    RankStage,
    SearchStage,
    TrialRecord,
    TrialStage,
    TriesRecord,
    TryRecord,
    VerdictStage,
)
from mobileprep.building.stages.transform.run import step_record
from mobileprep.building.stages.validate.run import complaints, judged, shortfall
from mobileprep.data.calibration.layers import (
    Levels,
    OutputComparison,
    Try,
    best_try,
    damage_alone,
    nearest_try,
    next_levels,
    quantized_layers,
    recipe_rule,
    rule_text,
    shortfall_of,
)
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import SampleChoice
from mobileprep.data.survey import runs
from mobileprep.errors import AccuracyError
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, StepRecord, cautions, run_chain
from mobileprep.transforms.quantize_nodes import Rules

QUANTIZER: Final = "quantize_nodes"


def quantized(
    job: Job[SearchStage], graph: Graph, rules: Sequence[str] = ()
) -> tuple[Graph, StepRecord]:
    """Quantize the float graph, and return the graph and the record of the step.

    Args:
        rules: rules for some layers; the recipe's rules follow and take precedence.
    """
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    options = {
        **settings.options,
        "range_file": str(job.path(settings.ranges)),
        "rule": (*rules, *own_rules(settings)),
    }
    with placed_step(job):
        step = ChainStep(QUANTIZER, options)
        after, (done,) = run_chain(graph, [step], Context(interface.inputs, interface.retained))
    return after, done


def own_rules(settings: SearchStage) -> tuple[str, ...]:
    """Return the rules of the recipe."""
    rules = settings.options.get("rule", ())
    assert isinstance(rules, tuple)
    return tuple(map(str, rules))


def level_rules(layers: Sequence[str], levels: Levels) -> tuple[str, ...]:
    """Return rules that apply levels to layers, which are sorted by error, largest first."""
    split = layers_at(layers, levels)
    return tuple(rule_text(mode, names) for mode, names in split.items() if names)


def layers_at(layers: Sequence[str], levels: Levels) -> dict[str, Sequence[str]]:
    """Return the layers to keep in float, and those with only quantized ``weights``."""
    end = levels.floats + levels.weights
    return {"float": layers[: levels.floats], "weights": layers[levels.floats : end]}


def ranked(job: Job[SearchStage], ranking: Upstream | None) -> list[str]:
    """Return the layer names by error, largest first. Empty if they are not ranked yet."""
    if ranking is None:
        return []
    return [one.layer for one in job.record(RankingRecord, ranking).layers]


def recorded_tries(job: Job[Stage], tries: Upstream | None) -> list[Try]:
    """Return the results of all tries so far."""
    if tries is None:
        return []
    return [as_try(one) for one in job.record(TriesRecord, tries).tries]


def as_try(record: TryRecord) -> Try:
    """Convert a record to a try of the search."""
    return Try(Levels(record.floats, record.weights), shortfall_of(record.shortfall))


# Number of samples per run. All tensors of a run are in memory at once.
_BATCH: Final = 8


def run_rank(job: Job[RankStage]) -> None:
    """Write ``ranking.json``.

    Raises:
        AccuracyError: the data does not fit the graph.
        CorruptFileError: the data cannot be read.
    """
    settings = job.asked
    if best_try(recorded_tries(job, settings.tries)) is not None:
        job.write_record(settings.RECORD, RankingRecord(0, (), 0))
        return
    graph = job.graph(settings.graph)
    outputs = job.record(Interface, settings.interface).outputs
    rules = Rules(QUANTIZER, own_rules(settings))
    candidates = quantized_layers(graph, quantized(job, graph)[0])
    layers = [name for name in candidates if not rules.decide(graph[name])]
    with placed(job.place("validation")), with_assets(graph, job.path(settings.assets)) as whole:
        feeds, samples = _feeds(job, graph)

        def quantize(floats: Collection[str]) -> Graph:
            return quantized(job, whole, [rule_text("float", floats)] if floats else ())[0]

        comparison = OutputComparison(whole, outputs, feeds)
        damage = damage_alone(layers, quantize, comparison, job.progress)
    # Round to hundredths of a dB, so that the order does not depend on the processor.
    ranking = [
        RankedLayer(name, graph[name].op, round(one.sqnr, 2))
        for name, one in zip(layers, damage, strict=True)
    ]
    ranking.sort(key=lambda one: one.sqnr)
    record = RankingRecord(samples, tuple(ranking), len(candidates) - len(layers))
    job.write_record(settings.RECORD, record)


def _feeds(job: Job[RankStage], graph: Graph) -> tuple[list[Mapping[str, Array]], int]:
    """Return the inputs of each run, and the number of samples."""
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    inputs = stage_inputs(job, graph, interface.inputs)
    data = open_dataset(
        data_files(settings.data, settings.reading),
        inputs,
        SampleChoice(settings.samples, exactly=False),
    )
    fed = list(runs(data, inputs, _BATCH))
    return [one.feeds for one in fed], sum(one.count for one in fed)


def run_trial(job: Job[TrialStage]) -> None:
    """Write ``graph.pb`` and ``trial.json``.

    After the last try, the graph is the best one so far, or the nearest one. It is already
    evaluated, so the stages after it are cache hits.
    """
    settings = job.asked
    layers, tries = ranked(job, settings.ranking), recorded_tries(job, settings.tries)
    new = next_levels(len(layers), tries)
    levels = new or (best_try(tries) or nearest_try(tries)).levels
    graph, _ = quantized(job, job.graph(settings.graph), level_rules(layers, levels))
    job.leave_graph(settings.GRAPH, graph)
    record = TrialRecord(levels.floats, levels.weights, new is not None)
    job.write_record(settings.RECORD, record)


def run_verdict(job: Job[VerdictStage]) -> None:
    """Write ``tries.json`` with the earlier tries, and this one if it is new."""
    settings = job.asked
    trial = job.record(TrialRecord, settings.trial)
    before = () if settings.tries is None else job.record(TriesRecord, settings.tries).tries
    tries = (*before, _judge(job, trial)) if trial.is_new else before
    job.write_record(settings.RECORD, TriesRecord(tries))


def _judge(job: Job[VerdictStage], trial: TrialRecord) -> TryRecord:
    try:
        judgement = judged(job)
    except AccuracyError as error:
        return TryRecord(trial.floats, trial.weights, None, (error.message,))
    missed = [record for _, record in judgement.missed]
    messages = [text for record in missed for text in complaints(record, judgement.before.samples)]
    # Further digits depend on the processor's BLAS.
    gap = float(f"{max(map(shortfall, missed), default=0.0):.6g}")
    return TryRecord(trial.floats, trial.weights, gap, tuple(messages))


_NAMED: Final = 3


_SAYS: Final = {
    "float": "stay in float",
    "weights": "compute in float with 8-bit weights",
}


_SHORT: Final = {"float": "in float", "weights": "with only their weights in 8 bits"}


def run_choice(job: Job[ChoiceStage]) -> None:
    """Write ``graph.pb``, ``step.json``, and ``page.json``.

    Raises:
        AccuracyError: no try meets the validation's limits.
    """
    settings = job.asked
    layers = ranked(job, settings.ranking)
    best = best_try(recorded_tries(job, settings.tries))
    if best is None:
        raise _none_holds(job, layers)
    graph = job.graph(settings.graph)
    warnings = list(cautions(graph, settings.earlier, QUANTIZER, settings.options))
    after, done = quantized(job, graph, level_rules(layers, best.levels))
    for warning in warnings:
        job.warn(warning)
    # Exclusions are expected, so they appear in the report but not as warnings of the build.
    exclusions = _exclusions(layers, best.levels)
    done = replace(done, warnings=(*exclusions, *warnings, *done.warnings))
    write_graph_page(job.output(PAGE), after, graph)
    job.write_record(
        settings.RECORD, step_record(done, after, job.leave_graph(settings.GRAPH, after))
    )


def _exclusions(layers: Sequence[str], levels: Levels) -> Iterator[str]:
    """Yield a sentence for each level that is not 8-bit, with the equivalent rule."""
    for mode, names in layers_at(layers, levels).items():
        if names:
            sentence = f"auto: {len(names)} of {len(layers)} layers {_SAYS[mode]}"
            yield f"{sentence}; as a rule: {recipe_rule(mode, names)}"


def _none_holds(job: Job[ChoiceStage], layers: Sequence[str]) -> AccuracyError:
    """Return the error with the nearest try and the layers with the largest error."""
    records = job.record(TriesRecord, job.asked.tries).tries
    tries = [as_try(one) for one in records]
    nearest = nearest_try(tries)
    (record,) = (one for one in records if as_try(one) == nearest)
    split = layers_at(layers, nearest.levels)
    out = [f"{len(names)} {_SHORT[mode]}" for mode, names in split.items() if names]
    count = f"{len(records)} tries" if len(records) > 1 else "the one try"
    message = f"none of {count} of 'quantize: auto' keeps the limits; nearest is the one with "
    message += f"{' and '.join(out) or 'all in 8 bits'}, of {len(layers)} layers:"
    message = "\n".join([message, *record.told])
    hint = "repair the graph before, calibrate by another method, or change the limit"
    if next_levels(len(layers), tries) is not None:
        hint = f"raise 'trials'; or {hint}"
    if layers:
        rule = recipe_rule("float", layers[:_NAMED])
        hint += f"; what loses most, as a rule to leave it in float:\n    rules: [{rule}]"
    return AccuracyError(message, hint, job.place("validation"))
