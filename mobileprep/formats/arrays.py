"""Arrays from ``.npz`` and ``.npy`` files, every size checked before it is allocated."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from mobileprep.errors import CorruptFileError
from mobileprep.fsio import unreadable

_HINT = "save it again with numpy.savez"


def read_arrays(path: Path, *, limit: int = 1 << 32) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file by name; of an ``.npy`` file under the empty name.

    Args:
        path: the file, told apart by its content.
        limit: the most bytes that all arrays together may take.

    Raises:
        CorruptFileError: missing, damaged, holding Python objects, or larger than ``limit``.
    """
    try:
        with path.open("rb") as stream:
            if zipfile.is_zipfile(stream):
                return _read_zip(stream, path, limit)
            stream.seek(0)
            return {"": _read_array(stream, path.stat().st_size, limit, str(path))}
    except OSError as error:
        raise unreadable(path, error) from error


def write_arrays(target: Path | IO[bytes], arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays as ``.npz`` to a file or a stream; equal arrays give equal bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            body = io.BytesIO()
            npy.write_array(body, np.asarray(arrays[name]), allow_pickle=False)
            # ZipInfo without a time gives 1980: nothing of the moment goes into the file.
            entry = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(entry, body.getvalue(), zipfile.ZIP_DEFLATED, 6)


def _read_zip(stream: IO[bytes], path: Path, limit: int) -> dict[str, NDArray[Any]]:
    arrays = {}
    try:
        with zipfile.ZipFile(stream) as archive:
            for entry in archive.infolist():
                where = f"{path}, {entry.filename}"
                with archive.open(entry) as member:
                    array = _read_array(member, entry.file_size, limit, where)
                limit -= array.nbytes
                arrays[entry.filename.removesuffix(".npy")] = array
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        msg = f"is no readable .npz file: {error}"
        raise CorruptFileError(msg, _HINT, str(path)) from error
    return arrays


def _read_array(stream: IO[bytes], size: int, limit: int, where: str) -> NDArray[Any]:
    try:
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
    except (ValueError, EOFError) as error:
        msg = f"is no array file: {error}"
        raise CorruptFileError(msg, _HINT, where) from error
    if dtype.hasobject:
        raise CorruptFileError("holds Python objects, which are not read", _HINT, where)  # noqa: EM101
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > min(size, limit):
        message = f"declares {wanted} bytes, with {size} there and {limit} allowed"
        raise CorruptFileError(message, _HINT, where)
    data = stream.read(wanted)
    if len(data) < wanted:
        message = f"ends after {len(data)} of {wanted} bytes"
        raise CorruptFileError(message, _HINT, where)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
