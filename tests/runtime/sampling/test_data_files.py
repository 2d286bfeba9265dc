"""Validation of sample files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.runtime.sampling.data_files import class_faults, sample_faults
from mobileprep.runtime.sampling.inputs import FedTensor

X = FedTensor("x", DType.FLOAT, (-1, 3))
ONES = np.ones((4, 3), np.float32)
SCORES = (-1, 5)


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    def save(**arrays: Any) -> Path:
        np.savez(tmp_path / "d.npz", **arrays)
        return tmp_path / "d.npz"

    return save


def label_faults(path: Path, scores: Any = SCORES, *inputs: FedTensor) -> list[str]:
    return [m for m, _ in class_faults(path, "d.npz", inputs or [X], "y", scores)]


def test_valid_samples(saved: Any) -> None:
    assert sample_faults(saved(x=ONES), "d.npz", [X]) == []


def test_all_invalid_inputs_are_reported(saved: Any) -> None:
    inputs = [FedTensor("none", DType.FLOAT, ()), FedTensor("x", DType.FLOAT, (-1, 2)), X]
    faults = sample_faults(saved(x=ONES), "d.npz", inputs)
    assert [message for message, _ in faults] == [
        "d.npz has no array 'none'; it has x",
        "d.npz: the input 'x' takes the shape [?, 2], and the array has [4, 3]",
    ]
    assert faults[1][1] == "save samples as the model takes them"


@pytest.mark.parametrize("scores", [SCORES, (-1, -1), None])
def test_valid_labels(saved: Any, scores: Any) -> None:
    assert label_faults(saved(x=ONES, y=[0, 4, 2, 1]), scores) == []


def test_missing_labels(saved: Any) -> None:
    assert label_faults(saved(x=ONES)) == ["d.npz has no array 'y'; it has x"]


def test_label_count_must_match(saved: Any) -> None:
    [fault] = label_faults(saved(x=ONES, y=[0, 1, 2]))
    assert fault.endswith("3 labels, and x has 4")


def test_scalar_input_has_no_samples(saved: Any) -> None:
    rate = FedTensor("rate", DType.FLOAT, ())
    [fault] = label_faults(saved(x=ONES, y=[0, 1, 2, 3], rate=np.float32(0.5)), SCORES, X, rate)
    assert fault.endswith("4 labels, and x has 4, rate has 0")


def test_one_hot_labels_are_detected_by_sample_count(saved: Any) -> None:
    [fault] = label_faults(saved(x=ONES, y=np.eye(4, dtype=np.int64)))
    assert fault == "the labels 'y' are one-hot, of shape [4, 4]"
    [fault] = label_faults(saved(x=ONES[:2], y=np.eye(4, dtype=np.int64)))
    assert fault.endswith("16 labels, and x has 2")


def test_labels_out_of_range(saved: Any) -> None:
    path = saved(x=ONES, y=[0, 5, 2, 1])
    [fault] = label_faults(path)
    assert fault.endswith("0 to 4: the first is 5, of sample 1")
    assert label_faults(path, (-1, 6)) == []
    # Unknown class counts or shapes are checked at run time.
    assert label_faults(path, (-1, -1)) == label_faults(path, None) == []


def test_labels_need_a_score_output(saved: Any) -> None:
    [fault] = label_faults(saved(x=ONES, y=[0, 1, 2, 3]), (-1, 2, 5))
    assert fault.endswith("the first output is of shape [-1, 2, 5]")


def test_input_and_label_faults_are_reported_together(saved: Any) -> None:
    wrong = FedTensor("x", DType.FLOAT, (-1, 2))
    faults = label_faults(saved(x=ONES, y=[0, 9, 1, 2]), SCORES, wrong)
    assert ["takes the shape" in faults[0], "the first is 9" in faults[1]] == [True, True]
