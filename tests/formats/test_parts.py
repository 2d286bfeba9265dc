"""Indexes of files that are stored in parts."""

from __future__ import annotations

import random

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.parts import (
    FILE,
    GRAPH,
    Part,
    between_bytes,
    index_bytes,
    index_kind,
    read_between,
    read_index,
)

PARTS = (Part("ab" * 32, 70_000), Part("01" * 32, 1 << 40))


def test_index_has_parts_and_a_body() -> None:
    parts, body = read_index(index_bytes(GRAPH, PARTS, [b"bo", b"dy"]), "f")
    assert parts == PARTS
    assert bytes(body) == b"body"


def test_index_kind_is_detected_from_the_header() -> None:
    assert index_kind(index_bytes(GRAPH, (), [])) == GRAPH
    assert index_kind(index_bytes(FILE, (), [])) == FILE
    assert index_kind(b"") is None
    assert index_kind(b"mobileprep graph 2\n") is None
    with pytest.raises(CorruptFileError, match="is not an index of parts"):
        read_index(index_bytes(GRAPH, (), []), "f", FILE)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"only"],
        [PARTS[0]],
        [PARTS[0], PARTS[0]],
        [b"a", PARTS[0], b"b", b"c", PARTS[1], b"d"],
        [PARTS[1], b"x" * 200, PARTS[0]],
    ],
)
def test_pieces_are_read_in_order(pieces: list[bytes | Part]) -> None:
    joined: list[bytes | Part] = []
    for piece in pieces:
        if joined and isinstance(piece, bytes) and isinstance(joined[-1], bytes):
            joined[-1] += piece
        else:
            joined.append(piece)
    result = read_between(between_bytes(pieces), "f")
    assert [p if isinstance(p, Part) else bytes(p) for p in result] == joined


def test_damaged_index_is_refused_or_read_within_bounds() -> None:
    rng = random.Random(3)
    whole = between_bytes([b"a" * 40, PARTS[0], b"b" * 300, PARTS[1], b"c"])
    for _ in range(500):
        data = bytearray(whole[: rng.randrange(len(whole) + 1)])
        for _ in range(rng.randrange(3)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            pieces = list(read_between(bytes(data), "f"))
        except CorruptFileError as error:
            assert error.where.startswith("f")
        else:
            assert sum(len(p) for p in pieces if not isinstance(p, Part)) <= len(data)
