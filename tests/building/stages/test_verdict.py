"""The verdict stage, which records the tries of ``quantize: auto``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.stages.evaluate.outputs import kept_outputs
from mobileprep.building.stages.search.run import run_verdict
from mobileprep.building.stages.search.spec import VerdictStage
from mobileprep.building.stages.validate.spec import JudgedMetric
from tests.building.stages.jobs import job, json_output, slots

BEFORE = [[0.5, 0.25], [4.0, 1.0]]
EARLIER = {"floats": 0, "weights": 0, "shortfall": 0.5, "told": ["far off"]}


def tries(
    folder: Path,
    after: Any,
    *metrics: tuple[str, float | None, float | None, dict[str, float]],
    is_new: bool = True,
) -> Any:
    """Run the stage after an earlier try; metrics are (name, before, after, limits)."""
    inputs: dict[str, Any] = {}
    for slot, array, at in (("before", BEFORE, 1), ("after", after, 2)):
        with kept_outputs(folder / f"{slot}.npz") as keep:
            keep([np.asarray(array, np.float32)], 2)
        inputs[f"{slot}_outputs"] = folder / f"{slot}.npz"
        inputs[slot] = {
            "outputs": ["y"],
            "samples": 2,
            "metrics": [{"metric": m[0], "outputs": ["y"], "value": m[at]} for m in metrics],
            "warnings": [],
            "engine": asdict(EngineRecord("numpy", 1e-4)),
        }
    inputs["trial"] = {"floats": 1, "weights": 2, "is_new": is_new}
    inputs["tries"] = {"tries": [EARLIER]}
    judged = tuple(JudgedMetric(**limits) for *_, limits in metrics)
    done = job(folder, VerdictStage(metrics=judged, **slots(*inputs)), **inputs)
    run_verdict(done)
    first, *others = json_output(done, VerdictStage.RECORD)["tries"]
    assert first == EARLIER
    return others


def test_try_within_all_limits_has_no_shortfall(tmp_path: Path) -> None:
    (result,) = tries(tmp_path, BEFORE, ("top1", 0.9, 0.9, {"max_drop": 0.01}))
    assert result == {"floats": 1, "weights": 2, "shortfall": 0.0, "told": []}


def test_shortfall_is_the_largest_of_all_limits(tmp_path: Path) -> None:
    (result,) = tries(
        tmp_path,
        BEFORE,
        ("top1", 0.9, 0.8, {"max_drop": 0.01, "at_least": 0.85}),
        ("peak_agreement", None, None, {"at_least": 0.5}),
        ("r2", 0.9, 0.6, {"at_least": 0.8}),
    )
    assert result["shortfall"] == pytest.approx(0.2)
    assert len(result["told"]) == 3
    assert "at most 0.01 is allowed" in result["told"][0]


@pytest.mark.parametrize("after", [[[0.5, np.nan], [4, 1]], [[0.5], [4]]], ids=["NaN", "shape"])
def test_outputs_that_cannot_be_compared_have_no_shortfall(tmp_path: Path, after: Any) -> None:
    (result,) = tries(tmp_path, after, ("top1", 0.9, 0.9, {"max_drop": 0.01}))
    assert result["shortfall"] is None
    assert result["told"]


def test_repeated_try_is_not_recorded(tmp_path: Path) -> None:
    assert tries(tmp_path, BEFORE, ("top1", 0.9, 0.1, {"max_drop": 0.01}), is_new=False) == []
