"""64-bit string hashes, compared with other implementations."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mobileprep.ops.numerics.hashes import combined_fingerprints, fingerprint64, hash64, siphash

# From pyfarmhash 0.5.1: lengths on both sides of each branch.
FARM = [
    (0, 0x9AE16A3B2F90404F),
    (1, 0x47A24C13B17E583E),
    (3, 0xFEB131561A2BD698),
    (4, 0x8FD621A0F3742315),
    (7, 0x450F716FCC086588),
    (8, 0xA480377E34C0CB71),
    (16, 0x6DB589255DE83EB6),
    (17, 0x4E5A2DB5DFFB0B77),
    (32, 0x5B9CB5E962205658),
    (33, 0x0E1A36BA3BA0B5ED),
    (64, 0xC6CD88AA0853D537),
    (65, 0x5DDC093A4AC452FA),
    (128, 0x912D9C93577A7B39),
    (129, 0x450830686644EBB5),
    (300, 0xD4EF992B0082E52A),
]
# From siphash24 1.9; the value for 15 bytes is in the appendix of the paper.
SIP = [
    (0, 0x726FDB47DD0E0E31),
    (1, 0x74F839C593DC67FD),
    (7, 0xAB0200F58B01D137),
    (8, 0x93F5F5799A932462),
    (9, 0x9E0082DF0BA9E4B0),
    (15, 0xA129CA6149BE45E5),
    (16, 0x3F2ACC7F57C29BDB),
    (40, 0x0E3EA96B5304A7D0),
]
MASK = (1 << 64) - 1


def farm_text(length: int) -> bytes:
    return bytes((i * i + length) % 256 for i in range(length))


@pytest.mark.parametrize(("length", "expected"), FARM)
def test_fingerprint_is_farmhash(length: int, expected: int) -> None:
    assert fingerprint64([farm_text(length)]).tolist() == [expected]


def test_fingerprints_of_many_lengths() -> None:
    result = fingerprint64([farm_text(length) for length, _ in FARM])
    assert result.tolist() == [expected for _, expected in FARM]
    assert fingerprint64([]).shape == (0,)


@pytest.mark.parametrize(("length", "expected"), SIP)
def test_siphash(length: int, expected: int) -> None:
    low = int.from_bytes(bytes(range(8)), "little")
    high = int.from_bytes(bytes(range(8, 16)), "little")
    assert siphash([bytes(range(length))], (low, high)).tolist() == [expected]


def test_siphash_of_many_strings() -> None:
    key = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
    result = siphash([bytes(range(length)) for length, _ in SIP], key)
    assert result.tolist() == [expected for _, expected in SIP]


def expected_cat(first: int, second: int) -> int:
    """``FingerprintCat64`` on Python integers."""
    multiplier = 0xC6A4A7935BD1E995

    def mixed(x: int) -> int:
        return x ^ x >> 47

    hash_ = first ^ multiplier
    hash_ ^= mixed(second * multiplier & MASK) * multiplier & MASK
    hash_ = hash_ * multiplier & MASK
    hash_ = mixed(hash_) * multiplier & MASK
    return mixed(hash_)


def test_combined_fingerprints() -> None:
    pairs = [(0, 0), (1, 2), (MASK, 1 << 63), (0x0123456789ABCDEF, 0xFEDCBA9876543210)]
    first, second = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    result = combined_fingerprints(first, second)
    assert result.tolist() == [expected_cat(a, b) for a, b in pairs]


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
