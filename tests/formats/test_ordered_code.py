from __future__ import annotations

import pytest

from mobileprep.formats.checkpoint_reader import slice_key


def signed(value: int) -> bytes:
    """The encoding of one number, taken out of a key."""
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
def test_numbers_have_the_bytes_that_tensorflow_gives_them(value, expected):
    assert signed(value).hex() == expected


def test_numbers_sort_as_their_values():
    values = sorted({s * ((1 << b) + d) for b in range(62) for d in (-1, 0, 1) for s in (-1, 1)})
    codes = [signed(v) for v in values]
    assert codes == sorted(codes)


def test_a_key_is_zero_name_rank_and_extents():
    key = slice_key("w", [(0, 2), (0, -1)])
    assert key == b"\0" + b"w\0\1" + b"\1\2" + b"\x80\x82" + b"\x80\x7f"


def test_a_scalar_has_rank_zero():
    assert slice_key("step", []) == b"\0step\0\1\0"


def test_zero_bytes_in_names_are_escaped():
    assert slice_key("a\0b", []) == b"\0a\0\xffb\0\1\0"
