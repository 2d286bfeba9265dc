"""The files that ``benchmark_model`` leaves under ``--output_prefix``: serialized timings."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from mobileprep.core.files import write_bytes
from mobileprep.errors import ArtifactError
from mobileprep.formats.wire import FIXED64, VARINT, delimited, encode_varint


def write_entry(
    prefix: str, name: str, runs: int, seconds: float, throughput: float = -1.0
) -> None:
    """Write a ``BenchmarkEntries`` message with one entry, to a file that must not exist yet.

    Args:
        prefix: what the file's name begins with.
        name: of the benchmark; its slashes become two underscores in the file's name.
        runs: how many there were.
        seconds: of all runs together.
        throughput: megabytes a second, or -1.

    Raises:
        ArtifactError: the file is there, or cannot be written.
    """
    path = Path(prefix + name.replace("/", "__"))
    if os.path.lexists(path):
        message = "is there already"
        raise ArtifactError(message, "remove it, or choose another --output_prefix", str(path))
    count = max(runs, 1)
    entry = delimited(1, name.encode()) + _integer(2, runs)
    entry += _double(3, -1.0 / count) + _double(4, seconds / count) + _double(5, throughput)
    write_bytes(path, delimited(1, entry))


def _integer(number: int, value: int) -> bytes:
    return encode_varint(number << 3 | VARINT) + encode_varint(value)


def _double(number: int, value: float) -> bytes:
    return encode_varint(number << 3 | FIXED64) + struct.pack("<d", value)
