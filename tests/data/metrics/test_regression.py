"""Mean errors, r2, psnr, and cosine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.data.metrics.base import LabelError, MetricOptions, OutputError, make_metric
from mobileprep.data.metrics.regression import R2
from mobileprep.errors import AccuracyError
from tests.data.metrics.batches import batch, in_batches, measured

NUMBERS = ("mean_absolute_error", "mean_squared_error", "r2", "psnr", "cosine")
# Sums in another order differ in the last digits of doubles.
ROUNDING = 1e-12


@pytest.mark.parametrize(
    ("name", "output", "labels", "value"),
    [
        ("mean_absolute_error", [[1.0, 2.0], [3.0, 4.0]], [[1, 4], [0, 4]], 1.25),
        ("mean_squared_error", [[1.0, 2.0], [3.0, 4.0]], [[1, 4], [0, 4]], 3.25),
        ("mean_absolute_error", [[1.0], [2.0]], [1.0, 1.0], 0.5),
        ("r2", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 1.0),
        ("r2", [2.0, 2.0, 2.0], [1.0, 2.0, 3.0], 0.0),
        ("r2", [1.0, 2.0, 2.0], [1.0, 2.0, 3.0], 0.5),
        ("r2", [[1.0, 7.0], [3.0, 7.0]], [[1.0, 7.0], [2.0, 7.0]], (-1 + 1) / 2),
        ("r2", [[1.0, 7.0], [2.0, 8.0]], [[1.0, 7.0], [2.0, 7.0]], (1 + 0) / 2),
        ("cosine", [[3.0, 4.0], [1.0, 0.0]], [[6.0, 8.0], [0.0, 2.0]], 0.5),
        ("cosine", [[0.0, 0.0], [-1.0, 0.0]], [[6.0, 8.0], [1.0, 0.0]], -0.5),
    ],
)
def test_known_values(name: str, output: Any, labels: Any, value: float) -> None:
    assert measured(name, output, labels) == pytest.approx(value, abs=ROUNDING)


@pytest.mark.parametrize(
    ("output", "labels", "peak", "value"),
    [
        ([[0.5, 0.5]], [[0.5, 0.6]], 1.0, 10 * np.log10(1 / 0.005)),
        ([[25.5, 0.0]], np.zeros((1, 2), np.uint8), None, 10 * np.log10(2 * 10**2)),
        ([[1.0], [0.0]], [[1.0], [0.1]], 1.0, (100 + 20) / 2),
        ([[1.0]], [[1.0 + 1e-9]], 1.0, 100),
        ([[3.0]], [[0.0]], 1.0, 20 * np.log10(1 / 3)),
    ],
)
def test_psnr_is_the_mean_of_the_samples_up_to_100(
    output: Any, labels: Any, peak: float | None, value: float
) -> None:
    assert measured("psnr", output, labels, peak=peak) == pytest.approx(value, abs=1e-9)


def test_psnr_of_floats_requires_the_peak() -> None:
    with pytest.raises(LabelError, match="float64 does not have it") as caught:
        measured("psnr", [[0.5]], [[0.5]])
    assert "peak: 255" in caught.value.hint


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("size", [1, 4, 7, 20])
def test_batch_size_does_not_change_the_value(name: str, size: int) -> None:
    rng = np.random.default_rng(2)
    labels = rng.normal(1e6, 1.0, (20, 3, 1)).astype(np.float64)
    output = labels + rng.normal(0, 0.1, labels.shape)
    whole = measured(name, output, labels, peak=1e6)
    value = in_batches(make_metric(name, MetricOptions(peak=1e6)), output, labels, size)
    assert value == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("output", "labels", "kind", "message"),
    [
        ([[1.0, 2.0]], [[1.0]], LabelError, r"shape \[1, 1\], and the output 'y' has \[1, 2\]"),
        ([[1.0, 2.0]], [["a", "b"]], LabelError, "<U1, and the metric needs numbers"),
        ([[1.0, 2.0]], [[1.0, np.nan]], LabelError, "1 of 1 labels .* of sample 0"),
        ([[1.0, 2.0]], None, LabelError, "no labels"),
        ([[1.0, np.inf]], [[1.0, 2.0]], AccuracyError, "of 'y' of 1 of 1 samples are NaN or inf"),
        ([[b"a", b"b"]], [[1.0, 2.0]], OutputError, "the metric needs numbers"),
    ],
)
def test_invalid_outputs_and_labels_are_reported(
    name: str, output: Any, labels: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        measured(name, output, labels, peak=1.0)


def test_output_of_another_length_is_refused() -> None:
    with pytest.raises(OutputError, match=r"the shape \[3\] for 2 samples"):
        make_metric("r2", MetricOptions()).update(batch([1.0, 2.0, 3.0], [1.0, 2.0], count=2))


def test_r2_of_one_sample_is_refused() -> None:
    with pytest.raises(AccuracyError, match="at least two samples"):
        measured("r2", [1.0], [1.0])


def test_constant_elements_are_noted() -> None:
    metric = R2()
    metric.update(batch([[1.0, 7.0], [2.0, 7.0]], [[1.0, 7.0], [2.0, 7.0]]))
    assert metric.value() == 1
    assert metric.notes() == ("the labels of 1 of 2 elements never change",)


def test_zero_labels_of_cosine_are_refused() -> None:
    with pytest.raises(LabelError, match="sample 1 is zero throughout"):
        measured("cosine", [[1.0], [1.0]], [[1.0], [0.0]])


def test_values_match_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(3)
    labels = rng.normal(5, 2, (50, 4))
    labels[:, 3] = 1.5
    for output in (labels + rng.normal(0, 1, labels.shape), labels):
        for name in ("mean_absolute_error", "mean_squared_error", "r2"):
            expected = getattr(metrics, f"{name}_score" if name == "r2" else name)(labels, output)
            assert measured(name, output, labels) == pytest.approx(expected, abs=ROUNDING)
