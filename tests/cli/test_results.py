"""Results of runs as text and as data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.cli._shared.results import (
    RunOutputs,
    Score,
    best_scores,
    described,
    line,
    read_labels,
)
from mobileprep.errors import CorruptFileError, UsageError

LARGE = np.arange(65, dtype=np.float32)


def test_few_values_are_listed_and_many_are_summarized() -> None:
    assert line(described("a", np.float32([1, 2]) / 3)) == "a: float32[2] [0.333333, 0.666667]"
    assert line(described("a", LARGE)) == "a: float32[65] from 0 to 64, mean 32"
    assert "values" in described("a", LARGE[:64])
    assert "values" not in described("a", LARGE)


def test_nan_extremes_are_strings() -> None:
    wild = LARGE.copy()
    wild[0] = np.nan
    facts = described("a", wild)
    assert (facts["min"], facts["max"], facts["mean"]) == ("nan", "nan", "nan")
    assert line(facts) == "a: float32[65] from nan to nan, mean nan"


def test_empty_and_string_tensors_have_no_extremes() -> None:
    empty = described("a", np.zeros((0, 3), np.float32))
    assert empty == {"name": "a", "dtype": "float32", "shape": [0, 3], "values": []}
    strings = described("a", np.array([b"x"] * 65, dtype=object))
    assert strings == {"name": "a", "dtype": "string", "shape": [65]}
    assert line(strings) == "a: string[65]"


def test_equal_scores_are_sorted_by_index() -> None:
    ((first, second),) = best_scores(np.float32([[1, 3, 3, 2]]), ["a", "b"], 2)
    assert (str(first), str(second)) == ("b (1): 3", "(2): 3")
    with pytest.raises(UsageError, match="has no scores"):
        best_scores(np.zeros((0, 3)), [], 1)


def test_classes_replace_the_first_tensor() -> None:
    outputs = {"y": np.float32([0, 1]), "z": np.float32(5)}
    assert str(RunOutputs.of("a.png", outputs, [], 1)) == "a.png:\n(1): 1\nz: float32[] 5.0"
    plain = RunOutputs.of("", outputs, [], 0)
    assert str(plain) == "y: float32[2] [0.0, 1.0]\nz: float32[] 5.0"
    assert plain.as_data()["top"] == []
    assert Score(0, "", float("inf")).as_data()["score"] == "inf"


def test_labels_are_read_from_a_file_of_limited_size(tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(b"a \r\nb\xff\n")
    assert read_labels(tmp_path / "labels") == ["a", "b\N{REPLACEMENT CHARACTER}"]
    with (tmp_path / "labels").open("wb") as stream:
        stream.truncate((16 << 20) + 1)
    with pytest.raises(CorruptFileError):
        read_labels(tmp_path / "labels")


@pytest.mark.parametrize(
    ("shape", "has_values"), [((0,), True), ((2, 0), True), ((1 << 40, 0), False), ((64,), True)]
)
def test_values_are_omitted_for_many_nested_lists(shape: tuple[int, ...], has_values: bool) -> None:
    facts = described("x", np.zeros(shape, np.float32))
    assert facts["shape"] == list(shape)
    assert ("values" in facts) is has_values
