from __future__ import annotations

import mmap
import sys

import google_crc32c
import numpy as np
import pytest

from mobileprep.formats import checksums
from mobileprep.formats.checksums import crc32c, mask, masked_crc32c, numpy_crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_checksums(data, expected):
    assert crc32c(data) == expected


def test_checksum_continues_from_a_seed():
    data = np.random.default_rng(1).bytes(10_000)
    assert crc32c(data[4_000:], crc32c(data[:4_000])) == crc32c(data)


def test_views_and_mapped_files(tmp_path):
    data = np.random.default_rng(2).bytes(70_000)
    path = tmp_path / "data"
    path.write_bytes(data)
    with path.open("rb") as stream:
        mapped = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    assert crc32c(mapped) == crc32c(memoryview(data)) == crc32c(data)
    assert crc32c(mapped[1:]) == crc32c(data[1:])


def test_empty_view_returns_the_seed():
    assert crc32c(memoryview(b""), 42) == 42


def test_mask_rotates_and_adds_a_constant():
    assert mask(0) == 0xA282EAD8
    assert mask(0x00008000) == 0xA282EAD9  # bit 15 becomes bit 0
    assert mask(1) == (0xA282EAD8 + (1 << 17)) & 0xFFFFFFFF
    assert mask(0xFFFFFFFF) == 0xA282EAD7  # the sum wraps
    assert masked_crc32c(b"6789", crc32c(b"12345")) == mask(0xE3069283)


# A whole folding window is 138,336 bytes, and the last 45,480 bytes are processed separately.
@pytest.mark.parametrize(
    "size",
    [*range(1, 70), 511, 512, 513, 4096, 65_537, 183_816, 183_817, 183_824, 322_157, 1_000_003],
)
@pytest.mark.parametrize("seed", [0, 0xFFFFFFFF, 0x12345678])
def test_numpy_implementation_matches_the_library(size, seed):
    data = np.random.default_rng(size).integers(0, 256, size + 1, np.uint8)[1:]
    assert numpy_crc32c(seed, data) == google_crc32c.extend(seed, data)


def test_numpy_is_used_if_the_library_is_missing_or_slow(monkeypatch):
    monkeypatch.setattr(google_crc32c, "implementation", "python")
    checksums.implementation.cache_clear()
    try:
        assert checksums.implementation() is numpy_crc32c
        assert crc32c(b"123456789") == 0xE3069283
        monkeypatch.setitem(sys.modules, "google_crc32c", None)
        checksums.implementation.cache_clear()
        assert checksums.implementation() is numpy_crc32c
    finally:
        checksums.implementation.cache_clear()


def test_read_only_input_is_not_changed():
    data = bytes(200_000)
    assert numpy_crc32c(1, np.frombuffer(data, np.uint8)) == google_crc32c.extend(1, data)
    assert data == bytes(200_000)
