"""A file on its way out: read once, and held to its digest before its last bytes leave."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mobileprep.pipeline.remote.faults import LocalError
from mobileprep.pipeline.remote.time_left import TimeLeft

_BLOCK = 1 << 18


def file_size(source: Path) -> int:
    """The length of a file to send.

    Raises:
        LocalError: it cannot be read.
    """
    try:
        return source.stat().st_size
    except OSError as error:
        raise LocalError(error.strerror or str(error)) from error


def file_blocks(name: str, source: Path, size: int, time_left: TimeLeft) -> Iterator[bytes]:
    """The bytes of a file as the entry ``name``.

    The last block comes when all of them are known to be right: a receiver that is promised
    ``size`` bytes and gets fewer keeps none.

    Raises:
        LocalError: the file cannot be read, is not ``size`` bytes long, or is an object whose
            bytes do not have its digest.
    """
    kind, key = PurePosixPath(name).parts
    digest, left = hashlib.sha256(), size
    try:
        with source.open("rb") as stream:
            while left:
                block = stream.read(min(_BLOCK, left))
                digest.update(block)
                left -= len(block)
                if not block or (not left and os.fstat(stream.fileno()).st_size != size):
                    message = f"{source.name} changed while it was sent"
                    raise LocalError(message)
                if not left and kind == "cas" and digest.hexdigest() != key:
                    message = f"the object {key} is damaged"
                    raise LocalError(message)
                yield block
                time_left.moved(len(block))
    except OSError as error:
        raise LocalError(error.strerror or str(error)) from error
