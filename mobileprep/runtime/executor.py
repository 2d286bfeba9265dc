"""Running a plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mobileprep.numerics.allocation import holding
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import DEAD, Values
from mobileprep.runtime.execution_plan import ExecutionPlan, PlanStep
from mobileprep.runtime.failures import perform
from mobileprep.runtime.guards import RAN


def run_plan(
    plan: ExecutionPlan, feeds: Sequence[Any], context: RunContext, where: str
) -> list[Any]:
    """The fetched values of a plan, for values of its feeds in its order."""
    values: list[Any] = list(plan.constants)
    for slot, value in zip(plan.feeds, feeds, strict=True):
        if slot is not None:
            values[slot] = value
    with holding(values) as held:
        for step in plan.steps:
            inputs = [values[slot] for slot in step.inputs]
            if context.observer is None or not step.action.covers:
                results = perform(step.action, inputs, context, where)
            else:
                results = _observed(step, inputs, context, where)
            for index, slot in step.outputs:
                result = values[slot] = results[index]
                held.made += getattr(result, "nbytes", 0)
            for slot in step.frees:
                values[slot] = None
    return [values[slot] for slot in plan.fetches]


def _observed(step: PlanStep, inputs: list[Any], context: RunContext, where: str) -> Values:
    start = time.perf_counter()
    results = perform(step.action, inputs, context, where)
    seconds = time.perf_counter() - start
    # Of a branch that was not taken there is nothing to tell.
    if context.observer is not None and not any(x is DEAD for x in results):
        outputs = [x for x in results if x is not RAN]
        context.observer(step.action.covers, start, seconds, outputs)
    return results
