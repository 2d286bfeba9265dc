"""Validation of class labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.ops.numerics.texts import (
    INTEGERS,
    class_count,
    counts_fault,
    labels_fault,
    no_scores,
    range_fault,
)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 2, 1]),
        np.array([[0], [2], [1]], np.uint8),
        np.array([0, 2, 1], np.int8),
    ],
)
def test_integer_labels_are_valid(labels: np.ndarray) -> None:
    assert labels_fault(labels, "y", 3) is None


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.bool_])
def test_one_hot_labels_are_reported(kind: Any) -> None:
    assert labels_fault(np.eye(3, dtype=kind), "y", 3) == (
        "the labels 'y' are one-hot, of shape [3, 3]",
        "save the number of each class: labels.argmax(axis=1)",
    )


@pytest.mark.parametrize(
    ("labels", "samples"),
    [
        # A row of zeros, two ones in a row, a two, a wrong number of samples, no class axis.
        (np.array([[0, 1], [0, 0]]), 2),
        (np.array([[0, 1], [1, 1]]), 2),
        (np.array([[0, 2], [1, 0]]), 2),
        (np.eye(2, dtype=np.int64), 4),
        (np.array([[1], [1]]), 2),
        (np.array([0, 1]), 2),
    ],
)
def test_similar_labels_are_not_reported_as_one_hot(labels: np.ndarray, samples: int) -> None:
    assert labels_fault(labels, "y", samples) is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.float32([0, 1]), "are float32, not the numbers of classes"),
        (np.float32([0, 1.5]), "are float32, not the numbers of classes, and have fractions"),
        (np.float32([0, np.nan]), "are float32, not the numbers of classes, and have NaN"),
        (np.array(["a", "b"]), "are <U1, not the numbers of classes"),
        (np.array([True, False]), "are bool, not the numbers of classes"),
    ],
)
def test_labels_of_other_dtypes_are_reported(labels: np.ndarray, message: str) -> None:
    assert labels_fault(labels, "y", 2) == (f"the labels 'y' {message}", INTEGERS)


def test_matching_counts_are_valid() -> None:
    assert counts_fault(3, {"x": 3}) is None
    assert counts_fault(3, {"x": 3, "z": 3}) is None


@pytest.mark.parametrize(
    ("labels", "lengths", "message"),
    [
        (3, {"x": 3, "z": 2}, "3 labels, and x has 3, z has 2"),
        (3, {"x": 2}, "3 labels, and x has 2"),
        (0, {"x": 0}, "0 labels, and x has 0"),
        (3, {}, "3 labels, and no inputs are named"),
    ],
)
def test_mismatched_counts_are_reported(labels: int, lengths: dict[str, int], message: str) -> None:
    fault = counts_fault(labels, lengths)
    assert fault is not None
    assert fault[0] == f"the data does not fit together: {message}"


def test_labels_in_range_are_valid() -> None:
    assert range_fault(np.array([0, 2, 1]), "y", 3) is None


def test_first_label_out_of_range_is_reported() -> None:
    assert range_fault(np.array([[0], [5], [-1], [3]]), "y", 3) == (
        "3 of 4 labels 'y' are none of the model's 3 classes, 0 to 2: the first is 5, of sample 1",
        f"{INTEGERS}, in the order of the model's outputs",
    )


def test_one_based_labels_are_detected() -> None:
    fault = range_fault(np.array([1, 2, 3]), "y", 3)
    assert fault is not None
    assert fault[1] == "they seem to count from 1: save labels - 1"
    for others in ([0, 1, 3], [1, 4], [2, 3]):
        fault = range_fault(np.array(others), "y", 3)
        assert fault is not None
        assert "from 1" not in fault[1]


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((-1, 10), 10),
        ((4, 1, 1, 10), 10),
        ((1, -1), -1),
        ((10, 5), 5),
        ((-1,), None),
        ((-1, 1), None),
        ((-1, 0), None),
        ((-1, 3, 4), None),
        ((), None),
    ],
)
def test_class_count_is_the_only_other_axis(shape: tuple[int, ...], count: int | None) -> None:
    assert class_count(shape) == count


def test_output_without_scores_is_reported() -> None:
    assert no_scores("of shape [1]")[0].endswith("and the first output is of shape [1]")
