"""Read and write ``.npz`` and ``.npy`` files; every size is checked before memory is allocated."""

from __future__ import annotations

import contextlib
import io
import math
import mmap
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from mobileprep.core.files import unreadable
from mobileprep.core.paths import opened_file
from mobileprep.errors import CorruptFileError

T = TypeVar("T")

_HINT: Final = "save it again with numpy.savez"
_REASON: Final = 120  # In characters; numpy quotes whole headers.
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADERS: Final = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    (3, 0): npy.read_array_header_2_0,  # Differs only in the encoding of field names.
}
# A header is a Python literal, whose parser can raise any of these.
_HEADER_FAULTS: Final = (ValueError, EOFError, SyntaxError, TokenError, RecursionError, MemoryError)
ARCHIVE_FAULTS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    EOFError,
    RuntimeError,
    ValueError,
)


class Header(NamedTuple):
    """The shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_headers(path: Path) -> dict[str, Header]:
    """Read the shapes and dtypes of the arrays in a file, by name; see ``read_arrays``."""
    return _read(path, lambda stream, _size, where: Header(*read_header(stream, where)[::2]))


def read_arrays(
    path: Path, *, limit: int = 1 << 32, names: Container[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file by name; that of an ``.npy`` file has an empty name.

    Args:
        path: path of the file.
        limit: maximum total bytes of all arrays.
        names: arrays to read; None for all.

    Raises:
        CorruptFileError: if the file is unreadable or damaged, or the arrays exceed the limit.
    """
    remaining = limit

    def read(stream: IO[bytes], size: int, where: str) -> NDArray[Any]:
        nonlocal remaining
        array = _read_array(stream, size, remaining, where)
        remaining -= array.nbytes
        return array

    return _read(path, read, names)


def each_array(path: Path, *, limit: int = 1 << 32) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the names and arrays of an ``.npz`` file one at a time, in stored order.

    Args:
        path: path of the file.
        limit: maximum bytes of each array.
    """
    try:
        with opened_file(path) as stream:
            yield from _members(
                stream, path, lambda body, size, where: _read_array(body, size, limit, where)
            )
    except OSError as error:
        raise unreadable(path, error) from error


def write_arrays(target: Path | IO[bytes], arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays as ``.npz`` to a file or a stream; equal arrays have equal bytes."""
    with array_writer(target) as write:
        for name in sorted(arrays):
            write(name, arrays[name])


@contextlib.contextmanager
def array_writer(target: Path | IO[bytes]) -> Iterator[Callable[[str, NDArray[Any]], None]]:
    """Write arrays as ``.npz`` one after another, without keeping them in memory.

    Yields a function that writes an array, given its name and the array.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:

        def write(name: str, array: NDArray[Any]) -> None:
            body = io.BytesIO()
            npy.write_array(body, np.asarray(array), allow_pickle=False)
            # The default time of ZipInfo is 1980, so that the file does not depend on the current
            # time.
            entry = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(entry, body.getvalue(), zipfile.ZIP_DEFLATED, 6)

        yield write


def _read(
    path: Path, read: Callable[[IO[bytes], int, str], T], names: Container[str] | None = None
) -> dict[str, T]:
    """Call ``read`` with the stream, stored size, and name of each array."""
    try:
        with opened_file(path) as stream:
            if zipfile.is_zipfile(stream):
                return dict(_members(stream, path, read, names))
            stream.seek(0)
            return {"": read(stream, path.stat().st_size, str(path))}
    except OSError as error:
        raise unreadable(path, error) from error


def _members(
    stream: IO[bytes],
    path: Path,
    read: Callable[[IO[bytes], int, str], T],
    names: Container[str] | None = None,
) -> Iterator[tuple[str, T]]:
    try:
        with zipfile.ZipFile(stream) as archive:
            for entry in archive.infolist():
                where = f"{path}, {entry.filename}"
                name = entry.filename.removesuffix(".npy")
                if names is not None and name not in names:
                    continue
                if entry.compress_type not in _METHODS:
                    message = "is compressed in a way that numpy does not write"
                    raise CorruptFileError(message, _HINT, where)
                with archive.open(entry) as member:
                    yield name, read(member, entry.file_size, where)
    except ARCHIVE_FAULTS as error:
        msg = f"is not a readable .npz file: {error}"
        raise CorruptFileError(msg, _HINT, str(path)) from error


def _read_array(stream: IO[bytes], size: int, limit: int, where: str) -> NDArray[Any]:
    shape, fortran, dtype = read_header(stream, where)
    _refuse_objects(dtype, where)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > min(size, limit):
        message = f"declares {nbytes} bytes, with {size} there and {limit} allowed"
        raise CorruptFileError(message, _HINT, where)
    return view_of(stream.read(nbytes), shape, dtype, fortran=fortran, where=where)


def view_of(
    data: bytes | memoryview,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    fortran: bool,
    where: str,
) -> NDArray[Any]:
    """Return a view of bytes as an array; ignore additional bytes at the end."""
    _refuse_objects(dtype, where)
    nbytes = math.prod(shape) * dtype.itemsize
    if len(data) < nbytes:
        message = f"ends after {len(data)} of {nbytes} bytes"
        raise CorruptFileError(message, _HINT, where)
    try:
        return np.frombuffer(data[:nbytes], dtype).reshape(shape, order="F" if fortran else "C")
    except ValueError as error:
        # An axis is too long for memory addresses, or there are more axes than numpy supports.
        raise _no_array(error, where) from error


def read_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, whether the first axis varies fastest, and dtype; check that they are valid.

    Afterwards, the stream is at the first element.
    """
    try:
        version = npy.read_magic(stream)
        if version not in _HEADERS:
            message = f"is an array file of the unknown version {version[0]}.{version[1]}"
            raise CorruptFileError(message, _HINT, where)
        shape, fortran, dtype = _HEADERS[version](stream)
    except _HEADER_FAULTS as error:
        raise _no_array(error, where) from error
    if any(size < 0 for size in shape) or not dtype.itemsize:
        message = f"declares the shape {list(shape)} of elements of {dtype.itemsize} bytes"
        raise CorruptFileError(message, _HINT, where)
    return shape, fortran, dtype


