"""Files opened to be read, without waiting for whoever might write to a pipe."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

READ_NOW = os.O_RDONLY | sum(getattr(os, n, 0) for n in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
# Pipes that whoever started the command has put there, as "<(command)" in a shell does.
_OWN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")

_LFS_HEAD = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_MAX_SIZE = 1024  # as Git LFS itself limits them


class LfsPointerError(OSError):
    """A file of a checkout whose content Git LFS has not downloaded."""


def opened(path: Path) -> BufferedReader:
    """A file to read, opened without waiting: a pipe that lies in a folder is refused.

    Raises:
        LfsPointerError: it is a pointer of Git LFS.
        OSError: it cannot be opened, or is a pipe or a socket.
    """
    descriptor = os.open(path, READ_NOW)
    status = os.fstat(descriptor)
    mode = status.st_mode
    if stat.S_ISFIFO(mode) and not str(path).startswith(_OWN_PIPES):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a pipe, and no file", str(path))
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    os.set_blocking(descriptor, True)
    stream = os.fdopen(descriptor, "rb")
    may_be_pointer = stat.S_ISREG(mode) and status.st_size < _LFS_MAX_SIZE
    if may_be_pointer and stream.peek(len(_LFS_HEAD)).startswith(_LFS_HEAD):
        stream.close()
        raise LfsPointerError(errno.EINVAL, "it is a Git LFS pointer", str(path))
    return stream


def opened_file(path: Path) -> BufferedReader:
    """A regular file to read, opened without waiting: a device may never end.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    stream = opened(path)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is a device, and no file", str(path))
    return stream
