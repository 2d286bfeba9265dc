"""Integers of less than a byte."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.tflite.records import packed, unpacked


def test_first_integer_is_in_the_lowest_bits() -> None:
    assert packed(np.int8([[7, -7, 1]]), 4).tobytes() == bytes([0x97, 0x01])
    assert packed(np.int8([1, -2, 0, -1, 1]), 2).tobytes() == bytes([0b11001001, 1])


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_unpacked_integers_are_those_that_were_packed(bits: int, count: int) -> None:
    levels = np.arange(count, dtype=np.int8) * 3 % (1 << bits) - (1 << (bits - 1))
    stored = packed(levels, bits).tobytes()
    assert len(stored) == -(-count * bits // 8)
    np.testing.assert_array_equal(unpacked(stored, bits, (1, count)), [levels])
