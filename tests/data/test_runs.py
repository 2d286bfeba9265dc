"""Division of data into runs, and constant data."""

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


def test_open_batches_have_the_requested_size(tmp_path: Path) -> None:
    batches = of(tmp_path, [fed((-1, 3))], x=X, label=np.arange(5))
    assert [(run.count, run.fed) for run in batches] == [(2, 2), (2, 2), (1, 1)]
    assert [run.labels.tolist() for run in batches] == [[0, 1], [2, 3], [4]]
    assert batches[1].names == ("sample 2", "sample 3")


def test_fixed_batches_are_padded(tmp_path: Path) -> None:
    batches = of(tmp_path, [fed((4, 3))], x=X)
    assert [(run.count, run.fed) for run in batches] == [(4, 4), (1, 4)]
    assert batches[1].feeds["x"].tolist() == [X[4].tolist()] * 4


def test_input_without_a_batch_axis_gets_one_sample_a_run(tmp_path: Path) -> None:
    batches = of(tmp_path, [fed((3,)), fed((-1, 2), name="y")], x=X, y=np.ones((5, 2)) * 2)
    assert len(batches) == 5
    assert (batches[3].feeds["x"].tolist(), batches[3].feeds["y"].shape) == (X[3].tolist(), (1, 2))


def test_scalar_with_one_value_is_fed_once_per_batch(tmp_path: Path) -> None:
    inputs = [fed((-1, 3)), fed((), name="keep")]
    batches = of(tmp_path, inputs, x=X, keep=np.ones(5))
    assert [run.feeds["keep"].shape for run in batches] == [(), (), ()]
    assert [run.count for run in batches] == [2, 2, 1]
    batches = of(tmp_path, inputs, x=X, keep=np.arange(5))
    assert [float(run.feeds["keep"]) for run in batches] == [0, 1, 2, 3, 4]


def test_head_limits_the_samples_of_a_run(tmp_path: Path) -> None:
    (run,) = of(tmp_path, [fed((-1, 3)), fed((), name="k")], size=5, x=X, k=np.ones(5))
    head = run.head(2)
    assert (head.count, head.feeds["x"].shape, head.feeds["k"].shape) == (2, (2, 3), ())
    (whole, _) = of(tmp_path, [fed((4, 3))], x=X)
    assert whole.head(2) is whole


def test_nan_samples_are_reported(tmp_path: Path) -> None:
    x = X.copy()
    x[3] = np.nan
    x[0, 0] = np.nan
    with pytest.raises(AccuracyError, match=r"1 of 2 samples of 'x' are NaN .* of them sample 3"):
        of(tmp_path, [fed((-1, 3))], x=x)


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_constant_data_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(AccuracyError, match=f"d: all samples hold one value: 'x' is {value:g} thr"):
        of(tmp_path, [fed((-1, 3))], x=np.full((5, 3), value))


def test_constant_input_with_varying_inputs_is_accepted(tmp_path: Path) -> None:
    assert of(tmp_path, [fed((-1, 3)), fed((-1,), name="k")], x=X, k=np.ones(5))
    assert of(tmp_path, [fed((-1,))], x=np.ones(1))
    assert of(tmp_path, [fed((-1,), DType.STRING)], x=np.array(["a", "a"]))
