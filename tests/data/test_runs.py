"""Batches as graphs take them, and data that shows nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.source import DataFiles
from mobileprep.data.survey import runs
from mobileprep.errors import AccuracyError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.data.made import fed, opened

X = np.arange(15, dtype=np.float32).reshape(5, 3)


def of(folder: Path, inputs: list[FedTensor], size: int = 2, **arrays: Array):
    np.savez(folder / "d.npz", **arrays)
    labels = "label" if "label" in arrays else None
    return list(runs(opened(DataFiles("d", folder / "d.npz"), inputs, labels=labels), inputs, size))


def test_open_batches_are_as_large_as_asked(tmp_path: Path) -> None:
    found = of(tmp_path, [fed((-1, 3))], x=X, label=np.arange(5))
    assert [(run.count, run.fed) for run in found] == [(2, 2), (2, 2), (1, 1)]
    assert [run.labels.tolist() for run in found] == [[0, 1], [2, 3], [4]]
    assert found[1].names == ("sample 2", "sample 3")


def test_fixed_batches_are_filled_up(tmp_path: Path) -> None:
    found = of(tmp_path, [fed((4, 3))], x=X)
    assert [(run.count, run.fed) for run in found] == [(4, 4), (1, 4)]
    assert found[1].feeds["x"].tolist() == [X[4].tolist()] * 4


def test_an_input_without_an_axis_for_samples_takes_one_at_a_time(tmp_path: Path) -> None:
    found = of(tmp_path, [fed((3,)), fed((-1, 2), name="y")], x=X, y=np.ones((5, 2)) * 2)
    assert len(found) == 5
    assert (found[3].feeds["x"].tolist(), found[3].feeds["y"].shape) == (X[3].tolist(), (1, 2))


def test_a_value_that_is_the_same_for_all_is_fed_once(tmp_path: Path) -> None:
    inputs = [fed((-1, 3)), fed((), name="keep")]
    found = of(tmp_path, inputs, x=X, keep=np.ones(5))
    assert [run.feeds["keep"].shape for run in found] == [(), (), ()]
    assert [run.count for run in found] == [2, 2, 1]
    found = of(tmp_path, inputs, x=X, keep=np.arange(5))
    assert [float(run.feeds["keep"]) for run in found] == [0, 1, 2, 3, 4]


def test_the_head_of_a_run_is_no_longer_than_asked(tmp_path: Path) -> None:
    (run,) = of(tmp_path, [fed((-1, 3)), fed((), name="k")], size=5, x=X, k=np.ones(5))
    head = run.head(2)
    assert (head.count, head.feeds["x"].shape, head.feeds["k"].shape) == (2, (2, 3), ())
    (whole, _) = of(tmp_path, [fed((4, 3))], x=X)
    assert whole.head(2) is whole


def test_samples_without_a_number_are_named(tmp_path: Path) -> None:
    x = X.copy()
    x[3] = np.nan
    x[0, 0] = np.nan
    with pytest.raises(AccuracyError, match=r"1 of 2 samples of 'x' are NaN .* of them sample 3"):
        of(tmp_path, [fed((-1, 3))], x=x)


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_one_value_throughout_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(AccuracyError, match=f"d: all samples hold one value: 'x' is {value:g} thr"):
        of(tmp_path, [fed((-1, 3))], x=np.full((5, 3), value))


def test_one_value_beside_others_is_none_of_that(tmp_path: Path) -> None:
    assert of(tmp_path, [fed((-1, 3)), fed((-1,), name="k")], x=X, k=np.ones(5))
    assert of(tmp_path, [fed((-1,))], x=np.ones(1))
    assert of(tmp_path, [fed((-1,), DType.STRING)], x=np.array(["a", "a"]))
