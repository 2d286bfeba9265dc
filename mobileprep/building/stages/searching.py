"""What the stages of ``quantize: auto`` share: graphs quantized by rules, and records read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.building.plan.records import Interface, RankingRecord, TriesRecord, TryRecord
from mobileprep.building.plan.search_stages import SearchStage
from mobileprep.building.plan.spec import Upstream
from mobileprep.building.stages.base import Job
from mobileprep.data.calibration.layers import Levels, Try, rule_text, shortfall_of
from mobileprep.errors import MobileprepError
from mobileprep.graph.graph import Graph
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, StepRecord, run_chain

QUANTIZER: Final = "quantize_nodes"


def quantized(
    job: Job[SearchStage], graph: Graph, rules: Sequence[str] = ()
) -> tuple[Graph, StepRecord]:
    """The float graph quantized, and what that did.

    Args:
        rules: for some layers; those of the recipe come after them, and so win.
    """
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    options = {
        **asked.options,
        "range_file": str(job.path(asked.ranges)),
        "rule": (*rules, *own_rules(asked)),
    }
    try:
        step = ChainStep(QUANTIZER, options)
        after, (done,) = run_chain(graph, [step], Context(interface.inputs, interface.kept))
    except MobileprepError as error:
        message = f"{error.where}: {error.message}" if error.where else error.message
        raise error.at(job.place("transforms"), message=message) from error
    return after, done


def own_rules(asked: SearchStage) -> tuple[str, ...]:
    """The rules that the recipe has."""
    given = asked.options.get("rule", ())
    assert isinstance(given, tuple)
    return tuple(map(str, given))


def level_rules(layers: Sequence[str], levels: Levels) -> tuple[str, ...]:
    """Rules that bring layers, the worst of which come first, to their levels."""
    split = layers_at(layers, levels)
    return tuple(rule_text(mode, names) for mode, names in split.items() if names)


def layers_at(layers: Sequence[str], levels: Levels) -> dict[str, Sequence[str]]:
    """The layers that are ``float``, and those of which the ``weights`` alone are quantized."""
    end = levels.floats + levels.weights
    return {"float": layers[: levels.floats], "weights": layers[levels.floats : end]}


def ranked(job: Job[SearchStage], ranking: Upstream | None) -> list[str]:
    """The names of the layers, the worst first; none before they are ranked."""
    if ranking is None:
        return []
    return [one.layer for one in job.record(RankingRecord, ranking).layers]


def recorded_tries(job: Job[SearchStage], tries: Upstream | None) -> list[Try]:
    """What the tries so far came to."""
    if tries is None:
        return []
    return [as_try(one) for one in job.record(TriesRecord, tries).tries]


def as_try(record: TryRecord) -> Try:
    """A try as the search takes it."""
    return Try(Levels(record.floats, record.weights), shortfall_of(record.shortfall))
