"""Reading and writing memory-mapped packages."""

from __future__ import annotations

import struct

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.memmapped import (
    ALIGNMENT,
    GRAPH_REGION,
    PREFIX,
    Directory,
    ends_as_package,
    read_package,
)
from mobileprep.formats.protos import memmapped_pb2 as pb

REGIONS = [("a", b"x" * 70), ("b", b"y" * 128), (".", b"graph")]


def package() -> bytes:
    directory, pieces = Directory(), []
    for name, body in REGIONS:
        pieces += [directory.add(PREFIX + name, len(body), aligned=name != "."), body]
    return b"".join([*pieces, directory.serialized()])


def with_directory(*elements: tuple[int, str, int]) -> bytes:
    """Return 200 bytes of regions, a directory, and its offset."""
    listed = pb.MemmappedFileSystemDirectory()
    for offset, name, length in elements:
        listed.element.add(offset=offset, name=name, length=length)
    return bytes(200) + listed.SerializeToString() + struct.pack("<Q", 200)


def test_package_survives_a_round_trip() -> None:
    data = package()
    assert ends_as_package(data)
    regions = read_package(data, "m.pb")
    assert [(n.removeprefix(PREFIX), bytes(r.view)) for n, r in regions.items()] == REGIONS
    assert [r.offset for r in regions.values()] == [0, 128, 256]
    assert all(r.offset % ALIGNMENT == 0 for n, r in regions.items() if n != GRAPH_REGION)
    assert struct.unpack("<Q", data[-8:]) == (261,)


def test_region_without_a_length_ends_at_the_next_region() -> None:
    regions = read_package(with_directory((0, PREFIX + "a", 0), (64, GRAPH_REGION, 0)), "m.pb")
    assert [len(r.view) for r in regions.values()] == [64, 136]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"short", "no room for the offset"),
        (bytes(100) + struct.pack("<Q", 1 << 40), "refer to byte 1099511627776"),
        (bytes(100) + struct.pack("<Q", 3), "out of bounds"),
        (with_directory((0, GRAPH_REGION, 9), (0, PREFIX + "a", 9)), "not between the one before"),
        (with_directory((0, GRAPH_REGION, 9), (200, PREFIX + "a", 0)), "not between the one"),
        (with_directory((0, GRAPH_REGION, 9), (1 << 50, PREFIX + "a", 0)), "not between the one"),
        (with_directory((0, GRAPH_REGION, 65), (64, PREFIX + "a", 9)), "runs past byte 64"),
        (with_directory((0, GRAPH_REGION, 201)), "runs past byte 200"),
        (with_directory((0, GRAPH_REGION, 9), (64, GRAPH_REGION, 9)), "twice"),
        (with_directory((0, PREFIX + "a", 9)), "names no graph"),
        (with_directory((0, "/etc/passwd", 9)), "is not a valid region name"),
        (with_directory((0, PREFIX + "a/../b", 9)), "is not a valid region name"),
        (b"\x0a\xff\xff\xff\x7f" + struct.pack("<Q", 0), "too long"),
        (b"\x0a\x04\x12\x09ab" + struct.pack("<Q", 0), "record is none"),
        (b"\x0a\x00" + struct.pack("<Q", 0), "is not a valid region name"),
        (b"\x0a\x05" + struct.pack("<Q", 0), "m.pb, byte"),
    ],
)
def test_invalid_directory_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptFileError) as caught:
        read_package(data, "m.pb")
    assert message in str(caught.value)
    assert "m.pb" in str(caught.value)


def test_truncated_package_is_refused() -> None:
    data = package()
    for length in range(len(data)):
        with pytest.raises(CorruptFileError):
            read_package(data[:length], "m.pb")
