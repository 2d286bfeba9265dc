"""Top-k accuracy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from mobileprep.data.metrics.base import (
    FREE_SHAPES,
    METRICS,
    LabelError,
    MetricOptions,
    OutputError,
    make_metric,
)
from mobileprep.data.metrics.classification import Auc, MeanIoU, TopK
from mobileprep.errors import AccuracyError, InternalError
from mobileprep.recipe.validation_settings import METRIC_NAMES, metric_facts
from tests.data.metrics.batches import batch, in_batches, measured

SCORES = [[0.1, 0.5, 0.4], [0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.7, 0.2, 0.1]]


@pytest.mark.parametrize(
    ("k", "labels", "share"),
    [
        (1, [1, 0, 2, 0], 1.0),
        (1, [2, 0, 1, 2], 0.25),
        (2, [2, 0, 1, 2], 0.75),
        (2, [0, 2, 0, 2], 0),
    ],
)
def test_top_k_is_the_share_of_labels_among_the_best_classes(
    k: int, labels: Any, share: float
) -> None:
    assert measured(f"top{k}", SCORES, labels) == share
    assert in_batches(TopK(k), SCORES, labels, 3) == share


def test_ties_prefer_the_lower_class() -> None:
    level = np.ones((3, 4))
    assert measured("top1", level, [0, 1, 3]) == 1 / 3
    assert measured("top2", level, [0, 1, 3]) == 2 / 3


def test_infinite_scores_are_ranked() -> None:
    assert measured("top1", [[-np.inf, 0.0], [np.inf, 0.0]], [1, 0]) == 1


def test_axes_of_size_one_are_dropped() -> None:
    assert measured("top1", np.reshape(SCORES, (4, 1, 1, 3)), [[1], [0], [2], [0]]) == 1


@pytest.mark.parametrize("k", [3, 4, 5])
def test_k_of_at_least_the_number_of_classes_is_refused(k: int) -> None:
    with pytest.raises(OutputError, match=f"top{k} of 3 classes is always 1"):
        measured(f"top{k}", SCORES, [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("output", "labels", "kind", "message"),
    [
        (SCORES, [0, 1, 2, 3], LabelError, "1 of 4 .* is 3, of sample 3"),
        (SCORES, [0.5, 1, 2, 0], LabelError, "have fractions"),
        (SCORES, None, LabelError, "has no labels"),
        ([[1.0], [2.0]], [0, 0], OutputError, "a score for each class"),
        (np.ones((2, 3, 3)), [0, 0], OutputError, "a score for each class"),
        ([[np.nan, 1.0], [1.0, 2.0]], [0, 0], AccuracyError, "1 of 2 samples are NaN"),
        (np.array([[b"a", b"b"]]), [0], OutputError, "a score for each class"),
    ],
)
def test_invalid_scores_and_labels_are_reported(
    output: Any, labels: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        measured("top1", output, labels)


def test_samples_are_numbered_over_all_batches() -> None:
    with pytest.raises(LabelError, match="the first is 9, of sample 3"):
        in_batches(TopK(1), SCORES, [0, 0, 0, 9], 2)


def test_value_matches_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(1)
    scores, labels = rng.random((200, 12)), rng.integers(0, 12, 200)
    for k in (1, 3, 5):
        expected = metrics.top_k_accuracy_score(labels, scores, k=k, labels=range(12))
        assert measured(f"top{k}", scores, labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "labels", "area"),
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 1.0),
        ([0.9, 0.8, 0.2, 0.1], [0, 0, 1, 1], 0.0),
        ([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.75),
        ([0.5, 0.5, 0.5, 0.5], [0, 1, 0, 1], 0.5),
        # Pairs: 0.5 beats 0.1, ties with 0.5; 0.3 beats 0.1, loses to 0.5.
        ([0.1, 0.5, 0.5, 0.3], [0, 0, 1, 1], 2.5 / 4),
    ],
)
def test_known_values(scores: Any, labels: Any, area: float) -> None:
    assert measured("auc", np.array(scores), labels) == pytest.approx(area)
    assert measured("auc", np.array(scores)[:, None], labels) == pytest.approx(area)
    two = np.stack([1 - np.array(scores), np.array(scores)], axis=1)
    assert measured("auc", two, labels) == pytest.approx(area)
    assert in_batches(Auc(), np.array(scores), labels, 3) == pytest.approx(area)


def test_classes_without_samples_are_excluded_and_noted() -> None:
    metric = Auc()
    scores = np.array([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.6, 0.3, 0.1]])
    metric.update(batch(scores, [0, 1, 0]))
    assert metric.value() == 1
    assert metric.notes() == ("auc leaves out 1 classes that no sample, or each, belongs to",)


def test_a_sample_may_belong_to_several_classes() -> None:
    scores = np.array([[0.9, 0.8, 0.1], [0.2, 0.9, 0.4], [0.1, 0.1, 0.9]])
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]])
    assert measured("auc", scores, labels) == 1


@pytest.mark.parametrize("label", [0, 1])
def test_samples_of_a_single_class_are_refused(label: int) -> None:
    with pytest.raises(AccuracyError, match="samples of a class and samples of another"):
        measured("auc", np.array([0.5, 0.6]), [label, label])


@pytest.mark.parametrize(
    ("output", "labels", "kind", "message"),
    [
        (np.ones((2, 3, 3)), [0, 1], OutputError, "one score a class"),
        (np.array([0.5, np.nan]), [0, 1], AccuracyError, "1 of 2 samples are NaN"),
        (np.array([0.5, 0.6]), [0, 2], LabelError, "the first is 2"),
        (np.ones((2, 3)), [[0.5, 0, 0], [1, 0, 0]], LabelError, "neither classes nor 0 and 1"),
    ],
)
def test_roc_invalid_scores_and_labels_are_reported(
    output: Any, labels: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        measured("auc", output, labels)


def test_roc_value_matches_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(5)
    scores = rng.random((300, 6)).round(2)
    scores /= scores.sum(axis=1, keepdims=True)
    labels = rng.integers(0, 6, 300)
    several = rng.integers(0, 2, (300, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = metrics.roc_auc_score(labels > 2, scores[:, 0])
        each = metrics.roc_auc_score(labels, scores, multi_class="ovr", average="macro")
        many = metrics.roc_auc_score(several, scores, average="macro")
    assert measured("auc", scores[:, 0], (labels > 2).astype(int)) == pytest.approx(one, abs=1e-12)
    assert measured("auc", scores, labels) == pytest.approx(each, abs=1e-12)
    assert measured("auc", scores, several) == pytest.approx(many, abs=1e-12)


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
def test_segmentation_known_values(output: Any, labels: Any, value: float) -> None:
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


def test_segmentation_value_matches_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(4)
    output, labels = rng.integers(0, 5, (2, 6, 8, 8))
    expected = metrics.jaccard_score(labels.ravel(), output.ravel(), average="macro")
    assert measured("mean_iou", output, labels) == pytest.approx(expected, abs=1e-12)


def test_recipes_and_metrics_have_the_same_names() -> None:
    of_labels = [
        name
        for name in METRIC_NAMES
        if (facts := metric_facts(name)) and facts.of_labels and name != "auto"
    ]
    assert set(of_labels) == {"top1", "top5", *METRICS}
    assert set(METRICS) > FREE_SHAPES
    for name in of_labels:
        assert make_metric(name, MetricOptions())


@pytest.mark.parametrize("name", ["top0", "top", "top01", "top1.5", "Top1", "psnr ", "agreement"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(InternalError):
        make_metric(name, MetricOptions())
    assert (metric_facts(name) is None) == (name != "agreement")
