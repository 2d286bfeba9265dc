"""The lock of the cache: builds share it, and clearing the cache requires exclusive access.

An object without a record may be one that a running build is about to use. Each build therefore
holds the shared lock from its first stage to its end. A build that runs nothing does not lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mobileprep.building.pipeline.cache_files import clear_way
from mobileprep.errors import ArtifactError

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
# For directories that others remove; some file systems never allow creating the file.
_MOST_TRIES: Final = 100
_LOCK: Final = "lock"
_FILLED: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})
_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

Release = Callable[[], None]


def share(folder: Path) -> Release:
    """Lock the cache for shared use, and return the release function; wait while it is cleared.

    If the file cannot be created or locked, nothing is locked; recently used entries stay anyway.
    """
    return _held(folder, shared=True, waiting=_keep_waiting) or _nothing


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

    def waiting(pauses: int) -> None:
        if not wait:
            message = "the store is being used by a build"
            raise ArtifactError(message, "try again when it has ended", str(folder))
        if pauses == 1:
            tell(f"waiting for {folder}: it is being used by a build")

    release = _held(folder, shared=False, waiting=waiting) or _nothing
    try:
        yield
    finally:
        release()


def remove_folder(folder: Path) -> None:
    """Remove the directory of a cache that the caller holds exclusively, and its lock last.

    Processes that wait for the lock continue as soon as it is removed, so everything else must be
    gone by then. Files that builds write meanwhile remain, such as notes of builds that run
    nothing.
    """
    for path in sorted(folder.iterdir(), key=lambda path: path.name == _LOCK):
        if path.is_dir() and not path.is_symlink():
            with _filled_anew():
                shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    with _filled_anew():
        folder.rmdir()


@contextlib.contextmanager
def _filled_anew() -> Iterator[None]:
    """Ignore the error if others have added files to a directory, or removed it, meanwhile."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FILLED:
            raise


def _held(folder: Path, *, shared: bool, waiting: Callable[[int], None]) -> Release | None:
    """Acquire the lock and return its release function, or None if locking is not supported."""
    path = folder / _LOCK
    pause, pauses = _FIRST_PAUSE, 0
    while True:
        descriptor = _opened(path)
        if descriptor is None:
            return None
        try:
            locked = try_lock(descriptor, shared=shared)
            if locked and _is_same(descriptor, path):
                held, descriptor = descriptor, -1
                return lambda: os.close(held)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        if locked is None:
            return None
        if not locked:
            waiting(pauses)
            pauses += 1
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _opened(path: Path) -> int | None:
    """Open the lock file, and create it if it is missing; return None if that is not possible."""
    for _ in range(_MOST_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, _FLAGS, 0o666)
        except FileNotFoundError:
            continue  # the directory was just removed
        except OSError:
            if not _made_way(path):
                return None
    return None


def _made_way(path: Path) -> bool:
    """Remove a symlink or directory at the path of the lock; return whether there was one."""
    try:
        if path.is_symlink():
            path.unlink(missing_ok=True)
            return True
        is_folder = path.is_dir()
        if is_folder:
            clear_way(path, path.parent)
    except OSError:
        return False
    return is_folder


def _is_same(descriptor: int, path: Path) -> bool:
    """Return whether a locked file still has its name and was not removed."""
    try:
        now, held = path.stat(), os.fstat(descriptor)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino)


def _keep_waiting(pauses: int) -> None:
    """Report nothing, because clearing takes only seconds."""


def _nothing() -> None:
    """Release nothing."""


_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})

if sys.platform == "win32":
    import msvcrt
    import os

    # Other processes cannot read locked bytes, so lock one far beyond the end of the file.
    _BYTE = 1 << 30

    def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
        """Lock an open file; return False if another process holds it, None if unsupported."""
        if shared:
            return None
        try:
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
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
