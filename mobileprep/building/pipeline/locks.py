"""Locks of output directories and of the cache, which the system releases when a process ends.

Only one build at a time works on an output directory. The lock of ``out/digits/phone`` is the file
``out/digits/.phone.lock``. It is next to the directory, so that it works for every process that can
publish there, whatever its cache, and is never shipped. It exists while a build runs and names the
process.

Builds share the cache, and clearing it requires exclusive access: an object without a record may be
one that a running build is about to use. Each build therefore holds the shared lock from its first
stage to its end. A build that runs nothing does not lock.

Where the file system has no locks, or the file cannot be created, nothing is locked.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from mobileprep.errors import ArtifactError

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_LONGEST_HOLDER: Final = 400
_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_FILLED: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})
_STORE_LOCK: Final = "lock"

Release = Callable[[], None]


@contextlib.contextmanager
def folder_locks(
    folders: Iterable[Path], *, wait: bool, tell: Callable[[str], None]
) -> Iterator[bool]:
    """Lock output directories, so that no other build works on them.

    All builds lock directories in the same order, so that two builds never wait for each other.

    Args:
        folders: output directories.
        wait: wait for other builds instead of failing.
        tell: receives a message before a longer wait.

    Yields:
        Whether this build waited for another one, so that earlier checks may be outdated.

    Raises:
        ArtifactError: another build holds a lock and ``wait`` is not set, or locking failed.
    """
    is_wait = False
    files: set[tuple[int, int]] = set()
    with contextlib.ExitStack() as stack:
        for folder in sorted({Path(os.path.realpath(f)) for f in folders}, key=str):
            path, pauses = lock_file(folder), 0
            # Unlike Path, os.path does not raise for names that are too long.
            new_folders = [p for p in folder.parents if not os.path.exists(p)]  # noqa: PTH110
            stack.callback(_remove_empty, new_folders)
            while (descriptor := _locked(path, files)) is None:
                holder = _holder(path)
                if not wait:
                    message = f"it is being worked on by {holder}"
                    raise ArtifactError(message, "build again when it has ended", str(folder))
                if pauses == 1:  # short waits are not reported
                    tell(f"waiting for {folder}: it is being worked on by {holder}")
                _pause(pauses)
                pauses += 1
            is_wait |= pauses > 0
            if descriptor >= 0:
                files.add(_identity(os.fstat(descriptor)))
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, _this_process().encode())
                stack.callback(_remove, path, descriptor)
        yield is_wait


def lock_file(folder: Path) -> Path:
    """Return the path of the lock file of a directory."""
    return folder.with_name(f".{folder.name}.lock")


def share(folder: Path) -> Release:
    """Lock the cache for shared use, and return the release function; wait while it is cleared."""
    pauses = 0
    while (descriptor := _locked(folder / _STORE_LOCK, shared=True)) is None:
        _pause(pauses)
        pauses += 1
    held = descriptor
    return lambda: None if held < 0 else os.close(held)


@contextlib.contextmanager
def alone(folder: Path, *, wait: bool, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the cache exclusively.

    Args:
        folder: directory of the cache format.
        wait: wait for builds that use the cache instead of failing.
        tell: receives a message if waiting takes longer.

    Raises:
        ArtifactError: a build uses the cache and ``wait`` is not set.
    """
    pauses = 0
    while (descriptor := _locked(folder / _STORE_LOCK)) is None:
        if not wait:
            message = "the store is being used by a build"
            raise ArtifactError(message, "try again when it has ended", str(folder))
        if pauses == 1:
            tell(f"waiting for {folder}: it is being used by a build")
        _pause(pauses)
        pauses += 1
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove the directory of a cache that the caller holds exclusively, and its lock last.

    Processes that wait for the lock continue as soon as it is removed, so everything else must be
    gone by then. Files that builds write meanwhile remain, such as notes of builds that run
    nothing.
    """
    for path in sorted(folder.iterdir(), key=lambda path: path.name == _STORE_LOCK):
        if path.is_dir() and not path.is_symlink():
            with _ignore_new_files():
                shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    with _ignore_new_files():
        folder.rmdir()


@contextlib.contextmanager
def _ignore_new_files() -> Iterator[None]:
    """Ignore the error if others have added files to a directory, or removed it, meanwhile."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FILLED:
            raise


def _locked(
    path: Path, files: Iterable[tuple[int, int]] = (), *, shared: bool = False
) -> int | None:
    """Open and lock a file.

    Args:
        path: the lock file, which is created if it is missing.
        files: device and inode of files that this build has locked already; a case-insensitive
            file system may have one directory under two names.
        shared: allow other shared locks at the same time.

    Returns:
        The descriptor; -1 if locking is not possible or not necessary; None if another process
        holds the lock, or has just removed the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, _FLAGS, 0o666)
        except PermissionError:  # another user's file, which can be locked as well
            descriptor = os.open(path, _FLAGS & ~(os.O_RDWR | os.O_CREAT))
    except OSError as error:
        if error.errno in _NO_DESCRIPTORS:
            message = f"cannot be locked: {error.strerror}"
            hint = "allow more open files (ulimit -n), or build fewer targets at once"
            raise ArtifactError(message, hint, str(path)) from error
        return -1
    answer: int | None = -1
    try:
        if _identity(os.fstat(descriptor)) not in files:
            locked = try_lock(descriptor, shared=shared)
            if locked and _identity(os.fstat(descriptor)) == _identity(path.stat()):
                answer, descriptor = descriptor, -1
            elif locked is not None:
                answer = None
    except FileNotFoundError:  # the previous holder has just removed the file
        answer = None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return answer


def _identity(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino


def _pause(pauses: int) -> None:
    time.sleep(min(_FIRST_PAUSE * 2 ** min(pauses, 10), _LONGEST_PAUSE))


def _remove(path: Path, descriptor: int) -> None:
    # Remove the file while it is locked; afterwards it could belong to another process. Windows
    # cannot remove open files.
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(descriptor)
    if os.name == "nt":
        with contextlib.suppress(OSError):
            path.unlink()


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove new directories, innermost first, so that a failed build leaves none behind."""
    with contextlib.suppress(OSError):
        for path in folders:
            path.rmdir()


def _this_process() -> str:
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return f"process {os.getpid()} on {host} since {since} ({_command(sys.argv)})\n"


def _holder(path: Path) -> str:
    """Return the process that a lock file names, sanitized for the terminal."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_LONGEST_HOLDER).decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return "".join(c if c.isprintable() else "?" for c in text) or "another process"


def _command(arguments: list[str]) -> str:
    """Return a command line without the values of ``--set``, which may be secret."""
    words = [Path(arguments[0]).name if arguments else ""]
    for before, word in itertools.pairwise(arguments):
        if before == "--set":
            word = f"{word.partition('=')[0]}=..."
        elif word.startswith("--set="):
            word = "--set=..."
        words.append(word)
    return " ".join(words)[: _LONGEST_HOLDER // 2]


_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})

if sys.platform == "win32":
    import msvcrt

    # Other processes cannot read locked bytes, so lock one far beyond the end of the file.
    _BYTE = 1 << 30

    def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
        """Lock an open file; return False if another process holds it, None if unsupported."""
        if shared:
            return None
        try:
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            os.lseek(descriptor, 0, os.SEEK_SET)
        except OSError as error:
            return False if error.errno in _HELD else None
        return True

else:
    import fcntl

    def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
        """Lock an open file; return False if another process holds it, None if unsupported.

        Args:
            descriptor: the open file.
            shared: allow other shared locks at the same time.
        """
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            return False if error.errno in _HELD else None
        return True
