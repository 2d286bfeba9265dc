"""The rank stage: which layers lose most by quantization."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from mobileprep.building.plan.records import Interface, RankedLayer, RankingRecord
from mobileprep.building.plan.search_stages import RankStage
from mobileprep.building.stages.assets import with_assets
from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.data import data_files, placed, stage_inputs
from mobileprep.building.stages.searching import QUANTIZER, own_rules, quantized, recorded_tries
from mobileprep.data.calibration.layers import (
    OutputComparison,
    best_try,
    damage_alone,
    quantized_layers,
    rule_text,
)
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import SampleChoice
from mobileprep.data.survey import runs
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.transforms.quantize_nodes import Rules

# The tensors of a run with so many samples are in memory at once.
_BATCH: Final = 8


@stage(RankStage)
def run(job: Job[RankStage]) -> None:
    """Leaves ``ranking.json``.

    Raises:
        AccuracyError: the data does not fit the graph.
        CorruptFileError: it cannot be read.
    """
    asked = job.asked
    if best_try(recorded_tries(job, asked.tries)) is not None:
        job.write_record(asked.RECORD, RankingRecord(0, (), 0))
        return
    graph = job.graph(asked.graph)
    outputs = job.record(Interface, asked.interface).outputs
    rules = Rules(QUANTIZER, own_rules(asked))
    known = quantized_layers(graph, quantized(job, graph)[0])
    layers = [name for name in known if not rules.decide(graph[name])]
    with placed(job.place("validation")), with_assets(graph, job.path(asked.assets)) as whole:
        feeds, samples = _feeds(job, graph)

        def quantize(floats: Collection[str]) -> Graph:
            return quantized(job, whole, [rule_text("float", floats)] if floats else ())[0]

        comparison = OutputComparison(whole, outputs, feeds)
        damage = damage_alone(layers, quantize, comparison, job.progress)
    # In hundredths of a dB, so that no processor's way of rounding decides the order.
    found = [
        RankedLayer(name, graph[name].op, round(one.sqnr, 2))
        for name, one in zip(layers, damage, strict=True)
    ]
    found.sort(key=lambda one: one.sqnr)
    record = RankingRecord(samples, tuple(found), len(known) - len(layers))
    job.write_record(asked.RECORD, record)


def _feeds(job: Job[RankStage], graph: Graph) -> tuple[list[Mapping[str, Array]], int]:
    """What is fed, run by run, and how many samples that is."""
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    inputs = stage_inputs(job, graph, interface.inputs)
    data = open_dataset(
        data_files(asked.data, asked.reading),
        inputs,
        SampleChoice(asked.samples, exactly=False),
    )
    fed = list(runs(data, inputs, _BATCH))
    return [one.feeds for one in fed], sum(one.count for one in fed)
