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


def opened(path: Path) -> BufferedReader:
    """A file to read, opened without waiting: a pipe that lies in a folder is refused.

    Raises:
        OSError: it cannot be opened, or is a pipe or a socket.
    """
    descriptor = os.open(path, READ_NOW)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) and not str(path).startswith(_OWN_PIPES):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a pipe, and no file", str(path))
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


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
