"""Regular expressions as in TensorFlow, run by RE2, or by Python's ``re`` within a limit.

RE2 takes time linear in a string's length. Python's engine backtracks, so a pattern may take
exponential time; such patterns are rejected before they run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import AnyStr, Generic

from msgspec import Struct

from mobileprep.core.limits import STEP, spend
from mobileprep.errors import UnsupportedError
from mobileprep.ops.numerics.allocation import check_bytes

# About a billion steps, or some 20 seconds; all but hostile patterns need far less.
_MOST_DOUBLINGS = 30


# Maximum number of operations of a step; there may be many such strings.
_STEP = 1 << 7


# Number of bytes between two checks of the size.
_LOOK = 1 << 20


_LONGEST_CHARACTER = 4


# Memory overhead of two bytes objects.
_PIECES = 82


_REWRITE = re.compile(rb"\\(.?)|[^\\]+", re.DOTALL)


class Expression(Struct, Generic[AnyStr], frozen=True):
    """A regular expression for either engine.

    Args:
        engine: the compiled pattern; RE2's has the same methods.
        read: converts bytes to the engine's type of string.
        written: the inverse of ``read``.
        character: returns the length of the character at a position of such a string.
    """

    engine: re.Pattern[AnyStr]
    read: Callable[[bytes], AnyStr]
    written: Callable[[AnyStr], bytes]
    character: Callable[[AnyStr, int], int]

    def matches(self, text: bytes) -> bool:
        """Return whether a whole string matches."""
        return self.engine.fullmatch(self.read(text)) is not None

    def is_in(self, text: bytes) -> bool:
        """Return whether any part of a string matches."""
        return self.engine.search(self.read(text), 0) is not None

    def replaced(self, rewrite: bytes, text: bytes, *, everywhere: bool) -> bytes:
        """Rewrite the first match, or every match, of a string.

        Args:
            rewrite: replacement of a match, with ``\\1`` for its first group.

        Source: ``RE2::GlobalReplace``: an empty match right after a match does not count.
        """
        searched = self.read(text)
        pieces: list[bytes] = []
        position, last = 0, -1
        size = looked_at = 0
        while position <= len(searched):
            if size - looked_at > _LOOK:
                check_bytes(size, "the replacement")
                looked_at = size
            spend(STEP, "replacing")
            match = self.engine.search(searched, position)
            if match is None:
                break
            pieces.append(self.written(searched[position : match.start()]))
            position = match.end()
            if match.start() == match.end() == last:
                after = position + self.character(searched, position)
                pieces.append(self.written(searched[position:after]))
                position = after
                continue
            pieces.append(self._rewritten(rewrite, match))
            size += len(pieces[-1]) + len(pieces[-2]) + _PIECES
            last = match.end()
            if not everywhere:
                break
        return b"".join(pieces) + self.written(searched[position:])

    def _rewritten(self, rewrite: bytes, match: re.Match[AnyStr]) -> bytes:
        pieces: list[bytes] = []
        for part in _REWRITE.finditer(rewrite):
            kind = part[1]
            if kind is None or kind == b"\\":
                pieces.append(b"\\" if kind else part[0])
            elif kind.isdigit() and int(kind) <= self.engine.groups:
                group = match.group(int(kind))
                pieces.append(b"" if group is None else self.written(group))
            else:
                message = f"the replacement {decoded(rewrite)!r} names a group that does not exist"
                raise ValueError(message)
        return b"".join(pieces)


@lru_cache(maxsize=256)
def compiled(pattern: bytes) -> Expression[bytes] | Expression[str]:
    """Compile a pattern in RE2's syntax, with RE2 if it is installed."""
    try:
        import re2  # rarely needed
    except ImportError:
        return python_expression(pattern)
    return re2_expression(pattern, re2)


def re2_expression(pattern: bytes, re2: ModuleType) -> Expression[bytes]:
    """Compile a pattern with RE2, given its module."""
    options = re2.Options()
    options.log_errors = False
    try:
        return Expression(re2.compile(pattern, options), bytes, bytes, _character)
    except re2.error as error:
        raise _malformed(pattern, decoded(error.args[0])) from error


