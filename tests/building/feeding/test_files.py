"""Files that are fed to tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.runtime.feeding.files import (
    FeedOptions,
    TensorInfo,
    batch_of,
    from_file,
    several_files,
)

PLAIN = FeedOptions()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saved(name: str, *shape: int, start: int = 0) -> str:
    array = np.arange(start, start + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    np.save(name, array)
    return name


def info(*shape: int) -> TensorInfo:
    return TensorInfo("x", DType.FLOAT, shape)


def test_arrays_with_all_axes_are_put_one_behind_the_other() -> None:
    files = [saved("a.npy", 1, 2), saved("b.npy", 2, 2, start=2)]
    assert batch_of(info(-1, 2), files, PLAIN).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_arrays_that_lack_an_axis_are_stacked() -> None:
    files = [saved("a.npy", 2), saved("b.npy", 2, start=2)]
    assert batch_of(info(-1, 2), files, PLAIN).tolist() == [[0, 1], [2, 3]]
    assert batch_of(info(2), [saved("c.npy"), saved("d.npy", start=5)], PLAIN).tolist() == [0, 5]


@pytest.mark.parametrize("second", [(1, 3), (1, 2, 1), (2,)])
def test_files_of_different_shapes_are_refused(second: tuple[int, ...]) -> None:
    files = [saved("a.npy", 1, 2), saved("b.npy", *second)]
    with pytest.raises(UsageError) as error:
        batch_of(info(-1, 2), files, PLAIN)
    assert f"b.npy has the shape {list(second)}, and a.npy [1, 2]" in str(error.value)


def test_more_bytes_than_a_batch_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mobileprep.runtime.feeding.files._MOST_BYTES", 200)
    # An array of two float32 numbers takes 8 bytes, so 25 are 200.
    files = [saved("a.npy", 1, 2)] * 25
    monkeypatch.setattr("mobileprep.runtime.feeding.files.read_arrays", lambda _: {"x": ONE})
    assert len(batch_of(info(-1, 2), files, PLAIN)) == 25
    with pytest.raises(UsageError, match="the 26 files for 'x' are too much for one batch"):
        batch_of(info(-1, 2), [*files, "a.npy"], PLAIN)


ONE = np.zeros((1, 2), np.float32)


def test_a_tensor_of_a_fixed_batch_takes_so_many_files() -> None:
    files = [saved("a.npy", 1, 2), saved("b.npy", 1, 2)]
    assert batch_of(info(2, 2), files, PLAIN).shape == (2, 2)
    with pytest.raises(UsageError, match="does not take 2 files at a time"):
        batch_of(info(3, 2), files, PLAIN)


def test_array_is_found_by_tensor_name_or_key() -> None:
    np.savez("both.npz", x=np.float32(1), y=np.float32(2))
    assert from_file(info(), "both.npz", PLAIN) == 1
    assert from_file(info(), "both.npz:y", PLAIN) == 2
    with pytest.raises(UsageError, match=r"has no array 'z'; it has x, y"):
        from_file(info(), "both.npz:z", PLAIN)
    np.savez("only.npz", other=np.float32(3))
    assert from_file(info(), "only.npz", PLAIN) == 3


def test_patterns_folders_and_lists_name_several_files() -> None:
    Path("d").mkdir()
    a, b = saved("d/a.npy", 1), saved("d/b.npy", 1)
    Path("d/notes.txt").write_text("no array")
    assert several_files("d") == [str(Path(a)), str(Path(b))]
    assert several_files("d/*.npy") == [str(Path(a)), str(Path(b))]
    assert several_files(f"{a}, {b}") == [a, b]
    assert several_files(a) is None
    assert several_files("1,2") is None
    with pytest.raises(UsageError, match=r"no file fits the pattern 'd/\*.png'"):
        several_files("d/*.png")


def test_unknown_and_damaged_files_have_different_errors() -> None:
    Path("x.dat").write_bytes(b"data")
    with pytest.raises(UsageError, match="the extension determines the format"):
        from_file(info(), "x.dat", PLAIN)
    Path("x.bmp").write_bytes(b"data")
    with pytest.raises(CorruptFileError) as error:
        from_file(info(1, 2, 2, 3), "x.bmp", PLAIN)
    assert error.value.where is not None
    assert error.value.where.startswith("x.bmp")
