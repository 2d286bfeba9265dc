from __future__ import annotations

import tracemalloc

import cramjam
import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.sstable import decompress


def packed(data: bytes) -> memoryview:
    return memoryview(bytes(cramjam.snappy.compress_raw(data)))


@pytest.mark.parametrize(
    "data",
    [b"", b"a", bytes(1 << 20), b"abc" * 5_000, np.random.default_rng(0).bytes(100_000)],
    ids=["empty", "one", "zeros", "repeats", "random"],
)
def test_compressed_data_survives_a_round_trip(data):
    assert decompress(packed(data), "file") == data


def test_excessive_length_is_refused_without_allocation():
    block = memoryview(b"\xff\xff\xff\xff\x0f" + bytes(packed(b"abc" * 1_000))[2:])
    tracemalloc.start()
    with pytest.raises(CorruptFileError, match="4294967295"):
        decompress(block, "file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("cut", [0, 1, 2, 10, -1])
def test_truncated_block_is_refused(cut):
    with pytest.raises(CorruptFileError, match="file"):
        decompress(packed(b"abcdefgh" * 100 + b"tail")[:cut], "file")


def test_wrong_length_is_refused():
    block = bytes(packed(b"abc" * 20))
    for declared in (59, 61):
        with pytest.raises(CorruptFileError):
            decompress(memoryview(bytes([declared]) + block[1:]), "file")


def test_block_larger_than_a_message_is_refused():
    """So many compressed bytes could stand for more."""
    block = memoryview(b"\x81\x80\x80\x80\x08" + bytes(101 << 20))
    with pytest.raises(CorruptFileError, match="declare 2147483649"):
        decompress(block, "file")


def block(length: int, *elements: bytes) -> memoryview:
    return memoryview(bytes([length]) + b"".join(elements))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (block(8, b"\x08abc", b"\x05\x03"), b"abcabcab"),
        (block(8, b"\x08abc", b"\x12\x01\x00"), b"abcccccc"),
        (block(7, b"\x08abc", b"\x0f\x03\x00\x00\x00"), b"abcabca"),
        (block(3, b"\xf0\x02abc"), b"abc"),
        (block(3, b"\xf4\x02\x00abc"), b"abc"),
    ],
    ids=["copy-1", "copy-2", "copy-4", "literal-1", "literal-2"],
)
def test_every_kind_of_element_is_read(stored, expected):
    assert decompress(stored, "file") == expected
    assert bytes(cramjam.snappy.decompress_raw(bytes(stored))) == expected


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (block(8, b"\x08abc", b"\x05\x04"), "leaves the 8 bytes"),
        (block(6, b"\x08abc", b"\x05\x03"), "leaves the 6 bytes"),
        (block(8, b"\x08abc", b"\x05\x00"), "offset 0"),
        (block(8, b"\x20abc"), "leaves the 8 bytes"),
        (block(9, b"\x20abc"), "9 bytes are declared where 3 remain"),
        (block(4, b"\x08abc"), "4 decompressed bytes are declared where 3 come out"),
    ],
)
def test_elements_outside_of_the_block_are_refused(stored, message):
    with pytest.raises(CorruptFileError, match=message):
        decompress(stored, "file")


def test_damaged_blocks_are_handled_as_by_the_library():
    rng = np.random.default_rng(5)
    good = bytes(packed(b"some text that repeats, some text that repeats" * 20 + rng.bytes(50)))
    for _ in range(2000):
        bad = bytearray(good)
        for at in rng.integers(2, len(bad), 2):
            bad[at] = rng.integers(256)
        try:
            expected = bytes(cramjam.snappy.decompress_raw(bytes(bad)))
        except cramjam.DecompressionError:
            expected = None
        try:
            result = bytes(decompress(memoryview(bytes(bad)), "file"))
        except CorruptFileError:
            result = None
        assert result == expected