def python_expression(pattern: bytes) -> Expression[str]:
    """Compile a pattern for Python's engine."""
    python = translated(decoded(pattern))
    try:
        engine = re.compile(python, re.ASCII)
    except re.error as error:
        raise _malformed(pattern, str(error)) from error

    def read(text: bytes) -> str:
        string = decoded(text)
        if differs(decoded(pattern), string):
            message = f"the regular expression {decoded(pattern)!r} needs RE2 for the text {text!r}"
            raise UnsupportedError(message, INSTALL)
        ways = doublings(python, len(string))
        if ways > _MOST_DOUBLINGS:
            message = (
                f"the regular expression {decoded(pattern)!r} may take very long "
                f"on a text of {len(string)} characters"
            )
            raise UnsupportedError(message, INSTALL)
        spend(_STEP * 2.0**ways, "the regular expression")
        return string

    return Expression(engine, read, encoded, lambda _text, _position: 1)


def _malformed(pattern: bytes, why: str) -> ValueError:
    return ValueError(f"the regular expression {decoded(pattern)!r} is not understood: {why}")


def _character(text: bytes, position: int) -> int:
    """Return the number of bytes of the character at a position; 1 for invalid UTF-8."""
    for size in range(1, _LONGEST_CHARACTER + 1):
        try:
            text[position : position + size].decode()
        except UnicodeDecodeError:
            continue
        return size
    return 1


