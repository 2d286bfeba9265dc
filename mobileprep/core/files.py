"""Write files atomically, hash them in bounded memory, and keep them inside their directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import re
import shutil
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, BinaryIO, Final

from mobileprep.core.parallel import Tally
from mobileprep.core.paths import (
    LfsPointerError,
    check_replaceable,
    is_stdout,
    links,
    no_folder_above,
    opened,
    opened_file,
    takes_a_stream,
)
from mobileprep.errors import ArtifactError, CorruptFileError, MobileprepError, NotDownloadedError

HASHING: Final = Tally("hashing", "bytes")
"""Activity name for hashing, for progress displays."""
_BLOCK = 1 << 20
# Large enough that a hashing thread seldom waits for the GIL.
_HASHED_AT_ONCE = 4 << 20
# Temporary names are longer than final names, which can have the maximum length.
_MAX_NAME_BYTES = 80
"""Maximum bytes of the final name in a temporary name."""
_TEMPORARY: Final = re.compile(r"\.(.+)\.[0-9a-f]{16}", re.DOTALL)
_FICLONE = 0x40049409  # linux/fs.h
NONSENSE: Final = (
    *(ValueError, TypeError, LookupError, AttributeError),
    *(OverflowError, RecursionError),
)
"""Exceptions from reading JSON with an unexpected structure."""


def canonical(data: object) -> str:
    """Return JSON with sorted keys and no spaces: equal data has equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def sha256_bytes(data: bytes | memoryview) -> str:
    """Return the hex digest of bytes."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the hex digest of a file, read in blocks of 4 MiB."""
    try:
        with opened_file(path) as stream:
            return sha256_stream(stream)
    except OSError as error:
        raise unreadable(path, error) from error


def sha256_stream(stream: BufferedReader | RawIOBase) -> str:
    """Return the hex digest of the rest of a file, read in blocks of 4 MiB."""
    digest = hashlib.sha256()
    size = os.fstat(stream.fileno()).st_size
    buffer = bytearray(max(min(size, _HASHED_AT_ONCE), 1 << 12))
    view = memoryview(buffer)
    while count := stream.readinto(buffer):
        digest.update(view[:count])
        HASHING.add(count)
    return digest.hexdigest()


def unreadable(path: Path, error: OSError) -> CorruptFileError:
    """Return the error for a file that cannot be opened or read."""
    if isinstance(error, LfsPointerError):
        message = "is a Git LFS pointer, not the file itself"
        return NotDownloadedError(message, "run `git lfs pull`", str(path))
    if isinstance(error, IsADirectoryError):
        from mobileprep.core.paths import directory_error  # Only needed for errors.

        return directory_error(path)
    reason = error.strerror or str(error)
    return CorruptFileError(f"cannot be read: {reason}", "check the path and its rights", str(path))


def read_bytes(path: Path, *, limit: int | None = None) -> bytes:
    """Read the bytes of a file.

    Args:
        path: path of the file.
        limit: maximum number of bytes, or None.

    Raises:
        CorruptFileError: if the file cannot be read, or is larger than the limit.
    """
    try:
        with opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if limit is not None and size > limit:
                message = f"is {size} bytes long; at most {limit} are read here"
                raise CorruptFileError(message, "name a smaller file", str(path))
            if size or limit is None:
                return stream.read()
            # Devices and pipes have no size, and may never end.
            data = bytearray()
            while block := stream.read(_BLOCK):
                data += block
                if len(data) > limit:
                    message = f"is longer than the {limit} bytes that are read here"
                    raise CorruptFileError(message, "name a smaller file", str(path))
            return bytes(data)
    except OSError as error:
        raise unreadable(path, error) from error


class _Memory(threading.local):
    """The buffer of a thread, reused because allocating memory takes as long as reading."""

    def __init__(self) -> None:
        self.block = memoryview(bytearray(_BLOCK))


_here: Final = _Memory()


def read_blocks(path: Path) -> Iterator[memoryview]:
    """Yield a file in blocks of up to 1 MiB, each valid until the thread reads the next one.

    Writing these blocks takes two thirds of the time of writing a map of the file: Linux clears the
    target pages in advance if the source pages are not mapped yet.
    """
    try:
        with path.open("rb", buffering=0) as stream:
            while count := stream.readinto(_here.block):
                yield _here.block[:count]
    except OSError as error:
        raise unreadable(path, error) from error