def _refuse_objects(dtype: np.dtype[Any], where: str) -> None:
    if dtype.hasobject:
        raise CorruptFileError("holds Python objects, which are not read", _HINT, where)  # noqa: EM101


def _no_array(error: Exception, where: str) -> CorruptFileError:
    reason = str(error).partition("\n")[0][:_REASON]
    return CorruptFileError(f"is not an array file: {reason}", _HINT, where)


_LOCAL: Final = struct.Struct("<4s22xHH")
_BLOCK: Final = 1 << 20
# Read smaller arrays completely, because mapping them would take longer.
_SMALL: Final = 1 << 26
_MOST_UNPACKED: Final = 1 << 36


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Map the arrays of an ``.npz`` file by name; that of an ``.npy`` file has an empty name.

    Large arrays are read-only maps: uncompressed ones of the file itself, compressed ones of an
    unnamed temporary file.
    """
    try:
        with opened_file(path) as stream:
            if zipfile.is_zipfile(stream):
                return _mapped_members(stream, path)
            size = path.stat().st_size
            if size < _SMALL:
                return read_arrays(path)
            stream.seek(0)
            return {"": _mapped(stream, 0, size, str(path))}
    except OSError as error:
        raise unreadable(path, error) from error


def _mapped_members(stream: IO[bytes], path: Path) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    small: set[str] = set()
    try:
        with zipfile.ZipFile(stream) as archive:
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                if entry.file_size < _SMALL:
                    small.add(name)
                elif entry.compress_type == zipfile.ZIP_STORED:
                    arrays[name] = _stored(stream, entry, f"{path}, {entry.filename}")
                else:
                    arrays[name] = _unpacked(archive, entry, f"{path}, {entry.filename}")
    except ARCHIVE_FAULTS as error:
        message = f"is not a readable .npz file: {error}"
        raise CorruptFileError(message, "save it again with numpy.savez", str(path)) from error
    return {**arrays, **read_arrays(path, names=small)}


def _stored(stream: IO[bytes], entry: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    """Map an uncompressed member in place, after verifying its checksum."""
    stream.seek(entry.header_offset)
    magic, name, extra = _LOCAL.unpack(stream.read(_LOCAL.size))
    start = entry.header_offset + _LOCAL.size + name + extra
    if magic != b"PK\3\4" or entry.file_size != entry.compress_size:
        raise CorruptFileError("its entries do not fit their list", "save it again", where)  # noqa: EM101
    stream.seek(start)
    checksum, remaining = 0, entry.file_size
    while remaining and (block := stream.read(min(_BLOCK, remaining))):
        checksum, remaining = zlib.crc32(block, checksum), remaining - len(block)
    if remaining or checksum != entry.CRC:
        raise CorruptFileError("is damaged: its checksum is another", "save it again", where)  # noqa: EM101
    stream.seek(start)
    return _mapped(stream, start, entry.file_size, where)


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    """Decompress a member to a temporary file that exists as long as the array."""
    if entry.file_size > _MOST_UNPACKED:
        message = f"takes {entry.file_size} bytes unpacked; at most {_MOST_UNPACKED} are read"
        raise CorruptFileError(message, "save it with numpy.savez, in parts", where)
    import tempfile  # Slow to import, and rarely needed.

    with tempfile.TemporaryFile() as spool:
        with archive.open(entry) as member:
            shutil.copyfileobj(member, spool, _BLOCK)
        size = spool.tell()
        spool.seek(0)
        return _mapped(spool, 0, size, where)


def _mapped(stream: IO[bytes], start: int, size: int, where: str) -> NDArray[Any]:
    """Map the array that starts at ``start``, the current position of the stream."""
    shape, fortran, dtype = read_header(stream, where)
    offset = stream.tell()
    whole = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    data = memoryview(whole)[offset : start + size]
    return view_of(data, shape, dtype, fortran=fortran, where=where)
