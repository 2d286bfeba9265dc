"""The budget stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import AccuracyError
from mobileprep.plan.stages import BudgetStage
from mobileprep.recipe.settings import Budget
from mobileprep.stages.base import Job
from mobileprep.stages.budget import run
from tests.stages.jobs import job, left, slots

MODEL = {"file": "m.pb", "bytes": 300, "nodes": 5, "parameters": 12, "constants": 2}
INPUTS = {
    "package": {"model": MODEL, "ops": {}, "warnings": []},
    "compressed": {"bytes": 200, "compressor": "deflate by X 1"},
}


def limited(folder: Path, budget: Budget) -> Job[BudgetStage]:
    return job(folder, BudgetStage(budget=budget, **slots(*INPUTS)), **INPUTS)


@pytest.mark.parametrize(("key", "size"), [("model_bytes", 300), ("compressed_bytes", 200)])
def test_a_budget_is_met_to_the_byte(tmp_path: Path, key: str, size: int) -> None:
    done = limited(tmp_path, Budget(**{key: size}))
    run(done)
    assert left(done, "budget.json")[key] == 0
    with pytest.raises(AccuracyError, match=f"1 over the budget of {size - 1:,}") as caught:
        run(limited(tmp_path, Budget(**{key: size - 1})))
    assert caught.value.where == "recipe.yaml:9:1"
    told = "the model compressed by deflate by X 1 is" in caught.value.message
    assert told == (key == "compressed_bytes")


def test_what_is_left_is_noted_and_what_has_no_limit_is_not(tmp_path: Path) -> None:
    done = limited(tmp_path, Budget(compressed_bytes=1000))
    run(done)
    assert left(done, "budget.json") == {"model_bytes": None, "compressed_bytes": 800}


def test_both_budgets_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError) as caught:
        run(limited(tmp_path, Budget(0, 0)))
    assert caught.value.message.count("over the budget of 0") == 2
