"""Locks on open files by the system's own calls, which end with the process that holds them."""

from __future__ import annotations

import errno
import sys

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
