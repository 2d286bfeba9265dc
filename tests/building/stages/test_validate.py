"""The validate stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from msgspec.structs import asdict

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.evaluate.outputs import kept_outputs
from mobileprep.building.stages.validate.run import run
from mobileprep.building.stages.validate.spec import JudgedMetric, ValidateStage
from mobileprep.errors import AccuracyError
from tests.building.stages.jobs import job, left, slots

NAN, INF = np.nan, np.inf


def engine(name: str) -> dict[str, Any]:
    return asdict(EngineRecord(name, 1e-4))


def compared(
    folder: Path,
    before: Any,
    after: Any,
    *,
    values: tuple[Any, Any] = (0.9, 0.9),
    samples: int = 0,
    metric: str = "top1",
    output: str = "probabilities",
    classes: int | None = None,
    data: dict[str, Any] | None = None,
    calibrated: dict[str, Any] | None = None,
    **limits: Any,
) -> Job[ValidateStage]:
    inputs: dict[str, Any] = {}
    samples = samples or max(len(np.asarray(before)), 1)
    for slot, array, value in (("before", before, values[0]), ("after", after, values[1])):
        with kept_outputs(folder / f"{slot}.npz") as keep:
            keep([np.asarray(array)], samples)
        inputs[f"{slot}_outputs"] = folder / f"{slot}.npz"
        inputs[slot] = {
            "outputs": ["probabilities"],
            "samples": samples,
            "metrics": [
                {
                    "metric": metric,
                    "outputs": [output] * bool(output),
                    "value": value,
                    "classes": classes,
                }
            ],
            "warnings": [],
            "engine": engine(f"the engine {slot}"),
        }
    judged = JudgedMetric(**{"max_drop": 0.01, "place": "recipe.yaml:9:1", **limits})
    named: dict[str, Any] = slots(*inputs)
    if data is not None:
        inputs["data"] = data
        named |= slots("data")
    if calibrated is not None:
        inputs["calibrations 1"] = calibrated
        named["calibrations"] = tuple(slots("calibrated").values())
    return job(folder, ValidateStage(metrics=(judged,), **named), **inputs)


def difference(folder: Path, before: Any, after: Any) -> float:
    done = compared(folder, before, after)
    run(done)
    return json.loads((done.folder / "validation.json").read_text())["largest_difference"]


def test_accuracy_before_and_after_is_left(tmp_path: Path) -> None:
    before, after = [[0.5, 0.25], [4.0, 1.0]], [[0.5, 0.5], [4.0, 1.0]]
    done = compared(tmp_path, before, after, values=(0.9, 0.89), max_drop=0.02)
    run(done)
    assert left(done, "validation.json") == {
        "samples": 2,
        "metrics": [
            {
                "metric": "top1",
                "output": "probabilities",
                "before": 0.9,
                "after": 0.89,
                "drop": 0.01,
                "higher_is_better": True,
                "max_drop": 0.02,
                "at_least": None,
                "at_most": None,
            }
        ],
        "outputs": [
            {"output": "probabilities", "largest_difference": 0.25, "share_of_peak": 0.062}
        ],
        "largest_difference": 0.25,
        "warnings": [],
        "engines": {"source": engine("the engine before"), "model": engine("the engine after")},
        "basis": "",
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
    values = (hits[0] / 100, hits[1] / 100)
    done = compared(tmp_path, [1.0], [1.0], values=values, samples=100, max_drop=max_drop)
    if passes:
        run(done)
        return
    with pytest.raises(AccuracyError, match=f"at most {max_drop} is allowed") as caught:
        run(done)
    lost = hits[0] - hits[1]
    assert f"fell by {lost / 100:.4f}, from 0.9000 to" in caught.value.message
    assert f"({lost} of 100 samples)" in caught.value.message
    assert caught.value.where == "recipe.yaml:9:1"


@pytest.mark.parametrize("samples", [3, 7, 450, 9_999, 1_000_003])
def test_rounding_decides_no_limit(tmp_path: Path, samples: int) -> None:
    """Of k/n, (k-1)/n and a limit of 1/n, the difference is the limit but for rounding."""
    hits = samples - 1
    for drop, passes in ((1, True), (2, False)):
        values = hits / samples, (hits - drop) / samples
        allowed = {"samples": samples, "max_drop": 1 / samples}
        done = compared(tmp_path, [1.0], [1.0], values=values, **allowed)
        if passes:
            run(done)
        else:
            with pytest.raises(AccuracyError, match="fell by"):
                run(done)


@pytest.mark.parametrize(
    ("values", "limits", "told"),
    [
        ((40.0, 31.0), {"at_least": 30.0}, ""),
        ((40.0, 29.5), {"at_least": 30.0}, "psnr of 'probabilities' is 29.5 .* at least 30"),
        ((40.0, 39.5), {"max_drop": 0.5}, ""),
        ((40.0, 39.25), {"max_drop": 0.5}, r"fell by 0.75, from 40 to 39.25 \(1 samples\); at"),
        ((0.1, 0.3), {"max_drop": 0.1, "higher_is_better": False}, "rose by 0.2, from 0.1 to 0.3"),
        ((0.3, 0.1), {"max_drop": 0.0, "higher_is_better": False}, ""),
        ((0.1, 0.3), {"at_most": 0.25, "higher_is_better": False}, "is 0.3 .* at most 0.25"),
        ((0.1, 0.2), {"at_most": 0.25, "higher_is_better": False}, ""),
        ((2e-6, 3e-6), {"max_drop": 5e-7, "higher_is_better": False}, "rose by 1e-06"),
    ],
)
def test_limits_are_in_the_metric_s_unit_and_direction(
    tmp_path: Path, values: tuple[float, float], limits: dict[str, Any], told: str
) -> None:
    limits = {"max_drop": None, **limits}
    done = compared(tmp_path, [1.0], [1.0], values=values, metric="psnr", **limits)
    if not told:
        run(done)
        return
    with pytest.raises(AccuracyError, match=told):
        run(done)


@pytest.mark.parametrize(
    ("before", "after", "metric", "agreement"),
    [
        ([[1.0, 3.0], [5.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], "agreement", 0.5),
        ([[1.0, 3.0], [5.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], "top1_agreement", 0.5),
        ([[1.0, 3.0], [5.0, 2.0]], [[1.0, 2.0], [4.0, 2.0]], "peak_agreement", 0.8),
        ([1.0, -4.0], [1.0, -3.0], "agreement", 0.75),
        ([[[1.0], [-4.0]], [[1.0], [1.0]]], [[[1.0], [-3.0]], [[1.0], [1.0]]], "agreement", 1.0),
        ([1, 2, 3, 4], [1, 2, 3, 5], "agreement", 0.75),
        ([0.0, 0.0], [0.25, 0.0], "agreement", 0.75),
        ([b"a", b"b"], [b"a", b"c"], "agreement", 0.5),
    ],
)
def test_agreement_with_the_source_is_worked_out_here(
    tmp_path: Path, before: Any, after: Any, metric: str, agreement: float
) -> None:
    values = {"values": (None, None), "metric": metric, "output": ""}
    done = compared(tmp_path, before, after, **values, max_drop=1.0)
    run(done)
    (record,) = left(done, "validation.json")["metrics"]
    assert (record["output"], record["before"]) == ("probabilities", 1.0)
    assert (record["after"], record["drop"]) == (agreement, round(1 - agreement, 6))


def test_agreement_of_classes_needs_classes(tmp_path: Path) -> None:
    values = {"values": (None, None), "metric": "top1_agreement"}
    with pytest.raises(AccuracyError, match="no score for each class") as caught:
        run(compared(tmp_path, [1.0, 2.0], [1.0, 2.0], **values))
    assert caught.value.where == "recipe.yaml:5:1"


def test_texts_and_detections_may_have_other_shapes(tmp_path: Path) -> None:
    values = {"values": (0.1, 0.1), "metric": "word_error_rate", "higher_is_better": False}
    done = compared(tmp_path, [[1, 2], [3, 4]], [[1], [2]], **values)
    run(done)
    (output,) = left(done, "validation.json")["outputs"]
    assert output["largest_difference"] is output["share_of_peak"] is None


def test_a_source_that_is_never_right_is_warned_of(tmp_path: Path) -> None:
    told: list[str] = []
    done = compared(tmp_path, [1.0], [1.0], values=(0.0, 0.0), samples=100, classes=10)
    structs.force_setattr(done, "warn", told.append)
    run(done)
    assert left(done, "validation.json")["warnings"] == told
    assert "the source's top-1 accuracy is 0.0000 on 100 samples, near chance: 0.1" in told[0]


def warnings_of(folder: Path, value: float = 0.9, **given: Any) -> list[str]:
    """What the stage warns of, which its record has too."""
    warnings: list[str] = []
    done = compared(folder, [1.0], [1.0], values=(value, value), **given)
    structs.force_setattr(done, "warn", warnings.append)
    run(done)
    assert left(done, "validation.json")["warnings"] == warnings
    return warnings


@pytest.mark.parametrize(
    ("value", "samples", "classes", "is_near"),
    [
        (0.1, 450, 10, True),
        (0.12, 450, 10, True),
        (0.2, 450, 10, False),
        (0.002, 1000, 1001, True),
        (0.02, 50, 1001, False),
        (0.55, 100, 2, True),
        (0.7, 100, 2, False),
        # So few samples say nothing.
        (0.25, 8, 10, False),
        (0.5, 4, 2, False),
    ],
)
def test_an_accuracy_that_guessing_reaches_is_warned_of(
    tmp_path: Path, value: float, samples: int, classes: int, is_near: bool
) -> None:
    found = warnings_of(tmp_path, value, samples=samples, classes=classes)
    assert len(found) == is_near
    if is_near:
        chance = f"near chance: {1 / classes:.4f} for {classes} classes"
        assert f"accuracy is {value:.4f} on {samples} samples, {chance}" in found[0]


def test_chance_is_larger_for_several_guesses(tmp_path: Path) -> None:
    (found,) = warnings_of(tmp_path, 0.5, samples=400, classes=10, metric="top5")
    assert "the source's top-5 accuracy is 0.5000" in found
    assert "near chance: 0.5000 for 10 classes" in found


def record(name: str, digests: str, high: float = 1.0) -> dict[str, Any]:
    return {"name": name, "ends": {"x": [0.0, high]}, "digests": list(digests)}


def test_the_range_that_was_fed_is_named_beside_an_accuracy(tmp_path: Path) -> None:
    (found,) = warnings_of(
        tmp_path, 0.1, samples=450, classes=10, data=record("test.npz", "abc", 255)
    )
    assert found.endswith("how samples are scaled ('x' is fed 0 to 255)")


@pytest.mark.parametrize(
    ("calibration", "validation", "count"),
    [
        ("abcd", "abcd", "4 of 4 calibration samples of c.npz"),
        ("abcx", "abcdefgh", "3 of 4 calibration samples of c.npz"),
        ("abcdefgh", "abx", "2 of 3 validation samples of v.npz"),
        ("abcd", "aefg", None),
        ("abcd", "efgh", None),
        ("", "efgh", None),
    ],
)
def test_a_calibration_on_the_validation_s_samples_is_warned_of(
    tmp_path: Path, calibration: str, validation: str, count: str | None
) -> None:
    found = warnings_of(
        tmp_path,
        data=record("v.npz", validation),
        calibrated=record("c.npz", calibration),
    )
    assert [text.partition(" are in ")[0] for text in found] == ([count] if count else [])


@pytest.mark.parametrize(("high", "differs"), [(255, True), (1 / 255, True), (2, False)])
def test_data_of_two_scales_is_warned_of(tmp_path: Path, high: float, differs: bool) -> None:
    found = warnings_of(
        tmp_path, data=record("v.npz", "ab"), calibrated=record("c.npz", "cd", high)
    )
    assert len(found) == differs
    if differs:
        assert f"the input 'x' is fed 0 to {high:.4g} by c.npz in the calibration" in found[0]
        assert "and 0 to 1 by v.npz in the validation" in found[0]


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
