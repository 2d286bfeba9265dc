"""Quoted strings of protobuf text."""

from __future__ import annotations

import pytest

from mobileprep.formats.text_fields import literal_end, unescape


def bytes_of(text: bytes) -> bytes:
    return unescape(text, 0, len(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb"plain", b"plain"),
        (rb"\n\t\\\"\'\?", b"\n\t\\\"'?"),
        (rb"\0", b"\0"),
        # An octal escape has at most three digits.
        (rb"\1018", b"A8"),
        (rb"\7", b"\7"),
        (rb"\377", b"\xff"),
        (rb"\xff\xFg", b"\xff\x0fg"),
        (rb"\u00e9", b"\xc3\xa9"),
        (rb"\U0010ffff", b"\xf4\x8f\xbf\xbf"),
        # An escaped backslash does not start an escape.
        (rb"\\101", b"\\101"),
        (rb"\\\101", b"\\A"),
    ],
)
def test_escapes_are_decoded(text: bytes, expected: bytes) -> None:
    assert bytes_of(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rb"\400", r"the escape \400 is beyond one byte"),
        (rb"\777", r"the escape \777 is beyond one byte"),
        (rb"\ud800", r"the escape \ud800 is not a character"),
        (rb"\udfff", r"the escape \udfff is not a character"),
        (rb"\U00110000", r"the escape \U00110000 is not a character"),
        (rb"\q", r"the escape \q is unknown"),
        (b"a\\", "the escape \\ is unknown"),
    ],
)
def test_invalid_escapes_are_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match="escape") as error:
        bytes_of(text)
    assert str(error.value) == message


@pytest.mark.parametrize("code", [0xD7FF, 0xE000])
def test_characters_next_to_the_surrogates_are_valid(code: int) -> None:
    assert bytes_of(rb"\u%04x" % code) == chr(code).encode()


def test_long_strings_are_split_between_escapes() -> None:
    count = 1 << 19
    text = rb"ab\\\101\377c\\\\d\u00e9e"
    assert bytes_of(text * count) == b"ab\\A\xffc\\\\d\xc3\xa9e" * count


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b'"a" "b"', 2),
        (rb'"a\"b"', 5),
        (rb'"a\\" "', 4),
        (rb'"a\\\" "', 7),
        (b"'a\"b'", 4),
        (b'"a', None),
        (b'"a\n"', None),
    ],
)
def test_literal_ends_at_its_quote_on_the_same_line(data: bytes, end: int | None) -> None:
    assert literal_end(data, 0) == end
