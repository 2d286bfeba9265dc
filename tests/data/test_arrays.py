"""Arrays as samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.options import Reading
from mobileprep.data.source import DataFiles
from mobileprep.errors import AccuracyError, CorruptFileError
from mobileprep.formats.dtypes import DType
from tests.data.made import all_of, fed, labels_of, opened

X = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
Y = np.arange(5)


def saved(path: Path, **arrays: np.ndarray) -> DataFiles:
    np.savez(path, **arrays)
    return DataFiles("d.npz", path)


def test_arrays_are_inputs_and_labels(tmp_path: Path) -> None:
    files = saved(tmp_path / "d.npz", x=X.astype(np.float64), label=Y, more=X)
    batch = all_of(opened(files, [fed((-1, 3))], labels="label"))
    np.testing.assert_array_equal(batch.feeds["x"], X)
    assert batch.feeds["x"].dtype == np.float32
    assert labels_of(batch) == Y.tolist()
    assert batch.names[1] == "sample 1"


def test_arrays_and_labels_may_have_other_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", images=X, y=Y, label=Y * 0)
    files = DataFiles(
        "d", tmp_path / "d.npz", "npz", Reading(inputs=(("x", ("images",)),), labels="y")
    )
    batch = all_of(opened(files, [fed((-1, 3))], labels="label"))
    np.testing.assert_array_equal(batch.feeds["x"], X)
    assert labels_of(batch) == Y.tolist()


def test_npy_file_is_the_only_input_with_a_separate_labels_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    files = DataFiles("x.npy", tmp_path / "x.npy", labels=tmp_path / "y.npy")
    batch = all_of(opened(files, [fed((-1, 3))], labels="label", samples=2))
    np.testing.assert_array_equal(batch.feeds["x"], X[[0, 2]])
    assert labels_of(batch) == [0, 2]
    with pytest.raises(AccuracyError, match=r"x\.npy has no labels"):
        opened(DataFiles("x.npy", tmp_path / "x.npy"), [fed((-1, 3))], labels="label")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "lable": Y}, "d.npz has no array 'label'"),
        ({"x": X[:, :2], "label": Y}, r"takes the shape \[\?, 3\], and the array has \[5, 2\]"),
        ({"x": X.astype(complex), "label": Y}, "takes float32, and the array is complex128"),
        ({"x": X, "label": Y[:3]}, "3 labels, and x has 5"),
        ({"x": X[:0], "label": Y[:0]}, "0 labels, and x has 0"),
    ],
)
def test_mismatched_arrays_are_reported(tmp_path: Path, arrays: dict, message: str) -> None:
    with pytest.raises(AccuracyError, match=message):
        opened(saved(tmp_path / "d.npz", **arrays), [fed((-1, 3))], labels="label")


@pytest.mark.parametrize(
    ("arrays", "hint"),
    [
        ({"x": X}, "name the labels that it has by 'labels', or take a metric that needs none"),
        ({"pictures": X, "label": Y}, "save the array under that name, or name its own with"),
    ],
)
def test_missing_array_is_reported_with_a_hint(tmp_path: Path, arrays: dict, hint: str) -> None:
    with pytest.raises(AccuracyError) as caught:
        opened(saved(tmp_path / "d.npz", **arrays), [fed((-1, 3))], labels="label")
    assert caught.value.hint.startswith(hint)


def test_inputs_of_unequal_length_are_refused(tmp_path: Path) -> None:
    files = saved(tmp_path / "d.npz", x=X, z=X[:4])
    with pytest.raises(AccuracyError, match=r"do not fit together: x has 5, z has 4"):
        opened(files, [fed((-1, 3)), fed((-1, 3), name="z")])


def test_file_without_arrays_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.npz").write_bytes(b"text")
    with pytest.raises(CorruptFileError):
        opened(DataFiles("d.npz", tmp_path / "d.npz"), [fed((-1, 3))])


def test_strings_are_read(tmp_path: Path) -> None:
    files = saved(tmp_path / "d.npz", x=np.array(["a", "bc"]))
    batch = all_of(opened(files, [fed((-1,), DType.STRING)]))
    assert batch.feeds["x"].tolist() == ["a", "bc"]
