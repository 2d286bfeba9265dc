"""TensorFlow's 64-bit hash, compared with a plain MurmurHash64A."""

from __future__ import annotations

import random

import pytest

from mobileprep.ops.numerics.hashes import hash64

MASK = (1 << 64) - 1
MULTIPLIER = 0xC6A4A7935BD1E995


def murmur(data: bytes, seed: int = 0xDECAFCAFFE) -> int:
    hash_ = seed ^ (len(data) * MULTIPLIER & MASK)
    whole = len(data) // 8 * 8
    for start in range(0, whole, 8):
        word = int.from_bytes(data[start : start + 8], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 47) * MULTIPLIER & MASK
        hash_ = (hash_ ^ word) * MULTIPLIER & MASK
    if data[whole:]:
        hash_ = (hash_ ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    hash_ = (hash_ ^ hash_ >> 47) * MULTIPLIER & MASK
    return hash_ ^ hash_ >> 47


@pytest.mark.parametrize("length", [*range(18), 63, 64, 65, 100, (1 << 18) + 9])
def test_hash64(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert hash64(data) == murmur(data)
