"""The compress stage: how long the model file is as app packages store it."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np
from isal import isal_zlib

from mobileprep.ir.channel_statistics import without_statistics
from mobileprep.ir.serde import graph_to_pieces, raw_chunks
from mobileprep.plan.records import CompressRecord
from mobileprep.plan.stages import CompressStage
from mobileprep.processors import cores
from mobileprep.stages.base import Job, stage

_BLOCK: Final = 4 << 20
# What is handed over at once: with its result it stays in the processor's cache.
_SLICE: Final = 1 << 20
# Without header and checksum.
_RAW: Final = -15
# The header of the zlib format, an empty last block, and the checksum.
FRAME: Final = 2 + 2 + 4


@stage(CompressStage)
def run(job: Job[CompressStage]) -> None:
    """Leaves ``compress.json``."""
    asked = job.asked
    size = compressed_size(_model(job), asked.level)
    job.write_record(asked.RECORD, CompressRecord(size, asked.compressor))


def _model(job: Job[CompressStage]) -> Iterator[bytes | memoryview]:
    """The bytes of the model file, as the package stage leaves it."""
    asked = job.asked
    if asked.graph is None:
        assert asked.model is not None
        return job.data(asked.model)
    return raw_chunks(graph_to_pieces(without_statistics(job.graph(asked.graph))))


def compressed_size(pieces: Iterable[bytes | memoryview], level: int) -> int:
    """The bytes of a file under deflate, as the zlib format holds it, by ISA-L at a level.

    Blocks are compressed on their own, several at once, as pigz does it with ``--independent``:
    joined they make one stream, a hundred-thousandth longer than if each could look back into the
    one before.
    """
    blocks = _cut(pieces, _BLOCK)
    first = next(blocks, [])
    if sum(map(len, first)) < _BLOCK:
        return FRAME + (_deflated(first, level) if first else 0)
    workers = cores()
    size = FRAME
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for block in itertools.chain([first], blocks):
            waiting.append(pool.submit(_deflated, block, level))
            # So many that no processor waits, and so few that little is held.
            if len(waiting) > 2 * workers:
                size += waiting.popleft().result()
        return size + sum(future.result() for future in waiting)


class _Room(threading.local):
    """Where a thread joins slices: to make new memory each time takes as long as to copy."""

    def __init__(self) -> None:
        self.slice = np.empty(_SLICE, np.uint8)


_here: Final = _Room()


def _deflated(block: Sequence[memoryview], level: int) -> int:
    packer = isal_zlib.compressobj(level, wbits=_RAW)
    # Joined here, not where blocks are cut: numpy lets other threads run while it copies.
    size = 0
    for parts in _cut(block, _SLICE):
        joined = _here.slice[: sum(map(len, parts))]
        np.concatenate([np.frombuffer(part, np.uint8) for part in parts], out=joined)
        size += len(packer.compress(joined))
    return size + len(packer.flush(isal_zlib.Z_FULL_FLUSH))


def _cut(pieces: Iterable[bytes | memoryview], length: int) -> Iterator[list[memoryview]]:
    """The bytes of pieces, cut to one length, the last shorter; each is a list of its parts.

    What compresses them depends on where they are cut, so that is where the bytes say, not where
    pieces end.
    """
    parts: list[memoryview] = []
    room = length
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest):
            parts.append(rest[:room])
            rest = rest[room:]
            room -= len(parts[-1])
            if not room:
                yield parts
                parts, room = [], length
    if parts:
        yield parts
