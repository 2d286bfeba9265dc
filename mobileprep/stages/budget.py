"""The budget stage: refuses a model file that is larger than the target allows."""

from __future__ import annotations

from mobileprep.errors import AccuracyError
from mobileprep.plan.records import BudgetRecord, CompressRecord, PackageRecord
from mobileprep.plan.stages import BudgetStage
from mobileprep.stages.base import Job, stage

_HINT = "quantize the weights, cut the graph further, or raise the budget"


@stage(BudgetStage)
def run(job: Job[BudgetStage]) -> None:
    """Leaves ``budget.json``.

    Raises:
        AccuracyError: the file, or its compressed form, is over a limit.
    """
    budget = job.asked.budget
    model = job.record(PackageRecord, job.asked.package).model
    compressed = job.record(CompressRecord, job.asked.compressed)
    packed = f"the model compressed by {compressed.compressor}"
    sizes = (
        (budget.model_bytes, "the model", model.bytes),
        (budget.compressed_bytes, packed, compressed.bytes),
    )
    missed = [
        f"{what} is {found:,} bytes, {found - limit:,} over the budget of {limit:,}"
        for limit, what, found in sizes
        if limit is not None and found > limit
    ]
    if missed:
        raise AccuracyError("; ".join(missed), _HINT, job.place("budget"))
    left = (None if limit is None else limit - found for limit, _, found in sizes)
    job.write_record(job.asked.RECORD, BudgetRecord(*left))