def read_file(path: Path, *, limit: int) -> bytes:
    """Return the bytes of a regular file, without waiting for a pipe or a device."""
    try:
        with opened_file(path) as stream:
            if os.fstat(stream.fileno()).st_size <= limit:
                return stream.read()
    except OSError as error:
        raise unreadable(path, error) from error
    message = f"is longer than {limit} bytes"
    raise CorruptFileError(message, "remove it", str(path))


@contextlib.contextmanager
def atomic_writer(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a binary stream whose content replaces ``path`` when the block ends without error.

    If ``path`` is not a regular file, the content is written to it then.

    Args:
        follow: write to the target of a symlink, and to FIFOs and character devices. Otherwise
            the file replaces a symlink.
    """
    try:
        if follow and is_stdout(path):
            with _streamed() as stream:
                yield stream
                _to_stdout(stream)
            return
        target = links(path)[-1] if follow else path
        if follow and takes_a_stream(target, path):
            with _streamed() as stream:
                yield stream
                with target.open("wb") as device:
                    _copy(stream, device)
            return
        check_replaceable(target, path, follow=follow)
        with _replacing(target) as stream:
            yield stream
    except MobileprepError:
        raise
    except OSError as error:
        if isinstance(error, BrokenPipeError) and follow and is_stdout(path):
            raise
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ArtifactError:
    """Return the error for a file that cannot be written."""
    obstacle = no_folder_above(path)
    if obstacle is not None:
        message = f"cannot be written: {obstacle} is not a directory"
        return ArtifactError(message, "remove it, or write elsewhere", str(path))
    message = f"cannot be written: {error.strerror or error}"
    return ArtifactError(message, "check the disk's space and rights", str(path))


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    temporary = path.with_name(_temporary_name(path.name))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as stream:
            yield stream
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def check_name(path: Path) -> None:
    """Check that ``path`` does not exist or can be replaced with a file."""
    try:
        check_replaceable(path, path, follow=False)
    except OSError as error:
        raise _unwritable(path, error) from error


def check_writable(path: Path) -> None:
    """Check that a file at ``path`` can be written or replaced, without leaving a trace."""
    check_name(path)
    temporary = path.with_name(_temporary_name(path.name))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.open("xb").close()
        temporary.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


@contextlib.contextmanager
def _streamed() -> Iterator[BinaryIO]:
    """Yield a temporary file for content that must not be written before it is complete."""
    import tempfile  # Slow to import, and rarely needed.

    with tempfile.TemporaryFile() as spool:
        yield spool


def _to_stdout(spool: BinaryIO) -> None:
    out = getattr(sys.stdout, "buffer", None)
    if out is None:
        message = "cannot be written: it is closed"
        raise ArtifactError(message, "name a file instead", "the standard output")
    try:
        sys.stdout.flush()
        _copy(spool, out)
        out.flush()
    except OSError:
        # Otherwise, Python would fail again when it flushes the buffer at exit, and change the exit
        # code.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _copy(spool: BinaryIO, out: IO[bytes]) -> None:
    spool.seek(0)
    shutil.copyfileobj(spool, out, _BLOCK)


def write_bytes(
    path: Path, data: bytes | Iterable[bytes | memoryview], *, follow: bool = True
) -> None:
    """Write bytes, or an iterable of pieces, atomically; see ``atomic_writer``."""
    with atomic_writer(path, follow=follow) as stream:
        if isinstance(data, bytes):
            stream.write(data)
        else:
            stream.writelines(data)


def write_new(path: str, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file to an existing directory like ``atomic_writer``, in a third of the time.

    For the many files of a cache: symlinks and existing files are not checked.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, _temporary_name(name))  # noqa: PTH118 - a tenth of the time
    try:
        with open(temporary, "xb", buffering=0) as stream:  # noqa: PTH123 - the same
            for piece in pieces:
                _write_all(stream, memoryview(piece))
        os.replace(temporary, path)  # noqa: PTH105 - the same
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108 - the same
        raise


def _write_all(stream: RawIOBase, rest: memoryview) -> None:
    while len(rest):
        rest = rest[stream.write(rest) :]


def _temporary_name(name: str) -> str:
    # tempfile would create private files, but outputs need the permissions of the user's umask,
    # which threads cannot read without changing it.
    return f".{_short_name(name)}.{os.urandom(8).hex()}"


def unfinished(folder: Path, names: Collection[str]) -> list[str]:
    """Return files in a directory that killed processes were about to rename to one of ``names``.

    The caller must ensure that no process is writing them.
    """
    short_names = {_short_name(name) for name in names}
    try:
        files = sorted(path.name for path in folder.iterdir())
    except (OSError, ValueError):
        return []  # It does not exist yet, or the name is not valid.
    matches = ((name, _TEMPORARY.fullmatch(name)) for name in files)
    return [name for name, match in matches if match is not None and match[1] in short_names]


def remove_file(path: Path) -> None:
    """Remove a file or symlink if it exists."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if not os.path.lexists(path):
            return
        message = f"cannot be removed: {error.strerror}"
        raise ArtifactError(message, "check the rights of its folder", str(path)) from error


def _short_name(name: str) -> str:
    return name.encode("utf-8", "ignore")[:_MAX_NAME_BYTES].decode("utf-8", "ignore")


def write_text(path: Path, text: str, *, follow: bool = True) -> None:
    """Write UTF-8 text without changing line ends; see ``atomic_writer``."""
    write_bytes(path, text.encode("utf-8"), follow=follow)


def place(source: Path, target: Path) -> None:
    """Copy ``source`` to ``target`` atomically; replace a symlink.

    With a hard link, an edit of the target would change the source. If the file system can share
    blocks between files (copy-on-write), no bytes are copied.
    """
    with atomic_writer(target, follow=False) as stream:
        if not _share_blocks(source, stream.fileno()):
            stream.writelines(read_blocks(source))


def _share_blocks(source: Path, target: int) -> bool:
    """Share the blocks of a file with an empty one (Linux's FICLONE); return whether it worked."""
    if not sys.platform.startswith("linux"):
        return False
    import fcntl  # Not available on Windows.

    try:
        with source.open("rb", buffering=0) as origin:
            fcntl.ioctl(target, _FICLONE, origin.fileno())
    except OSError:
        return False
    return True


def inside(folder: Path, name: str) -> Path:
    """Return ``folder / name`` with symlinks resolved, and check that it is inside the directory.

    Raises:
        ArtifactError: if it is not.
    """
    return _below(_resolved(folder), name, folder)


def _resolved(path: Path) -> Path:
    """Resolve the symlinks of a path."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        message = f"cannot be used for outputs: {getattr(error, 'strerror', None) or error}"
        raise ArtifactError(message, "name another folder", str(path)) from error


def _below(root: Path, name: str, folder: Path) -> Path:
    """Like ``inside``, for a directory ``root`` with resolved symlinks."""
    path = _resolved(root / name)
    if path == root or root in path.parents:
        return path
    message = f"the name {name!r} leads out of the folder"
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ArtifactError(message, "use a relative name without '..'", str(folder))
    message = f"{message} by a link"
    raise ArtifactError(message, "remove the link, or name the folder behind it", str(folder))


def file_inside(folder: Path, name: str) -> Path:
    """Return the path of a file in a directory, whose parent directories must not be symlinks.

    The file itself may be a symlink, to be replaced or removed.

    Raises:
        ArtifactError: if the name leads out of the directory or through a symlink.
    """
    parent, last = Path(name).parent, Path(name).name
    root = _resolved(folder)
    # For most files, this is the directory itself; avoid resolving it again.
    above = root if parent == Path() else _below(root, str(parent), folder)
    if last in ("", "..") or above != root / parent:
        message = f"the name {name!r} is that of no file here, or leads through a link"
        raise ArtifactError(message, "remove the link", str(folder))
    return above / last


_SMALL: Final = 4 << 20
"""Reading this many bytes takes about a millisecond."""


def view_file(path: Path) -> memoryview:
    """Return the read-only bytes of a file: read if it is small, otherwise mapped.

    If another program truncates a mapped file in place, this process may crash.
    """
    try:
        with opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if 0 < size <= _SMALL:  # A device has no size, and may never end.
                return memoryview(stream.read(size))
    except OSError as error:
        raise unreadable(path, error) from error
    return map_file(path)


def map_file(path: Path) -> memoryview:
    """Map a file read-only; an empty file results in an empty view.

    The map exists as long as a view of it.
    """
    try:
        with opened(path) as stream:
            if not stream.seek(0, 2):
                return memoryview(b"")
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise unreadable(path, error) from error


def release_pages(mapped: mmap.mmap) -> None:
    """Release the pages of a map from this process; the system may keep them in its cache."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
