from __future__ import annotations

import pytest

from mobileprep.formats.checkpoint_reader import slice_key


def signed(value: int) -> bytes:
    """Return the encoding of one number in a key."""
    key = slice_key("", [(value, 0)])
    return key.removeprefix(b"\0\0\1\1\1").removesuffix(b"\x80")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "80"),
        (-1, "7f"),
        (63, "bf"),
        (-64, "40"),
        (64, "c040"),
        (-65, "3fbf"),
        (-0x800, "3800"),
        (0x424242, "f0424242"),
        ((1 << 62) - 1, "ffbfffffffffffffff"),
        (1 << 62, "ffc04000000000000000"),
        ((1 << 63) - 1, "ffc07fffffffffffffff"),
    ],
)
def test_numbers_are_encoded_as_in_tensorflow(value, expected):
    assert signed(value).hex() == expected


def test_encoded_numbers_sort_like_their_values():
    values = sorted({s * ((1 << b) + d) for b in range(62) for d in (-1, 0, 1) for s in (-1, 1)})
    codes = [signed(v) for v in values]
    assert codes == sorted(codes)


@pytest.mark.parametrize(
    ("name", "extents", "expected"),
    [
        ("w", [(0, 2), (0, -1)], b"\0" + b"w\0\1" + b"\1\2" + b"\x80\x82" + b"\x80\x7f"),
        ("step", [], b"\0step\0\1\0"),
        ("a\0b", [], b"\0a\0\xffb\0\1\0"),
    ],
    ids=["matrix", "scalar", "escaped"],
)
def test_key_has_zero_name_rank_and_extents(name, extents, expected):
    assert slice_key(name, extents) == expected
