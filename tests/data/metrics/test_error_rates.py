"""Word and character error rates for each form of decoder outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.data.metrics import base
from mobileprep.data.metrics.base import (
    ErrorRate,
    LabelError,
    MetricOptions,
    OutputError,
    PythonFunction,
    characters,
    edit_distance,
    make_metric,
    words,
)
from mobileprep.data.metrics.regression import R2
from mobileprep.errors import AccuracyError, UsageError
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


NUMBERS = ("mean_absolute_error", "mean_squared_error", "r2", "psnr", "cosine")
# Sums in another order differ in the last digits of doubles.
ROUNDING = 1e-12


@pytest.mark.parametrize(
    ("name", "output", "labels", "value"),
    [
        ("mean_absolute_error", [[1.0, 2.0], [3.0, 4.0]], [[1, 4], [0, 4]], 1.25),
        ("mean_squared_error", [[1.0, 2.0], [3.0, 4.0]], [[1, 4], [0, 4]], 3.25),
        ("mean_absolute_error", [[1.0], [2.0]], [1.0, 1.0], 0.5),
        ("r2", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 1.0),
        ("r2", [2.0, 2.0, 2.0], [1.0, 2.0, 3.0], 0.0),
        ("r2", [1.0, 2.0, 2.0], [1.0, 2.0, 3.0], 0.5),
        ("r2", [[1.0, 7.0], [3.0, 7.0]], [[1.0, 7.0], [2.0, 7.0]], (-1 + 1) / 2),
        ("r2", [[1.0, 7.0], [2.0, 8.0]], [[1.0, 7.0], [2.0, 7.0]], (1 + 0) / 2),
        ("cosine", [[3.0, 4.0], [1.0, 0.0]], [[6.0, 8.0], [0.0, 2.0]], 0.5),
        ("cosine", [[0.0, 0.0], [-1.0, 0.0]], [[6.0, 8.0], [1.0, 0.0]], -0.5),
    ],
)
def test_known_values(name: str, output: Any, labels: Any, value: float) -> None:
    assert measured(name, output, labels) == pytest.approx(value, abs=ROUNDING)


@pytest.mark.parametrize(
    ("output", "labels", "peak", "value"),
    [
        ([[0.5, 0.5]], [[0.5, 0.6]], 1.0, 10 * np.log10(1 / 0.005)),
        ([[25.5, 0.0]], np.zeros((1, 2), np.uint8), None, 10 * np.log10(2 * 10**2)),
        ([[1.0], [0.0]], [[1.0], [0.1]], 1.0, (100 + 20) / 2),
        ([[1.0]], [[1.0 + 1e-9]], 1.0, 100),
        ([[3.0]], [[0.0]], 1.0, 20 * np.log10(1 / 3)),
    ],
)
def test_psnr_is_the_mean_of_the_samples_up_to_100(
    output: Any, labels: Any, peak: float | None, value: float
) -> None:
    assert measured("psnr", output, labels, peak=peak) == pytest.approx(value, abs=1e-9)


def test_psnr_of_floats_requires_the_peak() -> None:
    with pytest.raises(LabelError, match="float64 does not have it") as caught:
        measured("psnr", [[0.5]], [[0.5]])
    assert "peak: 255" in caught.value.hint


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("size", [1, 4, 7, 20])
def test_batch_size_does_not_change_the_value(name: str, size: int) -> None:
    rng = np.random.default_rng(2)
    labels = rng.normal(1e6, 1.0, (20, 3, 1)).astype(np.float64)
    output = labels + rng.normal(0, 0.1, labels.shape)
    whole = measured(name, output, labels, peak=1e6)
    value = in_batches(make_metric(name, MetricOptions(peak=1e6)), output, labels, size)
    assert value == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("output", "labels", "kind", "message"),
    [
        ([[1.0, 2.0]], [[1.0]], LabelError, r"shape \[1, 1\], and the output 'y' has \[1, 2\]"),
        ([[1.0, 2.0]], [["a", "b"]], LabelError, "<U1, and the metric needs numbers"),
        ([[1.0, 2.0]], [[1.0, np.nan]], LabelError, "1 of 1 labels .* of sample 0"),
        ([[1.0, 2.0]], None, LabelError, "no labels"),
        ([[1.0, np.inf]], [[1.0, 2.0]], AccuracyError, "of 'y' of 1 of 1 samples are NaN or inf"),
        ([[b"a", b"b"]], [[1.0, 2.0]], OutputError, "the metric needs numbers"),
    ],
)
def test_regression_invalid_outputs_and_labels_are_reported(
    name: str, output: Any, labels: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        measured(name, output, labels, peak=1.0)


def test_output_of_another_length_is_refused() -> None:
    with pytest.raises(OutputError, match=r"the shape \[3\] for 2 samples"):
        make_metric("r2", MetricOptions()).update(batch([1.0, 2.0, 3.0], [1.0, 2.0], count=2))


def test_r2_of_one_sample_is_refused() -> None:
    with pytest.raises(AccuracyError, match="at least two samples"):
        measured("r2", [1.0], [1.0])


def test_constant_elements_are_noted() -> None:
    metric = R2()
    metric.update(batch([[1.0, 7.0], [2.0, 7.0]], [[1.0, 7.0], [2.0, 7.0]]))
    assert metric.value() == 1
    assert metric.notes() == ("the labels of 1 of 2 elements never change",)


def test_zero_labels_of_cosine_are_refused() -> None:
    with pytest.raises(LabelError, match="sample 1 is zero throughout"):
        measured("cosine", [[1.0], [1.0]], [[1.0], [0.0]])


def test_values_match_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(3)
    labels = rng.normal(5, 2, (50, 4))
    labels[:, 3] = 1.5
    for output in (labels + rng.normal(0, 1, labels.shape), labels):
        for name in ("mean_absolute_error", "mean_squared_error", "r2"):
            expected = getattr(metrics, f"{name}_score" if name == "r2" else name)(labels, output)
            assert measured(name, output, labels) == pytest.approx(expected, abs=ROUNDING)


def metric(folder: Path, body: str, *, function: str = "score", count: int = 2) -> PythonFunction:
    """A metric with the body of ``score(outputs, labels)``, updated with two batches."""
    path = folder / "metric.py"
    path.write_text(f"import sys, os\n\ndef score(outputs, labels):\n    {body}\n")
    function_metric = PythonFunction(path, function)
    for at in range(count):
        outputs = {"y": np.full((2, 3), at), "shape": np.array([2, at, 7])}
        function_metric.update(batch(outputs, np.array([at, at]), first=2 * at))
    return function_metric


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return outputs['y'].sum()", 6.0),
        ("return labels.sum() + len(labels)", 6.0),
        ("return outputs['y'].shape[0] * 10 + outputs['y'].shape[1]", 43.0),
        ("return [a.tolist() for a in outputs['shape']] == [[2, 0, 7], [2, 1, 7]]", 1.0),
        ("import numpy; return numpy.array(0.5)", 0.5),
        ("import numpy; return numpy.float32(0.25)", 0.25),
    ],
)
def test_function_gets_all_samples_at_once(tmp_path: Path, body: str, value: float) -> None:
    assert metric(tmp_path, body).value() == value


def test_labels_are_none_for_data_without_labels(tmp_path: Path) -> None:
    function_metric = metric(tmp_path, "return 1.0 if labels is None else 0.0", count=0)
    function_metric.update(batch([1.0, 2.0], None))
    assert function_metric.value() == 1


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("raise ValueError('no such class')", "ValueError: no such class", ":4"),
        ("return outputs['z']", "KeyError: 'z'", ":4"),
        ("sys.exit(0)", "the metric ended the program", ":4"),
        ("os._exit(0)", "the metric ended the program", ":4"),
        ("return 'good'", "the metric returned str, no number", ", score"),
        ("return None", "the metric returned NoneType", ", score"),
        ("return outputs['y']", "the metric returned ndarray", ", score"),
        ("return float('nan')", "the metric returned nan", ", score"),
        ("return float('inf')", "the metric returned inf", ", score"),
    ],
)
def test_errors_are_reported_with_their_line(
    tmp_path: Path, body: str, message: str, line: str
) -> None:
    function_metric = metric(tmp_path, body)
    with pytest.raises(AccuracyError, match=message) as caught:
        function_metric.value()
    assert caught.value.where == f"{tmp_path / 'metric.py'}{line}"
    assert caught.value.hint


def test_invalid_files_and_functions_are_reported(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="SyntaxError") as caught:
        metric(tmp_path, "return (")
    assert caught.value.where == f"{tmp_path / 'metric.py'}:4"
    with pytest.raises(AccuracyError, match="has no function 'other'"):
        metric(tmp_path, "return 1.0", function="other")
    with pytest.raises(UsageError, match=r"the metric .* does not exist"):
        PythonFunction(tmp_path / "none.py", "score")


def test_stored_outputs_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_KEPT", 100)
    with pytest.raises(AccuracyError, match="needs all outputs at once"):
        metric(tmp_path, "return 1.0")
