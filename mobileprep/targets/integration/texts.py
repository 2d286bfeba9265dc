"""Texts and numbers as literals of a programming language, and names as its identifiers.

A graph's names are whatever its author wrote. Only what passes through here gets into code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from mobileprep.errors import UnsupportedError

# Letters, digits and marks that mean nothing within quotes in any of the languages.
_SAFE: Final = frozenset(
    map(ord, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _-./:,;()[]@+=#%&*|~^")
)
_WORD: Final = re.compile(r"[A-Za-z0-9]+")


class Code(str):
    """A piece of code that is safe to write as it is."""

    __slots__ = ()


def java_text(text: str) -> Code:
    """A string literal of Java.

    Below U+0100 escapes are octal: a ``\\u000a`` would be a line break before Java sees quotes.
    """
    return _quoted(_java_unit(unit) for unit in _utf16(text))


def kotlin_text(text: str) -> Code:
    """A string literal of Kotlin, whose ``$`` begins a template."""
    return _quoted(chr(u) if u in _SAFE else f"\\u{u:04x}" for u in _utf16(text))


def swift_text(text: str) -> Code:
    """A string literal of Swift, whose ``\\(`` begins an expression; it has no lone surrogates."""
    points = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _quoted(c if ord(c) in _SAFE else f"\\u{{{ord(c):x}}}" for c in points)


def c_text(text: str) -> Code:
    """A string literal of C++ and Objective-C++: the bytes of the text in UTF-8.

    Escapes are octal with three digits, since those of ``\\x`` go on as long as digits follow.
    """
    data = text.encode("utf-8", "surrogateescape")
    return _quoted(chr(byte) if byte in _SAFE else f"\\{byte:03o}" for byte in data)


def float_text(value: float) -> Code:
    """A number in single precision, as all of the languages write it."""
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if not math.isfinite(single):
        message = f"{value!r} is not a float32 number"
        raise UnsupportedError(message, "give 'mean' and 'std' as numbers that are")
    return Code(f"{single!s}f")


def number_text(value: float) -> Code:
    """A number in single precision, as Swift writes it."""
    return Code(float_text(value).removesuffix("f"))


def dims_text(shape: Iterable[int]) -> Code:
    """Sizes with commas between them."""
    return Code(", ".join(str(int(size)) for size in shape))


def words_of(names: Iterable[str], suffix: str) -> list[tuple[str, ...]]:
    """The words of an identifier for each tensor's name; no two give the same.

    The last part of a name, ``Reshape_1`` of ``Logits/Reshape_1``, where that is unique among
    them, else all of it.
    """
    listed = list(names)
    short = [_words(name.rpartition("/")[2]) for name in listed]
    folded = ["".join(words).casefold() for words in short]
    taken: set[str] = set()
    found = []
    for name, words, key in zip(listed, short, folded, strict=True):
        own = words if folded.count(key) == 1 else _words(name)
        unique, number = own, 1
        while "".join(unique).casefold() in taken:
            number += 1
            unique = (*own, str(number))
        taken.add("".join(unique).casefold())
        found.append((*unique, suffix))
    return found


def pascal(words: Iterable[str]) -> Code:
    """Words as ``ImageInput``."""
    return Code("".join(word[:1].upper() + word[1:] for word in words))


def camel(words: Iterable[str]) -> Code:
    """Words as ``imageInput``."""
    joined = pascal(words)
    return Code(joined[:1].lower() + joined[1:])


def upper(words: Iterable[str]) -> Code:
    """Words as ``IMAGE_INPUT``."""
    return Code("_".join(words).upper())


def snake(words: Iterable[str]) -> Code:
    """Words as ``image_input``."""
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
