"""The bounded reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mobileprep.errors import CorruptFileError
from mobileprep.formats.wire import Cursor, encode_varint


@given(st.integers(0, 2**64 - 1))
def test_varints_survive_a_round_trip(value: int) -> None:
    cursor = Cursor(encode_varint(value) + b"rest")
    assert cursor.varint() == value
    assert bytes(cursor.take(4)) == b"rest"
    assert not cursor


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x80\x00", 0),
        (b"\x81\x80\x80\x00", 1),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 2**64 - 1),
        # Like protobuf, the reader drops bits beyond the 64th.
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 2**64 - 1),
    ],
)
def test_non_minimal_varints_are_read(data: bytes, value: int) -> None:
    cursor = Cursor(data)
    assert cursor.varint() == value
    assert cursor.position == len(data)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 11])
def test_unterminated_varint_is_refused(data: bytes) -> None:
    cursor = Cursor(b"\x00" + data, 1, file="a.pb", base=100)
    with pytest.raises(CorruptFileError, match="does not end") as caught:
        cursor.varint()
    assert caught.value.where == "a.pb, byte 101"
    assert cursor.position == 1


def test_varint_stops_at_the_explicit_end() -> None:
    with pytest.raises(CorruptFileError, match="does not end"):
        Cursor(b"\x80\x01", end=1).varint()


@pytest.mark.parametrize("count", [4, 1 << 62, -1])
def test_take_beyond_the_end_is_refused(count: int) -> None:
    cursor = Cursor(b"abc")
    with pytest.raises(CorruptFileError, match="where 3 remain"):
        cursor.take(count)
    assert bytes(cursor.take(3)) == b"abc"


def test_end_is_limited_to_the_data() -> None:
    cursor = Cursor(b"abc", end=10)
    assert cursor.end == 3
    with pytest.raises(CorruptFileError):
        cursor.take(4)


def test_take_returns_a_view() -> None:
    data = bytearray(b"abcd")
    view = Cursor(memoryview(data)).take(2)
    data[0] = ord("X")
    assert bytes(view) == b"Xb"


def test_fixed_width_numbers_are_little_endian() -> None:
    cursor = Cursor(b"\x01\x02\x03\x04\xff")
    assert cursor.fixed(4) == 0x04030201
    assert cursor.fixed(1) == 255
    with pytest.raises(CorruptFileError, match="1 bytes are declared where 0 remain"):
        cursor.fixed(1)
