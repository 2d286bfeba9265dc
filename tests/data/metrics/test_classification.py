"""Top-k accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.data.metrics.base import LabelError, OutputError
from mobileprep.data.metrics.classification import TopK
from mobileprep.errors import AccuracyError
from tests.data.metrics.batches import in_batches, measured

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
