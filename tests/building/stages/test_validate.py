"""The validate stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from msgspec.structs import asdict

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.evaluate.run import kept_outputs
from mobileprep.building.stages.search.run import run_verdict
from mobileprep.building.stages.search.spec import VerdictStage
from mobileprep.building.stages.validate.run import run
from mobileprep.building.stages.validate.spec import JudgedMetric, ValidateStage
from mobileprep.errors import AccuracyError
from tests.building.stages.jobs import job, json_output, slots

NAN, INF = np.nan, np.inf


def engine(name: str) -> dict[str, Any]:
    return asdict(EngineRecord(name, 1e-4))


def validate_job(
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
    stage_inputs: dict[str, Any] = slots(*inputs)
    if data is not None:
        inputs["data"] = data
        stage_inputs |= slots("data")
    if calibrated is not None:
        inputs["calibrations 1"] = calibrated
        stage_inputs["calibrations"] = tuple(slots("calibrated").values())
    return job(folder, ValidateStage(metrics=(judged,), **stage_inputs), **inputs)


def validated(*arguments: Any, **options: Any) -> dict[str, Any]:
    """Run the stage and return its record."""
    done = validate_job(*arguments, **options)
    run(done)
    return json_output(done, "validation.json")


def test_accuracy_before_and_after_is_recorded(tmp_path: Path) -> None:
    before, after = [[0.5, 0.25], [4.0, 1.0]], [[0.5, 0.5], [4.0, 1.0]]
    assert validated(tmp_path, before, after, values=(0.9, 0.89), max_drop=0.02) == {
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
def test_drop_may_reach_the_limit(
    tmp_path: Path, hits: tuple[int, int], max_drop: float, passes: bool
) -> None:
    values = (hits[0] / 100, hits[1] / 100)
    done = validate_job(tmp_path, [1.0], [1.0], values=values, samples=100, max_drop=max_drop)
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
def test_rounding_does_not_affect_limits(tmp_path: Path, samples: int) -> None:
    """k/n - (k-1)/n equals the limit 1/n except for rounding."""
    hits = samples - 1
    for drop, passes in ((1, True), (2, False)):
        values = hits / samples, (hits - drop) / samples
        allowed = {"samples": samples, "max_drop": 1 / samples}
        done = validate_job(tmp_path, [1.0], [1.0], values=values, **allowed)
        if passes:
            run(done)
        else:
            with pytest.raises(AccuracyError, match="fell by"):
                run(done)


@pytest.mark.parametrize(
    ("values", "limits", "message"),
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
def test_limits_have_the_unit_and_direction_of_the_metric(
    tmp_path: Path, values: tuple[float, float], limits: dict[str, Any], message: str
) -> None:
    limits = {"max_drop": None, **limits}
    done = validate_job(tmp_path, [1.0], [1.0], values=values, metric="psnr", **limits)
    if not message:
        run(done)
        return
    with pytest.raises(AccuracyError, match=message):
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
def test_agreement_with_the_source(
    tmp_path: Path, before: Any, after: Any, metric: str, agreement: float
) -> None:
    values = {"values": (None, None), "metric": metric, "output": ""}
    (record,) = validated(tmp_path, before, after, **values, max_drop=1.0)["metrics"]
    assert (record["output"], record["before"]) == ("probabilities", 1.0)
    assert (record["after"], record["drop"]) == (agreement, round(1 - agreement, 6))


def test_class_agreement_needs_class_scores(tmp_path: Path) -> None:
    values = {"values": (None, None), "metric": "top1_agreement"}
    with pytest.raises(AccuracyError, match="no score for each class") as caught:
        run(validate_job(tmp_path, [1.0, 2.0], [1.0, 2.0], **values))
    assert caught.value.where == "recipe.yaml:5:1"


def test_shapes_of_strings_and_detections_may_differ(tmp_path: Path) -> None:
    values = {"values": (0.1, 0.1), "metric": "word_error_rate", "higher_is_better": False}
    (output,) = validated(tmp_path, [[1, 2], [3, 4]], [[1], [2]], **values)["outputs"]
    assert output["largest_difference"] is output["share_of_peak"] is None


def warnings_of(folder: Path, value: float = 0.9, **options: Any) -> list[str]:
    """The warnings that the stage prints and records."""
    warnings: list[str] = []
    done = validate_job(folder, [1.0], [1.0], values=(value, value), **options)
    structs.force_setattr(done, "warn", warnings.append)
    run(done)
    assert json_output(done, "validation.json")["warnings"] == warnings
    return warnings


@pytest.mark.parametrize(
    ("value", "samples", "classes", "is_near"),
    [
        (0.0, 100, 10, True),
        (0.1, 450, 10, True),
        (0.12, 450, 10, True),
        (0.2, 450, 10, False),
        (0.002, 1000, 1001, True),
        (0.02, 50, 1001, False),
        (0.55, 100, 2, True),
        (0.7, 100, 2, False),
        # Too few samples.
        (0.25, 8, 10, False),
        (0.5, 4, 2, False),
    ],
)
def test_accuracy_near_chance_is_a_warning(
    tmp_path: Path, value: float, samples: int, classes: int, is_near: bool
) -> None:
    warnings = warnings_of(tmp_path, value, samples=samples, classes=classes)
    assert len(warnings) == is_near
    if is_near:
        chance = f"near chance: {1 / classes:.4f} for {classes} classes"
        assert f"accuracy is {value:.4f} on {samples} samples, {chance}" in warnings[0]


def test_chance_is_larger_for_top_5(tmp_path: Path) -> None:
    (warning,) = warnings_of(tmp_path, 0.5, samples=400, classes=10, metric="top5")
    assert "the source's top-5 accuracy is 0.5000" in warning
    assert "near chance: 0.5000 for 10 classes" in warning


def data_record(name: str, digests: str, high: float = 1.0) -> dict[str, Any]:
    return {"name": name, "ends": {"x": [0.0, high]}, "digests": list(digests)}


def test_accuracy_warning_has_the_range_of_the_data(tmp_path: Path) -> None:
    data = data_record("test.npz", "abc", 255)
    (warning,) = warnings_of(tmp_path, 0.1, samples=450, classes=10, data=data)
    assert warning.endswith("how samples are scaled ('x' is fed 0 to 255)")


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
def test_calibration_on_validation_samples_is_a_warning(
    tmp_path: Path, calibration: str, validation: str, count: str | None
) -> None:
    warnings = warnings_of(
        tmp_path,
        data=data_record("v.npz", validation),
        calibrated=data_record("c.npz", calibration),
    )
    assert [text.partition(" are in ")[0] for text in warnings] == ([count] if count else [])


@pytest.mark.parametrize(("high", "differs"), [(255, True), (1 / 255, True), (2, False)])
def test_different_scales_of_data_are_a_warning(tmp_path: Path, high: float, differs: bool) -> None:
    warnings = warnings_of(
        tmp_path, data=data_record("v.npz", "ab"), calibrated=data_record("c.npz", "cd", high)
    )
    assert len(warnings) == differs
    if differs:
        assert f"the input 'x' is fed 0 to {high:.4g} by c.npz in the calibration" in warnings[0]
        assert "and 0 to 1 by v.npz in the validation" in warnings[0]


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
def test_largest_difference(tmp_path: Path, before: Any, after: Any, largest: float) -> None:
    assert validated(tmp_path, before, after)["largest_difference"] == largest


@pytest.mark.parametrize(
    ("before", "after"),
    [([1.0], [NAN]), ([NAN], [1.0]), ([1.0], [INF]), ([INF], [1.0]), ([INF], [-INF])],
)
def test_nan_and_infinity_must_match(tmp_path: Path, before: Any, after: Any) -> None:
    with pytest.raises(AccuracyError, match="'probabilities' is NaN or infinite") as caught:
        run(validate_job(tmp_path, before, after))
    assert caught.value.where == "recipe.yaml:5:1"


def test_shapes_must_match(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match=r"'probabilities' has the shape \[1\]") as caught:
        run(validate_job(tmp_path, [1.0, 2.0], [1.0]))
    assert caught.value.where == "recipe.yaml:5:1"


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
