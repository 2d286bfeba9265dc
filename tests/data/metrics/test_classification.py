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
def test_a_sample_counts_whose_label_is_among_the_best(k: int, labels: Any, share: float) -> None:
    assert measured(f"top{k}", SCORES, labels) == share
    assert in_batches(TopK(k), SCORES, labels, 3) == share


def test_of_equal_scores_the_lower_class_is_better_as_with_argmax() -> None:
    level = np.ones((3, 4))
    assert measured("top1", level, [0, 1, 3]) == 1 / 3
    assert measured("top2", level, [0, 1, 3]) == 2 / 3


def test_infinite_scores_are_ranked() -> None:
    assert measured("top1", [[-np.inf, 0.0], [np.inf, 0.0]], [1, 0]) == 1


def test_a_batch_of_axes_of_one_has_scores_too() -> None:
    assert measured("top1", np.reshape(SCORES, (4, 1, 1, 3)), [[1], [0], [2], [0]]) == 1


@pytest.mark.parametrize("k", [3, 4, 5])
def test_as_many_as_there_are_classes_is_refused(k: int) -> None:
    with pytest.raises(OutputError, match=f"top{k} of 3 classes is always 1"):
        measured(f"top{k}", SCORES, [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("output", "labels", "kind", "told"),
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
def test_what_cannot_be_ranked_is_told(
    output: Any, labels: Any, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        measured("top1", output, labels)


def test_samples_are_numbered_over_all_batches() -> None:
    with pytest.raises(LabelError, match="the first is 9, of sample 3"):
        in_batches(TopK(1), SCORES, [0, 0, 0, 9], 2)


def test_it_is_what_scikit_learn_has() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(1)
    scores, labels = rng.random((200, 12)), rng.integers(0, 12, 200)
    for k in (1, 3, 5):
        wanted = metrics.top_k_accuracy_score(labels, scores, k=k, labels=range(12))
        assert measured(f"top{k}", scores, labels) == pytest.approx(wanted, abs=1e-12)
