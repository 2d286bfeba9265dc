"""The area under the receiver operating characteristic."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from mobileprep.data.metrics.base import LabelError, OutputError
from mobileprep.data.metrics.classification import Auc
from mobileprep.errors import AccuracyError
from tests.data.metrics.batches import batch, in_batches, measured


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
def test_invalid_scores_and_labels_are_reported(
    output: Any, labels: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        measured("auc", output, labels)


def test_value_matches_scikit_learn() -> None:
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
