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
        # What neither has, here class 1, is left out.
        ([[[0, 2]]], [[[0, 2]]], 1.0),
        ([[[3, 3]]], [[[1, 3]]], (1 / 2 + 0) / 2),
    ],
)
def test_numbers_worked_out_by_hand(output: Any, labels: Any, value: float) -> None:
    assert measured("mean_iou", np.array(output), np.array(labels)) == pytest.approx(value)


def test_elements_are_counted_over_all_batches() -> None:
    output = np.array([[[0, 0]], [[5, 0]], [[0, 0]]])
    labels = np.array([[[0, 0]], [[5, 5]], [[0, 1]]])
    assert in_batches(MeanIoU(MetricOptions()), output, labels, 1) == measured(
        "mean_iou", output, labels
    )


def test_the_last_axis_may_hold_scores() -> None:
    scores = np.eye(3)[np.array(MASK)]
    assert measured("mean_iou", scores, np.array(MASK)) == 1
    assert measured("mean_iou", scores, np.array(MASK)[..., None]) == 1


def test_a_single_score_takes_a_threshold() -> None:
    scores, labels = np.array([[[0.9], [0.2]], [[0.5], [0.6]]]), np.array([[1, 0], [0, 1]])
    assert measured("mean_iou", scores, labels, threshold=0.5) == 1
    assert measured("mean_iou", scores, labels, threshold=0.55) == 1
    assert measured("mean_iou", scores, labels, threshold=0.4) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_what_is_ignored_does_not_count() -> None:
    output, labels = np.array([[0, 1, 1]]), np.array([[0, 1, 255]])
    assert measured("mean_iou", output, labels, ignore=255) == 1
    with pytest.raises(AccuracyError, match="another label than 255"):
        measured("mean_iou", output, np.full((1, 3), 255), ignore=255)


@pytest.mark.parametrize(
    ("output", "labels", "kind", "told"),
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
def test_what_is_no_mask_is_told(
    output: Any, labels: Any, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        measured("mean_iou", output, labels)


def test_it_is_what_scikit_learn_has() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(4)
    output, labels = rng.integers(0, 5, (2, 6, 8, 8))
    wanted = metrics.jaccard_score(labels.ravel(), output.ravel(), average="macro")
    assert measured("mean_iou", output, labels) == pytest.approx(wanted, abs=1e-12)
