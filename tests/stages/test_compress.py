"""The compress stage."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from isal import isal_zlib

from mobileprep.plan.stages import CompressStage
from mobileprep.stages.compress import compressed_size, run
from tests.stages.jobs import job, left, slots


def data(size: int) -> bytes:
    return (bytes(i * i % 251 for i in range(1024)) * (size // 1024 + 1))[:size]


def test_the_record_has_the_size_and_what_it_is_of(tmp_path: Path) -> None:
    (tmp_path / "model.pb").write_bytes(data(5000))
    asked = CompressStage(compressor="deflate by X 1", level=1, **slots("model"))
    done = job(tmp_path, asked, model=tmp_path / "model.pb")
    run(done)
    size = compressed_size([data(5000)], 1)
    assert left(done, "compress.json") == {"bytes": size, "compressor": "deflate by X 1"}


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_it_is_the_size_of_one_stream_that_zlib_reads(size: int) -> None:
    packer = isal_zlib.compressobj(1)
    blocks = range(0, size, 1 << 20)
    packed = b"".join(packer.compress(data(size)[at : at + (1 << 20)]) for at in blocks)
    packed += packer.flush()
    assert zlib.decompress(packed) == data(size)
    assert compressed_size([data(size)], 1) == len(packed)


def test_how_the_file_is_cut_into_pieces_does_not_matter() -> None:
    whole = data(3 << 20)
    pieces = [whole[:7], whole[7 : 2 << 20], whole[2 << 20 :]]
    assert compressed_size(pieces, 1) == compressed_size([whole], 1)
