"""The compress stage: how long the model file is as app packages store it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from isal import isal_zlib

from mobileprep.plan.records import CompressRecord
from mobileprep.plan.stages import CompressStage
from mobileprep.stages.base import Job, stage

_BLOCK: Final = 1 << 20


@stage(CompressStage)
def run(job: Job[CompressStage]) -> None:
    """Leaves ``compress.json``."""
    asked = job.asked
    size = compressed_size(job.data(asked.model), asked.level)
    job.write_record(asked.RECORD, CompressRecord(size, asked.compressor))


def compressed_size(pieces: Iterable[bytes | memoryview], level: int) -> int:
    """The bytes of a file under deflate, as the zlib format holds it, by ISA-L at a level.

    zlib's level 9, which most packagers use, comes out some percent smaller and takes a hundred
    times as long.
    """
    packer = isal_zlib.compressobj(level)
    size = sum(len(packer.compress(block)) for block in _blocks(pieces))
    return size + len(packer.flush())


def _blocks(pieces: Iterable[bytes | memoryview]) -> Iterator[bytearray]:
    """The bytes of pieces in blocks of one length, for the blocks decide the size a little."""
    block = bytearray()
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest):
            room = _BLOCK - len(block)
            block += rest[:room]
            rest = rest[room:]
            if len(block) == _BLOCK:
                yield block
                block = bytearray()
    yield block
