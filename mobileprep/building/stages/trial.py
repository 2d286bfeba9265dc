"""The trial stage: the graph by the next rules that ``quantize: auto`` tries."""

from __future__ import annotations

from mobileprep.building.plan.records import TrialRecord
from mobileprep.building.plan.search_stages import TrialStage
from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.searching import level_rules, quantized, ranked, recorded_tries
from mobileprep.data.calibration.layers import best_try, nearest_try, next_levels


@stage(TrialStage)
def run(job: Job[TrialStage]) -> None:
    """Leaves ``graph.pb`` and ``trial.json``.

    Where nothing is left to try, that is the best try's graph, or the one that came nearest: it has
    been evaluated, so that the stages after have nothing to do.
    """
    asked = job.asked
    layers, tries = ranked(job, asked.ranking), recorded_tries(job, asked.tries)
    new = next_levels(len(layers), tries)
    levels = new or (best_try(tries) or nearest_try(tries)).levels
    graph, _ = quantized(job, job.graph(asked.graph), level_rules(layers, levels))
    job.leave_graph(asked.GRAPH, graph)
    record = TrialRecord(levels.floats, levels.weights, new is not None)
    job.write_record(asked.RECORD, record)
