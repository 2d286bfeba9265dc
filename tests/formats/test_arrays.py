"""Reading and writing .npz and .npy files."""

from __future__ import annotations

import io
import mmap
import os
import random
import struct
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from mobileprep.core.files import map_file, view_file
from mobileprep.errors import CorruptFileError
from mobileprep.formats import arrays
from mobileprep.formats.arrays import map_arrays, read_arrays, write_arrays

ARRAYS = {
    "image": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "label": np.array([1, 2], dtype=np.int64),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
    "big": np.arange(3, dtype=">f8"),
    "none": np.empty((0, 3), dtype=np.float32),
    "scalar": np.array(1.5),
    "text": np.array(["ab", "c"]),
    "flag": np.array([True, False]),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_numpy_are_read(tmp_path: Path, save: object) -> None:
    path = tmp_path / "a.npz"
    save(path, **ARRAYS)  # type: ignore[operator]
    result = read_arrays(path)
    assert sorted(result) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        assert result[name].dtype == array.dtype
        assert result[name].shape == array.shape
        assert result[name].tolist() == array.tolist()


def test_numpy_reads_written_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, ARRAYS)
    with np.load(path) as archive:
        values = {name: array.tolist() for name, array in archive.items()}
    assert values == {name: array.tolist() for name, array in ARRAYS.items()}


def test_equal_arrays_give_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrays(tmp_path / "a.npz", ARRAYS)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    write_arrays(tmp_path / "b.npz", dict(reversed(ARRAYS.items())))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_stream_and_file_get_the_same_bytes(tmp_path: Path) -> None:
    stream = io.BytesIO()
    write_arrays(stream, ARRAYS)
    write_arrays(tmp_path / "a.npz", ARRAYS)
    assert stream.getvalue() == (tmp_path / "a.npz").read_bytes()


def test_single_array_has_no_name(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ARRAYS["image"])
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")  # The content decides.
    result = read_arrays(tmp_path / "a.npz")
    assert list(result) == [""]
    assert result[""].tolist() == ARRAYS["image"].tolist()


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="No such file"):
        read_arrays(tmp_path / "none.npz")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([os.getcwd], dtype=object))  # type: ignore[arg-type]
    with pytest.raises(CorruptFileError, match="Python objects") as caught:
        read_arrays(tmp_path / "a.npz")
    assert caught.value.where.endswith("a.npz, x.npy")


def npy(shape: str, *, descr: str = "'<f4'", data: bytes = b"", version: int = 1) -> bytes:
    """Return an .npy file with a custom header."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


@pytest.mark.parametrize(
    "content",
    [
        npy("(1099511627776,)"),
        npy("(4,)", data=b"123"),
        npy("(-1,)", data=b"1234"),
        npy("(-4,)", data=bytes(16)),
        npy("(2, -2)", data=bytes(16)),
        npy("(0, 100000000000000000000000)"),
        npy(f"({'1,' * 65})", data=bytes(4)),
        npy("(3,)", descr="'S0'"),
        npy("(3,)", descr="'V0'"),
        npy("(3,)", descr="'|O'", data=bytes(24)),
        npy("(3,)", descr="[('a', '|O')]", data=bytes(24)),
        npy("(3,)", descr="'nonsense'", data=bytes(24)),
        npy("(3.5,)", data=bytes(24)),
        npy("(3,"),
        npy("'''"),
        npy("(" * 3000),
        npy("(3,)", version=9, data=bytes(12)),
        b"\x93NUMPY",
        b"",
        b"PK\x03\x04",
        b"not an array",
    ],
)
def test_hostile_headers_are_refused(tmp_path: Path, content: bytes) -> None:
    single, zipped = tmp_path / "a.npy", tmp_path / "a.npz"
    single.write_bytes(content)
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("x.npy", content)
    for path in (single, zipped):
        with pytest.raises(CorruptFileError) as caught:
            read_arrays(path)
        assert str(path) in caught.value.where
        assert caught.value.hint


def test_decompression_bomb_is_refused_without_allocation(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    content = npy("(4194304,)", data=bytes(1 << 24))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    del content
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFileError, match="1048576 allowed"):
            read_arrays(path, limit=1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_limit_applies_to_all_arrays_together(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros(100, np.float32), y=np.zeros(100, np.float32))
    assert len(read_arrays(path, limit=800)) == 2
    with pytest.raises(CorruptFileError, match="399 allowed"):
        read_arrays(path, limit=799)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_archives_raise_only_our_error(tmp_path: Path, save: object) -> None:
    path = tmp_path / "a.npz"
    save(path, **ARRAYS)  # type: ignore[operator]
    data = path.read_bytes()
    generator = random.Random(3)
    contents = [data[: generator.randrange(len(data))] for _ in range(30)]
    for _ in range(120):
        flipped = bytearray(data)
        flipped[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        contents.append(bytes(flipped))
    for content in contents:
        path.write_bytes(content)
        try:
            read_arrays(path)
        except CorruptFileError as error:
            assert str(path) in str(error)


def test_damaged_compressed_stream_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.arange(1000))
    data = bytearray(path.read_bytes())
    start = data.index(b"x.npy") + len("x.npy")
    body = zlib.compress(b"other")  # Archives use raw deflate without this header.
    data[start + 30 : start + 30 + len(body)] = body
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptFileError, match="not a readable"):
        read_arrays(path)


MAPPED_ARRAYS_ARRAYS = {
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
    save(tmp_path / "d.npz", **MAPPED_ARRAYS_ARRAYS)
    result = map_arrays(tmp_path / "d.npz")
    assert result.keys() == MAPPED_ARRAYS_ARRAYS.keys()
    for name, array in MAPPED_ARRAYS_ARRAYS.items():
        np.testing.assert_array_equal(result[name], array)
        assert not result[name].flags.writeable


@pytest.mark.usefixtures("_threshold")
def test_single_array_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", MAPPED_ARRAYS_ARRAYS["f"])
    (array,) = map_arrays(tmp_path / "a.npy").values()
    np.testing.assert_array_equal(array, MAPPED_ARRAYS_ARRAYS["f"])


@pytest.mark.usefixtures("_threshold")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damage_is_detected(tmp_path: Path, save) -> None:
    save(tmp_path / "d.npz", a=MAPPED_ARRAYS_ARRAYS["a"])
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
    np.save(tmp_path / "a.npy", MAPPED_ARRAYS_ARRAYS["a"])
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


both = pytest.mark.parametrize("view", [map_file, view_file])


@both
def test_view_is_read_only(tmp_path, view):
    path = tmp_path / "data"
    path.write_bytes(b"bytes")
    assert view(path) == b"bytes"
    assert view(path).readonly


@both
def test_empty_file_gives_an_empty_view(tmp_path, view):
    path = tmp_path / "data"
    path.touch()
    assert len(view(path)) == 0


@both
def test_mapped_file_missing_file_is_reported(tmp_path, view):
    with pytest.raises(CorruptFileError, match="missing: cannot be read"):
        view(tmp_path / "missing")


def test_small_file_is_copied_and_large_file_is_mapped(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"bytes")
    view = view_file(path)
    os.truncate(path, 0)
    assert view == b"bytes"
    os.truncate(path, (4 << 20) + 1)
    assert isinstance(view_file(path).obj, mmap.mmap)


@both
def test_device_is_not_read(view):
    assert len(view(Path("/dev/zero"))) == 0
