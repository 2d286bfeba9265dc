"""Keeps builds and the clearing of a store apart: builds share its lock, clearing has it alone.

An object that no record needs may be just what a build has found and is about to need: it says so
by the lock that it holds from its first stage to its end. A build that runs nothing takes none.
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
# Of a folder that others remove; on some file systems a file can never be made.
_MOST_TRIES: Final = 100
_LOCK: Final = "lock"
_FILLED: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})
_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

Release = Callable[[], None]


def share(folder: Path) -> Release:
    """Take part in using the store in a folder, once nobody clears it; what ends that.

    Where no file can be made or locked nothing is held: what was used of late is kept all the same.
    """
    return _held(folder, shared=True, waiting=_nobody) or _nothing


@contextlib.contextmanager
def alone(folder: Path, *, wait: bool, tell: Callable[[str], None]) -> Iterator[None]:
    """Have the store in a folder alone."""

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
    """Remove the folder of a store that the caller has alone, its lock last.

    Whoever waits for that lock makes it anew once it is gone, and goes to work: nothing else is to
    be there then. What builds write meanwhile stays, such as the notes of those that run nothing.
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
    """Leaves out the error of a folder that others have filled, or removed, meanwhile."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FILLED:
            raise


def _held(folder: Path, *, shared: bool, waiting: Callable[[int], None]) -> Release | None:
    """The lock's release; None where there are no locks."""
    path = folder / _LOCK
    pause, pauses = _FIRST_PAUSE, 0
    while True:
        descriptor = _opened(path)
        if descriptor is None:
            return None
        try:
            locked = try_lock(descriptor, shared=shared)
            if locked and _is_same(descriptor, path):
                taken, descriptor = descriptor, -1
                return lambda: os.close(taken)
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
    """A descriptor of the lock's file, which is made where it is missing; None where it cannot."""
    for _ in range(_MOST_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, _FLAGS, 0o666)
        except FileNotFoundError:
            continue  # the folder was removed just now
        except OSError:
            if not _made_way(path):
                return None
    return None


def _made_way(path: Path) -> bool:
    """Remove a link or a folder in the place of the lock; whether there was one."""
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
    """Whether a file that was locked still has its name, and was not cleared away."""
    try:
        now, held = path.stat(), os.fstat(descriptor)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino)


def _nobody(pauses: int) -> None:
    """Clearing takes seconds: no words for that wait."""


def _nothing() -> None:
    """Nothing was held."""


_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})

if sys.platform == "win32":
    import msvcrt
    import os

    # Locked bytes cannot be read by others: one far behind what the file holds.
    _BYTE = 1 << 30

    def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
        """Lock an open file unless another process has; None where the system cannot."""
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
        """Lock an open file unless another process has; None where the file system cannot.

        Args:
            descriptor: the file.
            shared: others may have it too who share it.
        """
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            return False if error.errno in _HELD else None
        return True
