"""Memory-mapped arrays."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats import arrays
from mobileprep.formats.arrays import map_arrays

ARRAYS = {
    "a": np.arange(3000, dtype=np.float32).reshape(100, 30),
    "f": np.asfortranarray(np.arange(600).reshape(30, 20)),
    "t": np.array(["x", "yz"]),
    "none": np.zeros((0, 3)),
}


@pytest.fixture(params=[1, 1 << 26], ids=["mapped", "read"])
def _threshold(request, monkeypatch) -> None:
    monkeypatch.setattr(arrays, "_SMALL", request.param)


@pytest.mark.usefixtures("_threshold")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_an_archive_are_mapped(tmp_path: Path, save) -> None:
    save(tmp_path / "d.npz", **ARRAYS)
    result = map_arrays(tmp_path / "d.npz")
    assert result.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(result[name], array)
        assert not result[name].flags.writeable
    assert list(map_arrays(tmp_path / "d.npz", {"f"})) == ["f"]


@pytest.mark.usefixtures("_threshold")
def test_single_array_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ARRAYS["f"])
    (array,) = map_arrays(tmp_path / "a.npy").values()
    np.testing.assert_array_equal(array, ARRAYS["f"])


@pytest.mark.usefixtures("_threshold")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damage_is_detected(tmp_path: Path, save) -> None:
    save(tmp_path / "d.npz", a=ARRAYS["a"])
    data = bytearray((tmp_path / "d.npz").read_bytes())
    data[len(data) // 2] ^= 0x55
    (tmp_path / "d.npz").write_bytes(data)
    with pytest.raises(CorruptFileError):
        map_arrays(tmp_path / "d.npz")


@pytest.mark.usefixtures("_threshold")
def test_objects_and_truncated_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(CorruptFileError, match="holds Python objects"):
        map_arrays(tmp_path / "o.npy")
    np.save(tmp_path / "a.npy", ARRAYS["a"])
    whole = (tmp_path / "a.npy").read_bytes()
    for size in (0, 5, 100, len(whole) - 1):
        (tmp_path / "a.npy").write_bytes(whole[:size])
        with pytest.raises(CorruptFileError):
            map_arrays(tmp_path / "a.npy")


def test_oversized_unpacked_content_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(arrays, "_SMALL", 1)
    monkeypatch.setattr(arrays, "_MOST_UNPACKED", 1000)
    np.savez_compressed(tmp_path / "d.npz", a=np.zeros(1000))
    with pytest.raises(CorruptFileError, match="bytes unpacked; at most 1000 are read"):
        map_arrays(tmp_path / "d.npz")


def test_entry_with_a_wrong_offset_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(arrays, "_SMALL", 1)
    np.savez(tmp_path / "d.npz", a=np.zeros(100))
    with zipfile.ZipFile(tmp_path / "d.npz") as archive:
        start = archive.infolist()[0].header_offset
    data = bytearray((tmp_path / "d.npz").read_bytes())
    data[start] ^= 1
    (tmp_path / "d.npz").write_bytes(data)
    with pytest.raises(CorruptFileError):
        map_arrays(tmp_path / "d.npz")
