"""The validate stage."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import write_arrays
from mobileprep.plan.records import EngineRecord
from mobileprep.plan.running_stages import ValidateStage
from mobileprep.stages.base import Job
from mobileprep.stages.validate import run
from tests.stages.jobs import job, left, slots

NAN, INF = np.nan, np.inf


def engine(name: str) -> dict[str, Any]:
    return asdict(EngineRecord(name, 1e-4))


def compared(
    folder: Path,
    before: Any,
    after: Any,
    *,
    hits: tuple[int, int] = (90, 90),
    samples: int = 100,
    max_drop: float = 0.01,
) -> Job[ValidateStage]:
    inputs: dict[str, Any] = {}
    for slot, array, correct in (("before", before, hits[0]), ("after", after, hits[1])):
        write_arrays(folder / f"{slot}.npz", {"0": np.asarray(array)})
        inputs[f"{slot}_outputs"] = folder / f"{slot}.npz"
        inputs[slot] = {
            "outputs": ["probabilities"],
            "samples": samples,
            "correct": correct,
            "top1": correct / samples,
            "engine": engine(f"the engine {slot}"),
        }
    return job(folder, ValidateStage(max_drop=max_drop, **slots(*inputs)), **inputs)


def difference(folder: Path, before: Any, after: Any) -> float:
    done = compared(folder, before, after)
    run(done)
    return json.loads((done.folder / "validation.json").read_text())["largest_difference"]


def test_accuracy_before_and_after_is_left(tmp_path: Path) -> None:
    done = compared(tmp_path, [0.5, 0.25], [0.5, 0.5], hits=(90, 89), max_drop=0.02)
    run(done)
    assert left(done, "validation.json") == {
        "samples": 100,
        "top1_before": 0.9,
        "top1_after": 0.89,
        "drop": 0.01,
        "max_drop": 0.02,
        "largest_difference": 0.25,
        "warnings": [],
        "engines": {"source": engine("the engine before"), "model": engine("the engine after")},
    }


@pytest.mark.parametrize(
    ("hits", "max_drop", "passes"),
    [
        ((90, 90), 0.0, True),
        ((90, 89), 0.0, False),
        ((90, 89), 0.01, True),
        ((90, 88), 0.01, False),
        ((90, 88), 0.02, True),
        ((90, 95), 0.0, True),
    ],
)
def test_the_drop_may_be_just_as_large_as_is_allowed(
    tmp_path: Path, hits: tuple[int, int], max_drop: float, passes: bool
) -> None:
    done = compared(tmp_path, [1.0], [1.0], hits=hits, max_drop=max_drop)
    if passes:
        run(done)
        return
    with pytest.raises(AccuracyError, match=f"at most {max_drop} is allowed") as caught:
        run(done)
    lost = hits[0] - hits[1]
    assert f"fell by {lost / 100:.4f}, from 0.9000 to" in caught.value.message
    assert f"({lost} of 100 samples)" in caught.value.message
    assert caught.value.where == "recipe.yaml:9:1"


def test_a_source_that_is_never_right_is_warned_of(tmp_path: Path) -> None:
    told: list[str] = []
    done = compared(tmp_path, [1.0], [1.0], hits=(0, 0))
    object.__setattr__(done, "warn", told.append)
    run(done)
    assert left(done, "validation.json")["warnings"] == told
    assert "the source gets none of the 100 samples right" in told[0]


@pytest.mark.parametrize(
    ("before", "after", "largest"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.5, 2.25], 0.5),
        ([NAN, 1.0], [NAN, 1.5], 0.5),
        ([INF, -INF, 1.0], [INF, -INF, 1.25], 0.25),
        ([1, 2], [4, 2], 3.0),
        ([True, False], [True, True], 1.0),
        ([1 + 1j], [1 + 3j], 2.0),
        ([], [], 0.0),
        ([b"a", b"b"], [b"a", b"c"], 0.5),
    ],
)
def test_the_largest_difference_is_told(
    tmp_path: Path, before: Any, after: Any, largest: float
) -> None:
    assert difference(tmp_path, before, after) == largest


@pytest.mark.parametrize(
    ("before", "after"),
    [([1.0], [NAN]), ([NAN], [1.0]), ([1.0], [INF]), ([INF], [1.0]), ([INF], [-INF])],
)
def test_nan_and_infinity_must_be_in_the_same_places(
    tmp_path: Path, before: Any, after: Any
) -> None:
    with pytest.raises(AccuracyError, match="'probabilities' is NaN or infinite") as caught:
        run(compared(tmp_path, before, after))
    assert caught.value.where == "recipe.yaml:5:1"


def test_shapes_must_agree(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match=r"'probabilities' has the shape \[1\]") as caught:
        run(compared(tmp_path, [1.0, 2.0], [1.0]))
    assert caught.value.where == "recipe.yaml:5:1"
