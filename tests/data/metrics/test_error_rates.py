"""Word and character error rates, through the forms that decoders give."""

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
    ("wanted", "found", "distance"),
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
def test_edits_counted_by_hand(wanted: str, found: str, distance: int) -> None:
    assert edit_distance(wanted, found) == distance
    assert edit_distance(found, wanted) == distance


@pytest.mark.parametrize(
    ("found", "said", "of_words", "of_characters"),
    [
        (["the cat sat"], ["the cat sat"], 0.0, 0.0),
        (["the bat sat on"], ["the cat sat"], 2 / 3, 4 / 11),
        # Over all samples, not the mean of each: 1 of 4 words.
        (["a", "b c x"], ["a", "b c d"], 1 / 4, 1 / 6),
        ([""], ["a b"], 1.0, 1.0),
        (["a b c d"], ["a"], 3.0, 6.0),
        (["  the   cat "], ["the cat"], 0.0, 2 / 7),
        (["straße"], ["strasse"], 1.0, 2 / 7),
        (["a", "b"], ["", "b"], 1.0, 1.0),
    ],
)
def test_rates_worked_out_by_hand(
    found: list[str], said: list[str], of_words: float, of_characters: float
) -> None:
    for outputs in (np.array(found), np.array([text.encode() for text in found])[:, None]):
        assert measured("word_error_rate", outputs, np.array(said)) == pytest.approx(of_words)
        rate = measured("character_error_rate", outputs, np.array(said))
        assert rate == pytest.approx(of_characters)
    labels = np.array([text.encode() for text in said])
    metric = ErrorRate(words, MetricOptions())
    assert in_batches(metric, np.array(found), labels, 1) == pytest.approx(of_words)


def test_classes_are_spelt_up_to_the_padding() -> None:
    classes = np.array([[0, 1, 3, 2, -1], [2, 2, -1, -1, -1]])
    said = np.array(["ab c", "cc"])
    assert measured("word_error_rate", classes, said, characters=ALPHABET) == 0
    labels = np.array([[0, 1, 3, 2], [2, -1, -1, -1]])
    assert measured("character_error_rate", classes, labels, characters=ALPHABET) == 1 / 5


def test_a_decoder_s_sparse_tensor_is_spelt_by_sample_and_time() -> None:
    outputs = {
        "indices": np.array([[2, 0], [0, 1], [0, 0], [3, 0]]),
        "values": np.array([2, 1, 0, 0]),
        "shape": np.array([4, 2]),
    }
    metric = ErrorRate(characters, MetricOptions(characters=ALPHABET))
    # The fourth sample is one that a fixed batch was filled up with.
    metric.update(batch(outputs, np.array(["ab", "", "a"]), count=3))
    assert metric.value() == 1 / 3


def test_decoding_nothing_is_every_word_missed() -> None:
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
    ("output", "labels", "kind", "told"),
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
def test_what_is_no_text_is_told(
    output: Any, labels: Any, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        measured("character_error_rate", output, labels, characters=ALPHABET)


def test_silence_has_no_rate() -> None:
    with pytest.raises(AccuracyError, match="the labels are empty strings"):
        measured("word_error_rate", np.array(["a"]), np.array([" "]))


def test_what_a_model_gives_that_is_no_utf_8_counts_as_wrong() -> None:
    assert measured("character_error_rate", np.array([b"a\xff"]), np.array(["ab"])) == 0.5


def test_they_are_what_jiwer_has() -> None:
    jiwer = pytest.importorskip("jiwer", reason="jiwer is not installed")
    rng = np.random.default_rng(6)
    words = np.array(["on", "off", "up", "down", "go"])
    said = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(60)]
    found = [" ".join(rng.choice(words, rng.integers(0, 9))) for _ in range(60)]
    given = np.array(found), np.array(said)
    assert measured("word_error_rate", *given) == pytest.approx(jiwer.wer(said, found), abs=1e-12)
    rate = measured("character_error_rate", *given)
    assert rate == pytest.approx(jiwer.cer(said, found), abs=1e-12)
