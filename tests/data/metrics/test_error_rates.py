"""Word and character error rates for each form of decoder outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.data.metrics.base import (
    ErrorRate,
    LabelError,
    MetricOptions,
    OutputError,
    characters,
    edit_distance,
    words,
)
from mobileprep.errors import AccuracyError
from tests.data.metrics.batches import batch, in_batches, measured

ALPHABET = tuple("abc ")


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("kitten", "sitting", 3),
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("abc", "abc", 0),
        ("abcdef", "bcdefa", 2),
        ("aaaa", "aa", 2),
    ],
)
def test_known_edit_distances(first: str, second: str, distance: int) -> None:
    assert edit_distance(first, second) == distance
    assert edit_distance(second, first) == distance


@pytest.mark.parametrize(
    ("outputs", "labels", "word_rate", "character_rate"),
    [
        (["the cat sat"], ["the cat sat"], 0.0, 0.0),
        (["the bat sat on"], ["the cat sat"], 2 / 3, 4 / 11),
        # Over all samples, not the mean per sample: 1 of 4 words.
        (["a", "b c x"], ["a", "b c d"], 1 / 4, 1 / 6),
        ([""], ["a b"], 1.0, 1.0),
        (["a b c d"], ["a"], 3.0, 6.0),
        (["  the   cat "], ["the cat"], 0.0, 2 / 7),
        (["straße"], ["strasse"], 1.0, 2 / 7),
        (["a", "b"], ["", "b"], 1.0, 1.0),
    ],
)
def test_known_rates(
    outputs: list[str], labels: list[str], word_rate: float, character_rate: float
) -> None:
    for array in (np.array(outputs), np.array([text.encode() for text in outputs])[:, None]):
        assert measured("word_error_rate", array, np.array(labels)) == pytest.approx(word_rate)
        rate = measured("character_error_rate", array, np.array(labels))
        assert rate == pytest.approx(character_rate)
    encoded = np.array([text.encode() for text in labels])
    metric = ErrorRate(words, MetricOptions())
    assert in_batches(metric, np.array(outputs), encoded, 1) == pytest.approx(word_rate)


def test_classes_are_decoded_up_to_the_padding() -> None:
    classes = np.array([[0, 1, 3, 2, -1], [2, 2, -1, -1, -1]])
    said = np.array(["ab c", "cc"])
    assert measured("word_error_rate", classes, said, characters=ALPHABET) == 0
    labels = np.array([[0, 1, 3, 2], [2, -1, -1, -1]])
    assert measured("character_error_rate", classes, labels, characters=ALPHABET) == 1 / 5


def test_sparse_tensors_are_decoded_by_sample_and_time() -> None:
    outputs = {
        "indices": np.array([[2, 0], [0, 1], [0, 0], [3, 0]]),
        "values": np.array([2, 1, 0, 0]),
        "shape": np.array([4, 2]),
    }
    metric = ErrorRate(characters, MetricOptions(characters=ALPHABET))
    # The fourth sample is padding of a fixed batch.
    metric.update(batch(outputs, np.array(["ab", "", "a"]), count=3))
    assert metric.value() == 1 / 3


def test_empty_output_misses_every_word() -> None:
    outputs = {
        "indices": np.zeros((0, 2), np.int64),
        "values": np.zeros(0, np.int64),
        "shape": np.array([2, 0]),
    }
    metric = ErrorRate(words, MetricOptions(characters=ALPHABET))
    metric.update(batch(outputs, np.array(["a b", "c"]), count=2))
    assert metric.value() == 1
    dense = np.zeros((2, 0), np.int64)
    assert measured("word_error_rate", dense, np.array(["a b", "c"]), characters=ALPHABET) == 1


@pytest.mark.parametrize(
    ("output", "labels", "kind", "message"),
    [
        (np.array([[0, 4]]), np.array(["a"]), OutputError, "class 4 of 'y' has no character"),
        (np.array(["a"]), np.array([[0, 9]]), LabelError, "class 9 of 'label' has no character"),
        (np.array([[0.5]]), np.array(["a"]), OutputError, "float64 .* not strings"),
        (np.array([["a", "b"]]), np.array(["a"]), OutputError, "not strings"),
        (np.array(["a"]), np.array([1.5]), LabelError, "not strings"),
        (np.array(["a"]), np.array([b"\xff"]), LabelError, "not valid UTF-8"),
        (np.array(["a"]), None, LabelError, "no labels"),
        (np.array(["a" * 20_001]), np.array(["a"]), OutputError, "20,001 words or characters"),
        (
            {"i": np.zeros((1, 3)), "v": np.zeros(1, int), "s": np.zeros(2)},
            np.array(["a"]),
            OutputError,
            "no indices, values and shape",
        ),
    ],
)
def test_invalid_outputs_and_labels_are_reported(
    output: Any, labels: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        measured("character_error_rate", output, labels, characters=ALPHABET)


def test_empty_labels_are_refused() -> None:
    with pytest.raises(AccuracyError, match="the labels are empty strings"):
        measured("word_error_rate", np.array(["a"]), np.array([" "]))


def test_invalid_utf_8_in_outputs_counts_as_wrong() -> None:
    assert measured("character_error_rate", np.array([b"a\xff"]), np.array(["ab"])) == 0.5


def test_values_match_jiwer() -> None:
    jiwer = pytest.importorskip("jiwer", reason="jiwer is not installed")
    rng = np.random.default_rng(6)
    words = np.array(["on", "off", "up", "down", "go"])
    labels = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(60)]
    outputs = [" ".join(rng.choice(words, rng.integers(0, 9))) for _ in range(60)]
    arguments = np.array(outputs), np.array(labels)
    assert measured("word_error_rate", *arguments) == pytest.approx(
        jiwer.wer(labels, outputs), abs=1e-12
    )
    rate = measured("character_error_rate", *arguments)
    assert rate == pytest.approx(jiwer.cer(labels, outputs), abs=1e-12)
