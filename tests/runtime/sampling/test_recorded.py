"""Samples from arrays: cut into what a graph takes at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import AccuracyError
from mobileprep.formats.dtypes import DType
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.runtime.sampling.recorded import recorded_feeds


def cut(
    shape: Any, array: Any, *, count: int = 99, dtype: DType = DType.FLOAT, **ops: Any
) -> list[tuple[int, ...]]:
    """The shapes that are fed, run by run."""
    fed = FedTensor("x", dtype, shape)
    feeds = recorded_feeds({"x": np.asarray(array)}, [fed], [FirstOps(**ops)], count, "d.npz")
    return [given["x"].shape for given in feeds]


@pytest.mark.parametrize(
    ("shape", "array", "runs"),
    [
        ((-1, 3), (5, 3), [(1, 3)] * 5),
        ((2, 3), (5, 3), [(2, 3)] * 3),
        ((2, 3), (4, 2, 3), [(2, 3)] * 4),
        ((-1, 3), (4, 2, 3), [(2, 3)] * 4),
        ((1, 8, 8, 3), (6, 8, 8, 3), [(1, 8, 8, 3)] * 6),
        # One picture without an axis of samples is fed whole, and some in a row one by one.
        ((-1, -1, 3), (20, 30, 3), [(20, 30, 3)]),
        ((-1, -1, 3), (2, 20, 30, 3), [(20, 30, 3)] * 2),
        ((), (), [()]),
        ((), (3,), [()] * 3),
        ((4000,), (4000,), [(4000,)]),
        (None, (4000,), [(4000,)]),
        (None, (3, 7), [(1, 7)] * 3),
    ],
)
def test_arrays_are_cut_by_what_the_input_takes(
    shape: Any, array: tuple[int, ...], runs: list[tuple[int, ...]]
) -> None:
    assert cut(shape, np.ones(array, np.float32)) == runs


def test_a_sound_of_open_length_is_fed_whole() -> None:
    assert cut((-1,), np.ones(500, np.float32), is_sound=True) == [(500,)]
    assert cut((-1,), np.ones(3, np.float32)) == [(1,)] * 3


def test_an_input_that_is_the_same_for_all_samples_is_repeated() -> None:
    inputs = [FedTensor("x", DType.FLOAT, (-1, 3)), FedTensor("rate", DType.FLOAT, ())]
    arrays = {"x": np.ones((4, 3)), "rate": np.asarray(0.5)}
    feeds = recorded_feeds(arrays, inputs, [FirstOps(), FirstOps()], 2, "d.npz")
    assert [float(given["rate"]) for given in feeds] == [0.5, 0.5]
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
def test_what_does_not_fit_is_refused(dtype: DType, array: Any) -> None:
    with pytest.raises(AccuracyError, match="the input 'x' takes"):
        cut((-1, 3), array, dtype=dtype)
