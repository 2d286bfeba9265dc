"""Mean intersection over union."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.data.metrics.base import LabelError, MetricOptions, OutputError
from mobileprep.data.metrics.classification import MeanIoU
from mobileprep.errors import AccuracyError
from tests.data.metrics.batches import in_batches, measured

MASK = [[[0, 0], [1, 1]], [[2, 0], [0, 0]]]


@pytest.mark.parametrize(
    ("output", "labels", "value"),
    [
        (MASK, MASK, 1.0),
        # Class 0: 4 of 6, class 1: 1 of 2, class 2: 0 of 1.
        ([[[0, 0], [1, 0]], [[0, 0], [0, 0]]], MASK, (5 / 7 + 1 / 2 + 0) / 3),
        # Classes that neither has, here class 1, are excluded.
        ([[[0, 2]]], [[[0, 2]]], 1.0),
        ([[[3, 3]]], [[[1, 3]]], (1 / 2 + 0) / 2),
    ],
)
def test_known_values(output: Any, labels: Any, value: float) -> None:
    assert measured("mean_iou", np.array(output), np.array(labels)) == pytest.approx(value)


def test_elements_are_counted_over_all_batches() -> None:
    output = np.array([[[0, 0]], [[5, 0]], [[0, 0]]])
    labels = np.array([[[0, 0]], [[5, 5]], [[0, 1]]])
    assert in_batches(MeanIoU(MetricOptions()), output, labels, 1) == measured(
        "mean_iou", output, labels
    )


def test_last_axis_may_hold_scores() -> None:
    scores = np.eye(3)[np.array(MASK)]
    assert measured("mean_iou", scores, np.array(MASK)) == 1
    assert measured("mean_iou", scores, np.array(MASK)[..., None]) == 1


def test_single_scores_are_compared_with_the_threshold() -> None:
    scores, labels = np.array([[[0.9], [0.2]], [[0.5], [0.6]]]), np.array([[1, 0], [0, 1]])
    assert measured("mean_iou", scores, labels, threshold=0.5) == 1
    assert measured("mean_iou", scores, labels, threshold=0.55) == 1
    assert measured("mean_iou", scores, labels, threshold=0.4) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_ignored_labels_do_not_count() -> None:
    output, labels = np.array([[0, 1, 1]]), np.array([[0, 1, 255]])
    assert measured("mean_iou", output, labels, ignore=255) == 1
    with pytest.raises(AccuracyError, match="another label than 255"):
        measured("mean_iou", output, np.full((1, 3), 255), ignore=255)


@pytest.mark.parametrize(
    ("output", "labels", "kind", "message"),
    [
        (np.array([[0.5, 1.0]]), np.array([[0, 1]]), OutputError, "whole numbers in the shape"),
        (np.array([[0, 1]]), np.array([[0, 1, 1]]), OutputError, "mean_iou needs"),
        (np.array([[0, 1]]), np.array([[0.0, 1.0]]), LabelError, "no numbers of classes"),
        (np.array([[0, -1]]), np.array([[0, 1]]), OutputError, "has the class -1"),
        (np.array([[0, 1]]), np.array([[0, -1]]), LabelError, "have the class -1"),
        (np.array([[0, 1 << 20]]), np.array([[0, 1]]), OutputError, "has the class 1048576"),
        (np.eye(3)[[[0, 1]]], np.array([[0, 3]]), LabelError, "have the class 3, .* 0 to 2"),
        (np.full((1, 2, 3), np.nan), np.array([[0, 1]]), AccuracyError, "are NaN"),
    ],
)
def test_invalid_masks_are_reported(
    output: Any, labels: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        measured("mean_iou", output, labels)


def test_value_matches_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(4)
    output, labels = rng.integers(0, 5, (2, 6, 8, 8))
    expected = metrics.jaccard_score(labels.ravel(), output.ravel(), average="macro")
    assert measured("mean_iou", output, labels) == pytest.approx(expected, abs=1e-12)
