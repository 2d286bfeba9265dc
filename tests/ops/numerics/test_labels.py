"""Validation of class labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.ops.numerics.texts import (
    INTEGERS,
    as_texts,
    class_count,
    counts_fault,
    decode_wav,
    each_text,
    labels_fault,
    no_scores,
    one_text,
    range_fault,
    texts,
)
from tests.ops.sounds import wav


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


def test_strings_keep_order_and_trailing_zeros() -> None:
    array = as_texts([b"a\0", b"", b"ccc", b"d"], (2, 2))
    assert array[1, 0] == b"ccc"
    assert texts(array) == [b"a\0", b"", b"ccc", b"d"]


def test_each_text() -> None:
    result = each_text(bytes.upper, as_texts([b"a", b"b"], (1, 2)))
    assert result.tolist() == [[b"A", b"B"]]


def test_one_text() -> None:
    assert one_text(as_texts([b"a"], ())) == b"a"
    assert one_text(as_texts([b"a"], (1, 1))) == b"a"


@pytest.mark.parametrize("count", [0, 2])
def test_one_text_needs_one_element(count: int) -> None:
    with pytest.raises(ValueError, match=f"one text is needed, not {count}"):
        one_text(as_texts([b"a"] * count, (count,)))


def test_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="strings are needed, not int32"):
        texts(np.int32([1]))


SAMPLES = np.array([[0, -32768], [32767, 16384]])


def test_samples_are_scaled() -> None:
    result, rate = decode_wav(wav(SAMPLES, rate=8000))
    np.testing.assert_array_equal(result, [[0, -1], [32767 / 32768, 0.5]])
    assert (result.dtype, rate) == (np.float32, 8000)


def test_empty_file() -> None:
    result, _ = decode_wav(wav(SAMPLES[:0]))
    assert result.shape == (0, 2)


@pytest.mark.parametrize("end", [0, 3, 20, 50, -1])
def test_truncated_files_are_refused(end: int) -> None:
    with pytest.raises(CorruptFileError, match=r"^WAV file: is damaged: \S"):
        decode_wav(wav(SAMPLES)[:end])


def test_other_widths_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="samples of 8 bits"):
        decode_wav(wav(SAMPLES[:1] % 200, width=1))