def decoded(text: bytes) -> str:
    """Decode bytes; invalid UTF-8 becomes lone surrogates."""
    return text.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Encode a string; the inverse of ``decoded``."""
    return text.encode("utf-8", "surrogateescape")


_BACKTRACKING_TOKEN = re.compile(
    r"\\."
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|(?P<flags>\(\?[a-zA-Z-]+\))"
    r"|(?P<open>\((?:\?(?:P<\w+>|[a-zA-Z-]*:))?)"
    r"|(?P<close>\))"
    r"|(?P<bar>\|)"
    r"|(?P<repeat>[*+?]\??|\{(?P<least>\d+)(?P<comma>,)?(?P<most>\d*)\}\??)"
    r"|.",
    re.DOTALL,
)


@dataclass
class _Group:
    """The state of a group while parsing: numbers of ways to match, as powers of two.

    Args:
        alternatives: the complete alternatives.
        parts: the parts of the current alternative.
    """

    alternatives: list[float] = field(default_factory=list)
    parts: list[float] = field(default_factory=list)

    def next_alternative(self) -> None:
        self.alternatives.append(sum(self.parts))
        self.parts = []

    def ways(self) -> float:
        self.next_alternative()
        return _sum(self.alternatives)


@lru_cache(maxsize=1024)
def doublings(pattern: str, length: int) -> float:
    """Return the binary logarithm of an upper bound of the ways to match a string."""
    groups = [_Group()]
    for token in _BACKTRACKING_TOKEN.finditer(pattern):
        if token["open"]:
            groups.append(_Group())
        elif token["close"]:
            inner = groups.pop()
            groups[-1].parts.append(inner.ways())
        elif token["bar"]:
            groups[-1].next_alternative()
        elif token["repeat"] and groups[-1].parts:
            groups[-1].parts.append(_repeated(groups[-1].parts.pop(), token, length))
        elif not token["flags"]:
            groups[-1].parts.append(0.0)
    # A search may start at every character.
    return groups[0].ways() + math.log2(length + 1)


def _repeated(ways: float, token: re.Match[str], length: int) -> float:
    """Return the ways to match a repeated part: every count, and any way for each repetition."""
    least, most = _times(token, length)
    counts = math.log2(max(most - least, 0) + 1)
    return counts if ways == 0 else counts + most * ways


def _times(token: re.Match[str], length: int) -> tuple[int, int]:
    sign = token["repeat"][0]
    if sign == "{":
        least = int(token["least"])
        # In an unbounded repetition, an empty match ends it.
        most = int(token["most"] or (least + length if token["comma"] else least))
        return least, most
    return (1 if sign == "+" else 0), (1 if sign == "?" else length)


def _sum(powers: list[float]) -> float:
    """Return the binary logarithm of a sum of powers of two."""
    largest = max(powers)
    return largest + math.log2(sum(2 ** (power - largest) for power in powers))


# Hint for patterns that Python's engine cannot run.
INSTALL = "install RE2: pip install 'mobileprep[regex]'"


_LONGEST = 1 << 16


_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


_RE2_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|\\x\{(?P<code>[0-9A-Fa-f]{1,6})\}"
    r"|\\(?P<escape>.)"
    r"|(?P<foreign>\(\?(?:[=!>#(]|<[=!]|P[=>])|[*+?}]\+)"
    r"|\[(?P<members>\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*)\]"
    r"|(?P<end>\$)"
    r"|(?P<plain>.)",
    re.DOTALL,
)


_MEMBER = re.compile(
    r"\[:(?P<posix>\^?[a-z]+):\]"
    r"|\\x\{(?P<code>[0-9A-Fa-f]{1,6})\}"
    r"|\\(?P<escape>.)"
    r"|(?P<bracket>\[)"
    r"|(?P<plain>.)",
    re.DOTALL,
)


# Escapes that only one of RE2 and Python's engine has.
_FOREIGN = frozenset("123456789CNPUZpu")


# Differences of the engines: case beyond ASCII, invalid UTF-8, and word boundaries in empty
# strings.
_FOLDS_CASE = re.compile(r"\(\?[a-zA-Z]*i")


_TAKES_ANY = re.compile(r"\.|\[\^|\[:\^|\\[BDSW]")


# Flags within a pattern, which Python's engine accepts only at its start.
_INNER_FLAGS = re.compile(r".(\(\?[a-zA-Z-]+\))", re.DOTALL)


_LONE_BYTE = re.compile("[\udc80-\udcff]")


def differs(pattern: str, text: str) -> bool:
    """Return whether RE2 may find another match in a string than Python's engine.

    Args:
        text: decoded string, with lone surrogates for invalid UTF-8.
    """
    if _FOLDS_CASE.search(pattern) and not (text.isascii() and pattern.isascii()):
        return True
    if _LONE_BYTE.search(text) and _TAKES_ANY.search(pattern):
        return True
    return not text and r"\B" in pattern


def translated(text: str) -> str:
    """Translate a pattern from RE2's syntax to Python's."""
    if len(text) > _LONGEST:
        message = f"a regular expression of {len(text)} characters"
        raise ValueError(message)
    inner = _INNER_FLAGS.search(text)
    if inner:
        raise _refused(inner[1], text)
    # Without flags, RE2's $ matches only the end; Python's also matches before a final newline.
    end = "$" if re.search(r"\(\?[a-zA-Z]*m", text) else r"\Z"
    return "".join(_outside(match, end, text) for match in _RE2_TOKEN.finditer(text))


def _outside(match: re.Match[str], end: str, text: str) -> str:
    """Translate one token outside of character classes, or a whole class."""
    if match["foreign"] is not None:
        raise _refused(match["foreign"], text)
    if match["quoted"] is not None:
        return re.escape(match["quoted"])
    if match["end"] is not None:
        return end
    if match["members"] is not None:
        return f"[{''.join(_member(m, text) for m in _MEMBER.finditer(match['members']))}]"
    return _re2_character(match, text)


def _member(match: re.Match[str], text: str) -> str:
    if match["bracket"] is not None:
        return r"\["
    if match["posix"] is not None:
        if match["posix"] not in _POSIX:
            raise _refused(match[0], text)
        return _POSIX[match["posix"]]
    return _re2_character(match, text)


def _re2_character(match: re.Match[str], text: str) -> str:
    if match["code"] is not None:
        return re.escape(chr(min(int(match["code"], 16), 0x10FFFF)))
    if match["escape"] is None:
        return match[0]
    if match["escape"] in _FOREIGN:
        raise _refused(match[0], text)
    return r"\Z" if match["escape"] == "z" else match[0]


def _refused(part: str, text: str) -> UnsupportedError:
    message = f"{part!r} in the regular expression {text!r} needs RE2"
    return UnsupportedError(message, INSTALL)
