"""The compress stage."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.stages.package.run import compressed_size, run_compress
from mobileprep.building.stages.package.spec import CompressStage
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.statistics import (
    ChannelStatistics,
    with_statistics,
    without_statistics,
)
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import job, json_output, slots


def data(size: int) -> bytes:
    return (bytes(i * i % 251 for i in range(1024)) * (size // 1024 + 1))[:size]


def test_record_has_the_size_and_the_compressor(tmp_path: Path) -> None:
    (tmp_path / "model.pb").write_bytes(data(5000))
    stage = CompressStage(compressor="deflate by X 1", **slots("model"))
    done = job(tmp_path, stage, model=tmp_path / "model.pb")
    run_compress(done)
    size = compressed_size([data(5000)])
    assert json_output(done, "compress.json") == {"bytes": size, "compressor": "deflate by X 1"}


def test_size_of_a_graph_without_its_file(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).standard_normal((40, 500)).astype(np.float32)
    node = constant("weights", Tensor.packed(weights))
    statistics = ChannelStatistics(np.zeros(3), np.ones(3))
    graph = Graph([node, with_statistics(constant("bias", Tensor.packed(weights[0])), statistics)])
    stage = CompressStage(compressor="deflate by X 1", **slots("graph"))
    done = job(tmp_path, stage, graph=graph)
    run_compress(done)
    write_graph(tmp_path / "model.pb", without_statistics(graph))
    size = compressed_size([(tmp_path / "model.pb").read_bytes()])
    assert json_output(done, "compress.json")["bytes"] == size


BLOCK = 4 << 20
SLICE = 1 << 20


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK, 9 * BLOCK + 5])
def test_size_is_that_of_a_zlib_stream(size: int) -> None:
    whole = data(size)
    stream = b"\x78\x01"
    for at in range(0, size, BLOCK):
        packer = zlib.compressobj(1, wbits=-15, memLevel=9)
        block = whole[at : at + BLOCK]
        stream += b"".join(packer.compress(block[k : k + SLICE]) for k in range(0, BLOCK, SLICE))
        stream += packer.flush(zlib.Z_FULL_FLUSH)
    stream += b"\x03\x00" + zlib.adler32(whole).to_bytes(4, "big")
    assert zlib.decompress(stream) == whole
    assert compressed_size([whole]) == len(stream)


def test_blocks_add_little_to_the_size() -> None:
    whole = np.random.default_rng(3).standard_normal(3 << 20).astype(np.float32).tobytes()
    packer = zlib.compressobj(1, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    single = len(packer.compress(whole) + packer.flush())
    assert abs(compressed_size([whole]) - single) < single / 10_000


@pytest.mark.parametrize("kind", ["dense", "repeating"])
def test_size_is_near_that_of_the_best_zlib_level(kind: str) -> None:
    rng = np.random.default_rng(4)
    weights = rng.standard_normal(1 << 19).astype(np.float32)
    if kind == "repeating":
        weights = weights[:256][rng.integers(0, 256, 1 << 19)]
    whole = weights.tobytes()
    assert compressed_size([whole]) < 1.1 * len(zlib.compress(whole, 9))


def test_size_does_not_depend_on_the_pieces() -> None:
    whole = data(3 * BLOCK)
    pieces = [whole[:7], whole[7 : 2 * BLOCK + 9], whole[2 * BLOCK + 9 :]]
    assert compressed_size(pieces) == compressed_size([whole])
