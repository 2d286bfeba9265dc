"""Files of samples, told right or wrong by their headers and labels."""

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


def told(path: Path, scores: Any = SCORES, *inputs: FedTensor) -> list[str]:
    return [m for m, _ in class_faults(path, "d.npz", inputs or [X], "y", scores)]


def test_samples_that_fit(saved: Any) -> None:
    assert sample_faults(saved(x=ONES), "d.npz", [X]) == []


def test_every_input_that_does_not_fit_is_told(saved: Any) -> None:
    inputs = [FedTensor("none", DType.FLOAT, ()), FedTensor("x", DType.FLOAT, (-1, 2)), X]
    found = sample_faults(saved(x=ONES), "d.npz", inputs)
    assert [message for message, _ in found] == [
        "d.npz has no array 'none'; it has x",
        "d.npz: the input 'x' takes the shape [?, 2], and the array has [4, 3]",
    ]
    assert found[1][1] == "save samples as the model takes them"


@pytest.mark.parametrize("scores", [SCORES, (-1, -1), None])
def test_labels_that_fit(saved: Any, scores: Any) -> None:
    assert told(saved(x=ONES, y=[0, 4, 2, 1]), scores) == []


def test_labels_that_are_not_there(saved: Any) -> None:
    assert told(saved(x=ONES)) == ["d.npz has no array 'y'; it has x"]


def test_each_sample_needs_a_label(saved: Any) -> None:
    [fault] = told(saved(x=ONES, y=[0, 1, 2]))
    assert fault.endswith("3 labels, and x has 4")


def test_a_scalar_has_no_samples(saved: Any) -> None:
    rate = FedTensor("rate", DType.FLOAT, ())
    [fault] = told(saved(x=ONES, y=[0, 1, 2, 3], rate=np.float32(0.5)), SCORES, X, rate)
    assert fault.endswith("4 labels, and x has 4, rate has 0")


def test_one_hot_labels_are_known_by_the_number_of_samples(saved: Any) -> None:
    [fault] = told(saved(x=ONES, y=np.eye(4, dtype=np.int64)))
    assert fault == "the labels 'y' are one-hot, of shape [4, 4]"
    [fault] = told(saved(x=ONES[:2], y=np.eye(4, dtype=np.int64)))
    assert fault.endswith("16 labels, and x has 2")


def test_labels_beyond_the_classes(saved: Any) -> None:
    path = saved(x=ONES, y=[0, 5, 2, 1])
    [fault] = told(path)
    assert fault.endswith("0 to 4: the first is 5, of sample 1")
    assert told(path, (-1, 6)) == []
    # With an open number of classes, the run tells; without a shape too.
    assert told(path, (-1, -1)) == told(path, None) == []


def test_labels_need_an_output_of_scores(saved: Any) -> None:
    [fault] = told(saved(x=ONES, y=[0, 1, 2, 3]), (-1, 2, 5))
    assert fault.endswith("the first output is of shape [-1, 2, 5]")


def test_faults_of_inputs_and_of_labels_are_told_together(saved: Any) -> None:
    wrong = FedTensor("x", DType.FLOAT, (-1, 2))
    faults = told(saved(x=ONES, y=[0, 9, 1, 2]), SCORES, wrong)
    assert ["takes the shape" in faults[0], "the first is 9" in faults[1]] == [True, True]
