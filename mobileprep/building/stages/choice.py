"""The choice stage: the graph by the best rules that ``quantize: auto`` has tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from mobileprep.building.plan.records import TriesRecord
from mobileprep.building.plan.search_stages import ChoiceStage
from mobileprep.building.plan.spec import PAGE
from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.graph_page import write_graph_page
from mobileprep.building.stages.searching import (
    QUANTIZER,
    as_try,
    layers_at,
    level_rules,
    quantized,
    ranked,
    recorded_tries,
)
from mobileprep.building.stages.transform import step_record
from mobileprep.data.calibration.layers import (
    Levels,
    best_try,
    nearest_try,
    next_levels,
    recipe_rule,
)
from mobileprep.errors import AccuracyError
from mobileprep.transforms.chains.chain import cautions

_NAMED: Final = 3
_SAYS: Final = {
    "float": "stay in float",
    "weights": "compute in float, with their weights in eight bits",
}

_SHORT: Final = {"float": "in float", "weights": "with weights alone in eight bits"}


@stage(ChoiceStage)
def run(job: Job[ChoiceStage]) -> None:
    """Leaves ``graph.pb``, ``step.json`` and ``page.json``.

    Raises:
        AccuracyError: no try keeps the validation's limits.
    """
    asked = job.asked
    layers = ranked(job, asked.ranking)
    best = best_try(recorded_tries(job, asked.tries))
    if best is None:
        raise _none_holds(job, layers)
    graph = job.graph(asked.graph)
    warnings = list(cautions(graph, asked.earlier, QUANTIZER, asked.options))
    after, done = quantized(job, graph, level_rules(layers, best.levels))
    for warning in warnings:
        job.warn(warning)
    # What was left out was asked for: the report tells it, and no warning of the build.
    left = _left(layers, best.levels)
    done = replace(done, warnings=(*left, *warnings, *done.warnings))
    write_graph_page(job.output(PAGE), after, graph)
    job.write_record(asked.RECORD, step_record(done, after, job.leave_graph(asked.GRAPH, after)))


def _left(layers: Sequence[str], levels: Levels) -> Iterator[str]:
    """A sentence for each level that is not eight bits, with the rule that says the same."""
    for mode, names in layers_at(layers, levels).items():
        if names:
            told = f"auto: {len(names)} of {len(layers)} layers {_SAYS[mode]}"
            yield f"{told}; as a rule: {recipe_rule(mode, names)}"


def _none_holds(job: Job[ChoiceStage], layers: Sequence[str]) -> AccuracyError:
    """The error that tells what came nearest, and which layers lose most."""
    records = job.record(TriesRecord, job.asked.tries).tries
    tries = [as_try(one) for one in records]
    nearest = nearest_try(tries)
    (record,) = (one for one in records if as_try(one) == nearest)
    split = layers_at(layers, nearest.levels)
    out = [f"{len(names)} {_SHORT[mode]}" for mode, names in split.items() if names]
    count = f"{len(records)} tries" if len(records) > 1 else "the one try"
    message = f"none of {count} of 'quantize: auto' keeps the limits; nearest is the one with "
    message += f"{' and '.join(out) or 'all in eight bits'}, of {len(layers)} layers:"
    message = "\n".join([message, *record.told])
    hint = "repair the graph before, calibrate by another method, or change the limit"
    if next_levels(len(layers), tries) is not None:
        hint = f"raise 'trials'; or {hint}"
    if layers:
        rule = recipe_rule("float", layers[:_NAMED])
        hint += f"; what loses most, as a rule to leave it in float:\n    rules: [{rule}]"
    return AccuracyError(message, hint, job.place("validation"))
