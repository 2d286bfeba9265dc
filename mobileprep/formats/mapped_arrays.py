"""Arrays from ``.npz`` and ``.npy`` files that stay on disk until they are looked at."""

from __future__ import annotations

import mmap
import shutil
import struct
import zipfile
import zlib
from collections.abc import Container
from pathlib import Path
from typing import IO, Any, Final

from numpy.typing import NDArray

from mobileprep.core.files import unreadable
from mobileprep.core.paths import opened_file
from mobileprep.errors import CorruptFileError
from mobileprep.formats.arrays import ARCHIVE_FAULTS, read_arrays, read_header, view_of

_LOCAL: Final = struct.Struct("<4s22xHH")
_BLOCK: Final = 1 << 20
# Arrays of less are read whole: mapping costs more than they take.
_SMALL: Final = 1 << 26
_MOST_UNPACKED: Final = 1 << 36


def map_arrays(path: Path, names: Container[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file by name; of an ``.npy`` file under the empty name.

    Large ones are mapped: those that are stored as they are where they lie, compressed ones from
    a temporary file that has no name. They are not to be written to.

    Args:
        path: the file, told apart by its content.
        names: the only arrays to read; None for all.

    Raises:
        CorruptFileError: missing, damaged, or holding Python objects.
    """
    try:
        with opened_file(path) as stream:
            if zipfile.is_zipfile(stream):
                return _members(stream, path, names)
            size = path.stat().st_size
            if size < _SMALL:
                return read_arrays(path)
            stream.seek(0)
            return {"": _mapped(stream, 0, size, str(path))}
    except OSError as error:
        raise unreadable(path, error) from error


def _members(
    stream: IO[bytes], path: Path, names: Container[str] | None
) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    small: set[str] = set()
    try:
        with zipfile.ZipFile(stream) as archive:
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                if names is not None and name not in names:
                    continue
                if entry.file_size < _SMALL:
                    small.add(name)
                elif entry.compress_type == zipfile.ZIP_STORED:
                    found[name] = _stored(stream, entry, f"{path}, {entry.filename}")
                else:
                    found[name] = _unpacked(archive, entry, f"{path}, {entry.filename}")
    except ARCHIVE_FAULTS as error:
        message = f"is no readable .npz file: {error}"
        raise CorruptFileError(message, "save it again with numpy.savez", str(path)) from error
    return {**found, **read_arrays(path, names=small)}


def _stored(stream: IO[bytes], entry: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    """A member where it lies, its checksum looked at once."""
    stream.seek(entry.header_offset)
    magic, name, extra = _LOCAL.unpack(stream.read(_LOCAL.size))
    start = entry.header_offset + _LOCAL.size + name + extra
    if magic != b"PK\3\4" or entry.file_size != entry.compress_size:
        raise CorruptFileError("its entries do not fit their list", "save it again", where)  # noqa: EM101
    stream.seek(start)
    checksum, left = 0, entry.file_size
    while left and (block := stream.read(min(_BLOCK, left))):
        checksum, left = zlib.crc32(block, checksum), left - len(block)
    if left or checksum != entry.CRC:
        raise CorruptFileError("is damaged: its checksum is another", "save it again", where)  # noqa: EM101
    stream.seek(start)
    return _mapped(stream, start, entry.file_size, where)


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    """A compressed member, unpacked to a file that goes when the array does."""
    if entry.file_size > _MOST_UNPACKED:
        message = f"takes {entry.file_size} bytes unpacked; at most {_MOST_UNPACKED} are read"
        raise CorruptFileError(message, "save it with numpy.savez, in parts", where)
    import tempfile  # slow to import, and most arrays are mapped as they lie

    with tempfile.TemporaryFile() as spool:
        with archive.open(entry) as member:
            shutil.copyfileobj(member, spool, _BLOCK)
        size = spool.tell()
        spool.seek(0)
        return _mapped(spool, 0, size, where)


def _mapped(stream: IO[bytes], start: int, size: int, where: str) -> NDArray[Any]:
    """The array that begins at ``start`` of a file, where the stream stands."""
    shape, fortran, dtype = read_header(stream, where)
    offset = stream.tell()
    whole = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    data = memoryview(whole)[offset : start + size]
    return view_of(data, shape, dtype, fortran=fortran, where=where)
