"""Quoted strings of protobuf text: where they end, and the bytes that they stand for."""

from __future__ import annotations

import re
from typing import Final

from mobileprep.formats.cursor import Buffer

_ENDS: Final = {ord('"'): re.compile(rb'["\n]'), ord("'"): re.compile(rb"['\n]")}
_BACKSLASH: Final = ord("\\")
_ESCAPE_RUN: Final = re.compile(rb"(?<!\\)\\")
# What Python's own decoder does not read as protobuf does: wide octal, \u, \x with one digit...
_UNUSUAL: Final = re.compile(rb"""\\(?![0-3][0-7][0-7]|[abfnrtv'"])""")
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.)|\Z)",
    re.DOTALL,
)
_SIMPLE: Final = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))

# Long literals (weights) are decoded in pieces of this many bytes, to bound the memory it takes.
_PIECE: Final = 1 << 20


def literal_end(data: Buffer, start: int) -> int | None:
    """The position of the quote that ends the literal opened at ``start``, or None."""
    search = _ENDS[data[start]].search
    found = search(data, start + 1)
    while found is not None and data[found.start()] == data[start]:
        end = back = found.start()
        while data[back - 1] == _BACKSLASH:
            back -= 1
        if (end - back) % 2 == 0:
            return end
        found = search(data, end + 1)
    return None


def unescape(data: Buffer, start: int, end: int) -> bytes:
    """The bytes that the characters ``data[start:end]`` of a literal stand for.

    Raises:
        ValueError: an escape sequence that protobuf does not know.
    """
    if end - start <= _PIECE:
        return _unescape_piece(bytes(data[start:end]))
    out = bytearray()
    while start < end:
        # Where a run of backslashes starts, an escape starts: a safe place to cut.
        cut = _ESCAPE_RUN.search(data, min(start + _PIECE, end), end)
        stop = cut.start() if cut else end
        out += _unescape_piece(bytes(data[start:stop]))
        start = stop
    return bytes(out)


def _unescape_piece(piece: bytes) -> bytes:
    if _BACKSLASH not in piece:
        return piece
    # Once double backslashes are gone, every backslash starts an escape.
    plain = piece.replace(rb"\\", rb"\134")
    if _UNUSUAL.search(plain):
        return _ESCAPE.sub(_one_escape, piece)
    return plain.decode("unicode_escape").encode("latin-1")


def _one_escape(found: re.Match[bytes]) -> bytes:
    octal, short, four, eight, letter = found.groups()
    if octal or short:
        value = int(octal, 8) if octal else int(short, 16)
        if value > 0xFF:
            msg = f"the escape {found[0].decode()} is beyond one byte"
            raise ValueError(msg)
        return bytes([value])
    if four or eight:
        return _utf8(int(four or eight, 16), found[0].decode())
    if letter is None or letter[0] not in _SIMPLE:
        shown = found[0].decode("ascii", "backslashreplace")
        msg = f"the escape {shown} is unknown"
        raise ValueError(msg)
    return bytes([_SIMPLE[letter[0]]])


def _utf8(code: int, shown: str) -> bytes:
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        msg = f"the escape {shown} is no character"
        raise ValueError(msg)
    return chr(code).encode("utf-8")
