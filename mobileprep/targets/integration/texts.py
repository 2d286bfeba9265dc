"""Format strings and numbers as literals, and names as identifiers, of programming languages.

Names in a graph are arbitrary. Only the output of this module gets into code.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from typing import Final

import numpy as np

from mobileprep.errors import UnsupportedError

# Letters, digits, and characters without a special meaning in string literals.
_SAFE: Final = frozenset(
    map(ord, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _-./:,;()[]@+=#%&*|~^")
)
_WORD: Final = re.compile(r"[A-Za-z0-9]+")


class Code(str):
    """Code that is safe to write without quoting."""

    __slots__ = ()


def java_text(text: str) -> Code:
    """Format a Java string literal.

    Escapes below U+0100 are octal, because Java replaces ``\\u000a`` by a line break before it
    parses quotes.
    """
    return _quoted(_java_unit(unit) for unit in _utf16(text))


def kotlin_text(text: str) -> Code:
    """Format a Kotlin string literal, in which ``$`` starts a template."""
    return _quoted(chr(u) if u in _SAFE else f"\\u{u:04x}" for u in _utf16(text))


def swift_text(text: str) -> Code:
    """Format a Swift string literal, in which ``\\(`` starts an expression.

    Lone surrogates are replaced.
    """
    points = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _quoted(c if ord(c) in _SAFE else f"\\u{{{ord(c):x}}}" for c in points)


def c_text(text: str) -> Code:
    """Format a C++ or Objective-C++ string literal, with the bytes of the string in UTF-8.

    Escapes are octal with three digits, because ``\\x`` escapes have no maximum length.
    """
    data = text.encode("utf-8", "surrogateescape")
    return _quoted(chr(byte) if byte in _SAFE else f"\\{byte:03o}" for byte in data)


def shell_text(text: str) -> Code:
    """Format a word of a POSIX shell."""
    return Code(shlex.quote(text))


def float_text(value: float) -> Code:
    """Format a float32 literal for all languages except Swift."""
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if not math.isfinite(single):
        message = f"{value!r} is not a float32 number"
        raise UnsupportedError(message, "give 'mean' and 'std' as numbers that are")
    return Code(f"{single!s}f")


def number_text(value: float) -> Code:
    """Format a float32 literal for Swift."""
    return Code(float_text(value).removesuffix("f"))


def dims_text(shape: Iterable[int]) -> Code:
    """Format sizes, separated by commas."""
    return Code(", ".join(str(int(size)) for size in shape))


def words_of(names: Iterable[str], suffix: str) -> list[tuple[str, ...]]:
    """Return unique words for the identifiers of tensors, followed by a suffix.

    The words are from the last component of the name, ``Reshape_1`` of ``Logits/Reshape_1``, if it
    is unique, else from the whole name.
    """
    listed = list(names)
    short = [_words(name.rpartition("/")[2]) for name in listed]
    folded = ["".join(words).casefold() for words in short]
    used_words: set[str] = set()
    identifiers = []
    for name, words, key in zip(listed, short, folded, strict=True):
        own = words if folded.count(key) == 1 else _words(name)
        unique, number = own, 1
        while "".join(unique).casefold() in used_words:
            number += 1
            unique = (*own, str(number))
        used_words.add("".join(unique).casefold())
        identifiers.append((*unique, suffix))
    return identifiers


def pascal(words: Iterable[str]) -> Code:
    """Join words as ``ImageInput``."""
    return Code("".join(word[:1].upper() + word[1:] for word in words))


def camel(words: Iterable[str]) -> Code:
    """Join words as ``imageInput``."""
    joined = pascal(words)
    return Code(joined[:1].lower() + joined[1:])


def upper(words: Iterable[str]) -> Code:
    """Join words as ``IMAGE_INPUT``."""
    return Code("_".join(words).upper())


def snake(words: Iterable[str]) -> Code:
    """Join words as ``image_input``."""
    return Code("_".join(words).lower())


def _quoted(pieces: Iterable[str]) -> Code:
    return Code(f'"{"".join(pieces)}"')


def _words(name: str) -> tuple[str, ...]:
    words = tuple(_WORD.findall(name))
    return words if words and words[0][0].isalpha() else ("tensor", *words)


def _utf16(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]


def _java_unit(unit: int) -> str:
    if unit in _SAFE:
        return chr(unit)
    return f"\\{unit:03o}" if unit < 256 else f"\\u{unit:04x}"
