"""Reading and writing .npz and .npy files."""

from __future__ import annotations

import io
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

from mobileprep.errors import CorruptFileError
from mobileprep.formats.arrays import read_arrays, write_arrays

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
