from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.sstable import SortedTable
from mobileprep.formats.wire import encode_varint
from tests.formats.checkpoint_writer import (
    MAGIC,
    assemble,
    block,
    footer,
    handle,
    masked,
    sealed,
    table,
)

ENTRIES = [(f"layer{i // 4:02d}/weights_{i:03d}".encode(), bytes([i]) * i) for i in range(60)]


def opened(data: bytes) -> SortedTable:
    return SortedTable(memoryview(data), "t.index")


@given(
    entries=st.dictionaries(st.binary(max_size=12), st.binary(max_size=40), max_size=60),
    per_block=st.integers(1, 20),
    restart_every=st.integers(1, 20),
    method=st.sampled_from([0, 1]),
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_every_entry_is_read_in_order(entries, per_block, restart_every, method):
    listed = sorted(entries.items())
    result = opened(table(listed, per_block=per_block, restart_every=restart_every, method=method))
    assert list(result) == listed
    assert all(result.get(key) == value for key, value in listed)


def test_missing_key_gives_none():
    result = opened(table(ENTRIES))
    for key in (b"", b"layer00/weights_0000", b"zzz", b"layer14/weights_059x"):
        assert result.get(key) is None


def test_values_of_uncompressed_blocks_are_views_of_the_file():
    data = memoryview(table(ENTRIES))
    assert SortedTable(data, "t").get(ENTRIES[7][0]).obj is data.obj


def test_separators_between_blocks():
    data = assemble([(b"b", sealed(block([(b"a1", b"x")]))), (b"d", sealed(block([(b"c", b"y")])))])
    assert list(opened(data)) == [(b"a1", b"x"), (b"c", b"y")]
    assert opened(data).get(b"b") is None


@pytest.mark.parametrize("method", [2, 7, 255])
def test_unknown_compression_is_refused(method):
    data = assemble([(b"k", sealed(block([(b"k", b"v")]), method))])
    with pytest.raises(UnsupportedError, match=f"method {method}"):
        list(opened(data))


def test_every_truncation_is_refused():
    data = table(ENTRIES)
    for length in range(len(data)):
        with pytest.raises(CorruptFileError, match=r"t\.index"):
            opened(data[:length])


def test_every_flipped_bit_is_detected_or_harmless():
    data = table(ENTRIES[:20])
    padding = range(len(data) - 48, len(data) - len(MAGIC))
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                entries = list(opened(bytes(damaged)))
            except CorruptFileError:
                continue
            assert position in padding, f"byte {position}"
            assert entries == ENTRIES[:20]


def one_block(body: bytes, separator: bytes = b"z") -> bytes:
    return assemble([(separator, sealed(body))])


def entry(shared: int, own: bytes, value: bytes) -> bytes:
    head = encode_varint(shared) + encode_varint(len(own)) + encode_varint(len(value))
    return head + own + value


RESTARTS = bytes(4) + (1).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"abc", "4 bytes are declared"),
        (entry(0, b"a", b"") + (9).to_bytes(4, "little"), "restart points"),
        (entry(1, b"a", b"") + RESTARTS, "shares 1 bytes with one of 0"),
        (entry(0, b"b", b"") + entry(0, b"a", b"") + RESTARTS, "do not increase"),
        (entry(0, b"b", b"") + entry(1, b"", b"") + RESTARTS, "do not increase"),
        (b"\0\1\x7fa" + RESTARTS, "127 bytes are declared where 0 remain"),
        (b"\xff" * 12 + RESTARTS, "does not end"),
    ],
)
def test_invalid_block_is_refused(body, message):
    with pytest.raises(CorruptFileError, match=message):
        list(opened(one_block(body)))


def test_keys_outside_of_their_block_are_refused():
    after = one_block(block([(b"z1", b"")]), separator=b"z")
    before = assemble([(b"m", sealed(block([(b"a", b"")]))), (b"z", sealed(block([(b"m", b"")])))])
    for data in (after, before):
        with pytest.raises(CorruptFileError, match="belong elsewhere"):
            list(opened(data))


def test_index_with_a_duplicate_block_is_refused():
    body = sealed(block([(b"a", b"")]))
    meta = sealed(block([]))
    place = handle(0, len(body) - 5)
    index = block([(b"b", place), (b"c", place)], 1)
    start = len(body) + len(meta)
    tail = footer(handle(len(body), len(meta) - 5), handle(start, len(index)))
    with pytest.raises(CorruptFileError, match="overlap"):
        opened(body + meta + sealed(index) + tail)


@pytest.mark.parametrize("place", [handle(1 << 63, 8), handle(0, 1 << 62), handle(5, 400)])
def test_block_outside_of_the_file_is_refused(place):
    meta = sealed(block([]))
    with pytest.raises(CorruptFileError, match="does not fit"):
        opened(meta + footer(handle(0, len(meta) - 5), place))


def test_meta_index_is_verified():
    meta = bytearray(sealed(block([])))
    index = sealed(block([], 1))
    tail = footer(handle(0, len(meta) - 5), handle(len(meta), len(index) - 5))
    assert list(opened(bytes(meta) + index + tail)) == []
    meta[0] ^= 1
    with pytest.raises(CorruptFileError, match=r"byte 0: .*checksum"):
        opened(bytes(meta) + index + tail)


def test_key_length_is_limited():
    body = b"".join(entry(i, b"a", b"") for i in range(100_000)) + RESTARTS
    data = one_block(body)
    tracemalloc.start()
    with pytest.raises(CorruptFileError, match="longer than any"):
        list(opened(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(data)


def test_checksum_must_include_the_compression_type():
    body = block([(b"a", b"")])
    wrong = body + b"\0" + masked(body)  # Without the compression type.
    with pytest.raises(CorruptFileError, match="checksum"):
        list(opened(assemble([(b"a", wrong)])))
