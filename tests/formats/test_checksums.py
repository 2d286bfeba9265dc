from __future__ import annotations

import mmap

import numpy as np
import pytest

from mobileprep.formats.checksums import crc32c, mask, masked_crc32c


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
def test_gives_the_published_checksums(data, expected):
    assert crc32c(data) == expected


def test_goes_on_from_a_seed():
    data = np.random.default_rng(1).bytes(10_000)
    assert crc32c(data[4_000:], crc32c(data[:4_000])) == crc32c(data)


def test_takes_views_and_mapped_files(tmp_path):
    data = np.random.default_rng(2).bytes(70_000)
    path = tmp_path / "data"
    path.write_bytes(data)
    with path.open("rb") as stream:
        mapped = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    assert crc32c(mapped) == crc32c(memoryview(data)) == crc32c(data)
    assert crc32c(mapped[1:]) == crc32c(data[1:])


def test_an_empty_view_leaves_the_seed():
    assert crc32c(memoryview(b""), 42) == 42


def test_masks_by_rotation_and_a_constant():
    assert mask(0) == 0xA282EAD8
    assert mask(0x00008000) == 0xA282EAD9  # bit 15 becomes bit 0
    assert mask(1) == (0xA282EAD8 + (1 << 17)) & 0xFFFFFFFF
    assert mask(0xFFFFFFFF) == 0xA282EAD7  # the sum wraps
    assert masked_crc32c(b"6789", crc32c(b"12345")) == mask(0xE3069283)
