from __future__ import annotations

import tracemalloc

import cramjam
import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.snappy import decompress


def packed(data: bytes) -> memoryview:
    return memoryview(bytes(cramjam.snappy.compress_raw(data)))


@pytest.mark.parametrize(
    "data",
    [b"", b"a", bytes(1 << 20), b"abc" * 5_000, np.random.default_rng(0).bytes(100_000)],
    ids=["empty", "one", "zeros", "repeats", "random"],
)
def test_gives_back_what_was_compressed(data):
    assert decompress(packed(data), "file") == data


def test_a_length_beyond_the_format_is_refused_before_it_is_allocated():
    block = memoryview(b"\xff\xff\xff\xff\x0f" + bytes(packed(b"abc" * 1_000))[2:])
    tracemalloc.start()
    with pytest.raises(CorruptFileError, match="4294967295"):
        decompress(block, "file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("cut", [0, 1, 2, 10, -1])
def test_a_truncated_block_is_refused(cut):
    with pytest.raises(CorruptFileError, match="file"):
        decompress(packed(b"abcdefgh" * 100 + b"tail")[:cut], "file")


def test_a_length_too_small_or_too_large_is_refused():
    block = bytes(packed(b"abc" * 20))
    for declared in (59, 61):
        with pytest.raises(CorruptFileError):
            decompress(memoryview(bytes([declared]) + block[1:]), "file")


def test_no_block_holds_more_than_a_message_may():
    """So many compressed bytes could stand for more."""
    block = memoryview(b"\x81\x80\x80\x80\x08" + bytes(101 << 20))
    with pytest.raises(CorruptFileError, match="declare 2147483649"):
        decompress(block, "file")
