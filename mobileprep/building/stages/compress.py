"""The compress stage: how long the model file is as app packages store it."""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from mobileprep.building.plan.fingerprints import LEVEL
from mobileprep.building.plan.records import CompressRecord
from mobileprep.building.plan.stages import CompressStage
from mobileprep.building.stages.base import Job, stage
from mobileprep.core.parallel import cores
from mobileprep.graph.serde import graph_to_pieces, raw_chunks
from mobileprep.graph.statistics import without_statistics

_BLOCK: Final = 4 << 20
# The size of each call of zlib: with its result it stays in the processor's cache.
_SLICE: Final = 1 << 20
# Bytes of a block that decide whether zlib searches it for repetitions.
_PROBE: Final = 1 << 17
_MIN_GAIN: Final = 0.01
# Deflate without the header and checksum of the zlib format.
_RAW: Final = -15
# The header of the zlib format, an empty last block, and the checksum.
FRAME: Final = 2 + 2 + 4


@stage(CompressStage)
def run(job: Job[CompressStage]) -> None:
    """Leaves ``compress.json``."""
    asked = job.asked
    size = compressed_size(_model(job))
    job.write_record(asked.RECORD, CompressRecord(size, asked.compressor))


def _model(job: Job[CompressStage]) -> Iterator[bytes | memoryview]:
    """The bytes of the model file, as the package stage leaves it."""
    asked = job.asked
    if asked.graph is None:
        assert asked.model is not None
        return job.data(asked.model)
    return raw_chunks(graph_to_pieces(without_statistics(job.graph(asked.graph))))


def compressed_size(pieces: Iterable[bytes | memoryview]) -> int:
    """Return the size in bytes of a file in the zlib format.

    Blocks are compressed in parallel, as ``pigz --independent`` does. Joined, they are one stream
    that is about 0.001 % longer than without the division.
    """
    blocks = _cut(pieces, _BLOCK)
    first = next(blocks, [])
    if sum(map(len, first)) < _BLOCK:
        return FRAME + (_deflated(first) if first else 0)
    workers = cores()
    size = FRAME
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for block in itertools.chain([first], blocks):
            waiting.append(pool.submit(_deflated, block))
            # So many that no processor waits, and so few that little is held.
            if len(waiting) > 2 * workers:
                size += waiting.popleft().result()
        return size + sum(future.result() for future in waiting)


def _deflated(block: Sequence[memoryview]) -> int:
    slices = [np.concatenate([np.frombuffer(p, np.uint8) for p in x]) for x in _cut(block, _SLICE)]
    packer = _packer(_strategy(slices))
    size = sum(len(packer.compress(part.data)) for part in slices)
    return size + len(packer.flush(zlib.Z_FULL_FLUSH))


def _strategy(slices: Sequence[np.ndarray[Any, Any]]) -> int:
    """Search for repetitions only where it helps: in dense weights it is most of the work."""
    middle = slices[len(slices) // 2][:_PROBE]
    sizes = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        packer = _packer(strategy)
        sizes.append(len(packer.compress(middle.data)) + len(packer.flush()))
    repeats = sizes[0] < sizes[1] * (1 - _MIN_GAIN)
    return zlib.Z_DEFAULT_STRATEGY if repeats else zlib.Z_HUFFMAN_ONLY


def _packer(strategy: int) -> zlib._Compress:
    return zlib.compressobj(LEVEL, wbits=_RAW, memLevel=9, strategy=strategy)


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
