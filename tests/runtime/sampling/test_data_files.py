"""Validation of sample files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import Header
from mobileprep.formats.dtypes import DType
from mobileprep.runtime.sampling.data_files import (
    array_of,
    class_faults,
    misfit,
    recorded_feeds,
    sample_faults,
)
from mobileprep.runtime.sampling.findings import FirstOps
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


def cut(
    shape: Any, array: Any, *, count: int = 99, dtype: DType = DType.FLOAT, **ops: Any
) -> list[tuple[int, ...]]:
    """The fed shapes of each run."""
    fed = FedTensor("x", dtype, shape)
    feeds = recorded_feeds({"x": np.asarray(array)}, [fed], [FirstOps(**ops)], count, "d.npz")
    return [feed["x"].shape for feed in feeds]


@pytest.mark.parametrize(
    ("shape", "array", "runs"),
    [
        ((-1, 3), (5, 3), [(1, 3)] * 5),
        ((2, 3), (5, 3), [(2, 3)] * 3),
        ((2, 3), (4, 2, 3), [(2, 3)] * 4),
        ((-1, 3), (4, 2, 3), [(2, 3)] * 4),
        ((1, 8, 8, 3), (6, 8, 8, 3), [(1, 8, 8, 3)] * 6),
        # An image without a sample axis is fed whole; several are fed one by one.
        ((-1, -1, 3), (20, 30, 3), [(20, 30, 3)]),
        ((-1, -1, 3), (2, 20, 30, 3), [(20, 30, 3)] * 2),
        ((), (), [()]),
        ((), (3,), [()] * 3),
        ((4000,), (4000,), [(4000,)]),
        (None, (4000,), [(4000,)]),
        (None, (3, 7), [(1, 7)] * 3),
    ],
)
def test_arrays_are_split_by_the_input_shape(
    shape: Any, array: tuple[int, ...], runs: list[tuple[int, ...]]
) -> None:
    assert cut(shape, np.ones(array, np.float32)) == runs


def test_audio_of_unknown_length_is_fed_whole() -> None:
    assert cut((-1,), np.ones(500, np.float32), is_audio=True) == [(500,)]
    assert cut((-1,), np.ones(3, np.float32)) == [(1,)] * 3


def test_scalar_is_repeated_for_all_samples() -> None:
    inputs = [FedTensor("x", DType.FLOAT, (-1, 3)), FedTensor("rate", DType.FLOAT, ())]
    arrays = {"x": np.ones((4, 3)), "rate": np.asarray(0.5)}
    feeds = recorded_feeds(arrays, inputs, [FirstOps(), FirstOps()], 2, "d.npz")
    assert [float(feed["rate"]) for feed in feeds] == [0.5, 0.5]
    assert feeds[0]["x"].dtype == np.float32


def test_arrays_of_different_lengths_are_refused() -> None:
    inputs = [FedTensor(name, DType.FLOAT, (-1, 3)) for name in "xz"]
    arrays = {"x": np.ones((4, 3)), "z": np.ones((3, 3))}
    with pytest.raises(AccuracyError, match="x has 4, z has 3"):
        recorded_feeds(arrays, inputs, [FirstOps(), FirstOps()], 8, "d.npz")


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        (DType.FLOAT, np.ones((2, 4), np.float32)),
        (DType.FLOAT, np.ones(3, np.float32)),
        (DType.INT32, np.ones((2, 3), np.float32)),
        (DType.STRING, np.ones((2, 3), np.float32)),
        (DType.FLOAT, np.array([["a"] * 3])),
    ],
)
def test_invalid_arrays_are_refused(dtype: DType, array: Any) -> None:
    with pytest.raises(AccuracyError, match="the input 'x' takes"):
        cut((-1, 3), array, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "array_dtype", "message"),
    [
        (DType.STRING, "U1", ""),
        (DType.STRING, "S4", ""),
        (DType.STRING, "f4", "takes string, and the array is float32"),
        (DType.FLOAT, "U1", "takes float32, and the array is text"),
        (DType.FLOAT, "f8", ""),
        (DType.FLOAT, "i8", ""),
        (DType.INT32, "f4", "takes int32, and the array is float32"),
        (DType.INT32, "i8", ""),
    ],
)
def test_dtype_kind_must_match(dtype: DType, array_dtype: str, message: str) -> None:
    result = misfit(FedTensor("x", dtype, None), Header((2, 3), np.dtype(array_dtype)))
    assert result == (f"the input 'x' {message}" if message else "")


def test_array_lookup_by_tensor_or_node() -> None:
    assert array_of({"x": 1, "x:1": 2}, "x:1", "d.npz") == 2
    assert array_of({"x": 1}, "x:1", "d.npz") == 1
    with pytest.raises(AccuracyError, match=r"d.npz has no array 'x'; it has a, z"):
        array_of({"z": 1, "a": 2}, "x:1", "d.npz")
    with pytest.raises(AccuracyError, match="it has none"):
        array_of({}, "x", "d.npz")


@pytest.mark.parametrize(
    ("count", "chosen"), [(9, [0, 1, 2, 3, 4]), (5, [0, 1, 2, 3, 4]), (2, [0, 2]), (3, [0, 1, 3])]
)
def test_samples_are_selected_evenly(count: int, chosen: list[int]) -> None:
    fed = FedTensor("x", DType.FLOAT, (-1, 1))
    array = np.arange(5, dtype=np.float32)[:, None]
    feeds = recorded_feeds({"x": array}, [fed], [FirstOps()], count, "d.npz")
    assert [float(feed["x"][0, 0]) for feed in feeds] == chosen


def test_last_fixed_batch_wraps_around() -> None:
    fed = FedTensor("x", DType.FLOAT, (2, 1))
    array = np.arange(3, dtype=np.float32)[:, None]
    feeds = recorded_feeds({"x": array}, [fed], [FirstOps()], 9, "d.npz")
    assert [feed["x"].ravel().tolist() for feed in feeds] == [[0, 1], [2, 0]]


def test_nan_samples_are_refused() -> None:
    array = np.float32([[1, np.nan], [np.nan, np.nan], [0, 1], [np.nan, np.nan]])
    with pytest.raises(AccuracyError, match=r"2 of 4 samples of 'x' are NaN .* sample 1"):
        cut((-1, 2), array)
    assert cut((-1, 2), array[:1]) == [(1, 2)]
