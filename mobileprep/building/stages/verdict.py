"""The verdict stage: whether a try of ``quantize: auto`` keeps the validation's limits."""

from __future__ import annotations

from mobileprep.building.plan.records import TrialRecord, TriesRecord, TryRecord
from mobileprep.building.plan.search_stages import VerdictStage
from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.judging import complaints, judged, shortfall
from mobileprep.errors import AccuracyError


@stage(VerdictStage)
def run(job: Job[VerdictStage]) -> None:
    """Leaves ``tries.json``: the tries before, and this one unless it is one of them."""
    asked = job.asked
    trial = job.record(TrialRecord, asked.trial)
    before = () if asked.tries is None else job.record(TriesRecord, asked.tries).tries
    tries = (*before, _judged(job, trial)) if trial.is_new else before
    job.write_record(asked.RECORD, TriesRecord(tries))


def _judged(job: Job[VerdictStage], trial: TrialRecord) -> TryRecord:
    try:
        judgement = judged(job)
    except AccuracyError as error:
        return TryRecord(trial.floats, trial.weights, None, (error.message,))
    missed = [record for _, record in judgement.missed]
    told = [text for record in missed for text in complaints(record, judgement.before.samples)]
    # To six digits: those beyond depend on the processor's BLAS.
    gap = float(f"{max(map(shortfall, missed), default=0.0):.6g}")
    return TryRecord(trial.floats, trial.weights, gap, tuple(told))
