"""Labels that are, or are not, the numbers of a model's classes."""

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
def test_whole_numbers_are_labels(labels: np.ndarray) -> None:
    assert labels_fault(labels, "y", 3) is None


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.bool_])
def test_one_hot_labels_are_told(kind: Any) -> None:
    assert labels_fault(np.eye(3, dtype=kind), "y", 3) == (
        "the labels 'y' are one-hot, of shape [3, 3]",
        "save the number of each class: labels.argmax(axis=1)",
    )


@pytest.mark.parametrize(
    ("labels", "samples"),
    [
        # A row of zeros, two ones in a row, a two, another number of samples, no axis of classes.
        (np.array([[0, 1], [0, 0]]), 2),
        (np.array([[0, 1], [1, 1]]), 2),
        (np.array([[0, 2], [1, 0]]), 2),
        (np.eye(2, dtype=np.int64), 4),
        (np.array([[1], [1]]), 2),
        (np.array([0, 1]), 2),
    ],
)
def test_what_only_resembles_one_hot_labels_is_none(labels: np.ndarray, samples: int) -> None:
    assert labels_fault(labels, "y", samples) is None


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.float32([0, 1]), "are float32, not the numbers of classes"),
        (np.float32([0, 1.5]), "are float32, not the numbers of classes, and have fractions"),
        (np.float32([0, np.nan]), "are float32, not the numbers of classes, and have NaN"),
        (np.array(["a", "b"]), "are <U1, not the numbers of classes"),
        (np.array([True, False]), "are bool, not the numbers of classes"),
    ],
)
def test_other_types_are_told(labels: np.ndarray, told: str) -> None:
    assert labels_fault(labels, "y", 2) == (f"the labels 'y' {told}", INTEGERS)


def test_counts_that_agree() -> None:
    assert counts_fault(3, {"x": 3}) is None
    assert counts_fault(3, {"x": 3, "z": 3}) is None


@pytest.mark.parametrize(
    ("labels", "lengths", "told"),
    [
        (3, {"x": 3, "z": 2}, "3 labels, and x has 3, z has 2"),
        (3, {"x": 2}, "3 labels, and x has 2"),
        (0, {"x": 0}, "0 labels, and x has 0"),
        (3, {}, "3 labels, and no inputs are named"),
    ],
)
def test_counts_that_do_not_agree(labels: int, lengths: dict[str, int], told: str) -> None:
    fault = counts_fault(labels, lengths)
    assert fault is not None
    assert fault[0] == f"the data does not fit together: {told}"


def test_labels_within_the_classes() -> None:
    assert range_fault(np.array([0, 2, 1]), "y", 3) is None


def test_the_first_label_beyond_the_classes_is_told() -> None:
    assert range_fault(np.array([[0], [5], [-1], [3]]), "y", 3) == (
        "3 of 4 labels 'y' are none of the model's 3 classes, 0 to 2: the first is 5, of sample 1",
        f"{INTEGERS}, in the order of the model's outputs",
    )


def test_labels_that_count_from_one_are_recognized() -> None:
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
def test_classes_are_the_one_axis_beside_the_samples(
    shape: tuple[int, ...], count: int | None
) -> None:
    assert class_count(shape) == count


def test_an_output_without_scores_is_told_in_words() -> None:
    assert no_scores("of shape [1]")[0].endswith("and the first output is of shape [1]")
