"""Damage bytes and text of any format."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

NUMBERS = (0, 1, 2, 3, 7, 64, 65, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**62)
_VARINTS = (b"\x00", b"\x7f", b"\xff\xff\xff\xff\x07", b"\xff" * 9 + b"\x01", b"\xff" * 11)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_./]*")
ODD_STRINGS = (
    b"", b" ", b"-1", b"0", b"nan", b"inf", b"-inf", b"1e400", b"null", b"~", b"[]", b"{}", b"true",
    b"\x00", b"\x1b[31m", b"\xff\xfe", b"..", b"/", b"../x", b"/dev/zero", b"a" * 5000,
    b"9223372036854775808", b"4611686018427387904", "ü\u202e".encode(), b"x:1", b"^x",
    b":", b"'", b'"',
)  # fmt: skip


def flip(data: bytearray, rng: random.Random) -> None:
    """Flip a bit."""
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite(data: bytearray, rng: random.Random) -> None:
    """Overwrite one to eight bytes with a number."""
    at, size = rng.randrange(len(data)), rng.choice((1, 2, 4, 8))
    number = rng.choice(NUMBERS) % (1 << 8 * size)
    data[at : at + size] = number.to_bytes(size, rng.choice(("little", "big")))


def varint(data: bytearray, rng: random.Random) -> None:
    """Insert a varint that is too large or does not end."""
    at = rng.randrange(len(data))
    data[at : at + 1] = rng.choice(_VARINTS)


def cut(data: bytearray, rng: random.Random) -> None:
    """Cut off the end."""
    del data[rng.randrange(len(data)) :]


def remove(data: bytearray, rng: random.Random) -> None:
    """Remove a run of bytes."""
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 8, 64, 512))]


def repeat(data: bytearray, rng: random.Random) -> None:
    """Repeat a run of bytes, sometimes many times."""
    at = rng.randrange(len(data))
    run = bytes(data[at : at + rng.choice((1, 2, 8, 64, 512))])
    data[at:at] = run * rng.choice((1, 1, 1, 2, 100))


def fill(data: bytearray, rng: random.Random) -> None:
    """Overwrite a run of bytes with one value."""
    at, size = rng.randrange(len(data)), rng.choice((1, 4, 16, 256))
    data[at : at + size] = bytes([rng.choice((0, 255, 128, 10))]) * size


_BYTES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip, flip, overwrite, overwrite, varint, cut, remove, repeat, fill,
)  # fmt: skip


def damaged_bytes(data: bytes, rng: random.Random, most: int = 4) -> bytes:
    """Apply one to ``most`` changes."""
    out = bytearray(data)
    for _ in range(rng.randint(1, most)):
        if not out:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(16)))
        rng.choice(_BYTES)(out, rng)
    return bytes(out)


def damaged_text(text: bytes, rng: random.Random, words: tuple[bytes, ...] = ()) -> bytes:
    """Replace numbers, words, and lines, and sometimes bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice((_numbers, _words, _words, _lines, _odd))(text, rng, words)
    return damaged_bytes(text, rng, 2) if rng.random() < 0.1 else text


def _numbers(text: bytes, rng: random.Random, _words: tuple[bytes, ...]) -> bytes:
    return _replaced(text, _NUMBER, str(rng.choice((-1, 1)) * rng.choice(NUMBERS)).encode(), rng)


def _words(text: bytes, rng: random.Random, words: tuple[bytes, ...]) -> bytes:
    choices = (*words, *_WORD.findall(text))
    return _replaced(text, _WORD, rng.choice(choices or (b"x",)), rng)


def _odd(text: bytes, rng: random.Random, _words: tuple[bytes, ...]) -> bytes:
    return _replaced(text, rng.choice((_WORD, _NUMBER)), rng.choice(ODD_STRINGS), rng)


def _replaced(text: bytes, pattern: re.Pattern[bytes], by: bytes, rng: random.Random) -> bytes:
    matches = list(pattern.finditer(text))
    if not matches:
        return text + by
    chosen = rng.choice(matches)
    return text[: chosen.start()] + by + text[chosen.end() :]


def _lines(text: bytes, rng: random.Random, _words: tuple[bytes, ...]) -> bytes:
    lines = text.splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(rng.randrange(len(lines)), lines[at])
    elif kind == 2:
        lines[at] = b"  " * rng.randint(0, 3) + lines[at].lstrip()
    else:
        lines[at] = lines[at].split(b":")[0] + rng.choice((b":\n", b": []\n", b": {a: b}\n", b"\n"))
    return b"".join(lines)
