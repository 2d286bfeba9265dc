"""Files written whole or not at all, hashed in bounded memory, and kept inside their folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from mobileprep.errors import ArtifactError, CorruptFileError, MobileprepError

_HASH_BLOCK = 1 << 20
# A temporary name is longer than the final one, which may be as long as the system allows.
_NAME_KEPT = 80


def sha256_bytes(data: bytes | memoryview) -> str:
    """The hex digest of bytes."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """The hex digest of a file's bytes, read in blocks of 1 MiB.

    Raises:
        CorruptFileError: the file is missing or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(_HASH_BLOCK):
                digest.update(block)
    except OSError as error:
        raise unreadable(path, error) from error
    return digest.hexdigest()


def unreadable(path: Path, error: OSError) -> CorruptFileError:
    """The error for a file that the system would not let us read."""
    reason = error.strerror or str(error)
    return CorruptFileError(f"cannot be read: {reason}", "check the path and its rights", str(path))


def read_bytes(path: Path, *, limit: int | None = None) -> bytes:
    """A file's bytes.

    Raises:
        CorruptFileError: missing, unreadable, or longer than ``limit`` bytes.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if limit is not None and size > limit:
                message = f"is {size} bytes long; at most {limit} are read here"
                raise CorruptFileError(message, "name a smaller file", str(path))
            if size or limit is None:
                return stream.read()
            # A device or a pipe tells no size, and may never end.
            data = bytearray()
            while block := stream.read(_HASH_BLOCK):
                data += block
                if len(data) > limit:
                    message = f"is longer than the {limit} bytes that are read here"
                    raise CorruptFileError(message, "name a smaller file", str(path))
            return bytes(data)
    except OSError as error:
        raise unreadable(path, error) from error


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """A binary stream whose bytes take the name ``path`` only when the block ends well.

    Raises:
        ArtifactError: the folder or the file cannot be written.
    """
    # A name of our own rather than tempfile's: its files are private, and outputs take the
    # rights that the user's umask gives, which threads cannot ask for without changing it.
    temporary = path.with_name(f".{path.name[:_NAME_KEPT]}.{os.urandom(8).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as stream:
            yield stream
        temporary.replace(path)
    except MobileprepError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"cannot be written: {reason}"
        raise ArtifactError(message, "check the disk's space and rights", str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_bytes(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write bytes, or the pieces of an iterable in turn, under ``path`` atomically.

    Raises:
        ArtifactError: the file cannot be written.
    """
    with atomic_writer(path) as stream:
        if isinstance(data, bytes):
            stream.write(data)
        else:
            stream.writelines(data)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with its line ends as they are, atomically."""
    write_bytes(path, text.encode("utf-8"))


def place(source: Path, target: Path) -> None:
    """Give ``target`` the bytes of ``source``, atomically, by copy.

    A hard link would let whoever edits the target spoil the source.

    Raises:
        ArtifactError: the target cannot be written.
    """
    with atomic_writer(target) as stream, source.open("rb") as origin:
        shutil.copyfileobj(origin, stream, _HASH_BLOCK)


def inside(folder: Path, name: str) -> Path:
    """``folder / name``, for a name that must not lead out of the folder.

    Raises:
        ArtifactError: an absolute name, or one that climbs out.
    """
    root = folder.resolve()
    path = (root / name).resolve()
    if path != root and root not in path.parents:
        message = f"the name {name!r} leads out of the folder"
        raise ArtifactError(message, "use a relative name without '..'", str(folder))
    return path
