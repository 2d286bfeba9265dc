"""Regular expressions as TensorFlow runs them: by RE2, or by Python's ``re`` within a bound.

RE2 takes time linear in a text's length. Python's engine tries one way after another to match, so
a pattern may take exponential time; one that could is refused before it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import AnyStr, Generic, Protocol, TypeVar

from msgspec import Struct

from mobileprep.core.limits import STEP, spend
from mobileprep.errors import UnsupportedError
from mobileprep.ops.numerics.allocation import check_bytes
from mobileprep.ops.numerics.backtracking import doublings
from mobileprep.ops.numerics.re2_in_python import INSTALL, differs, translated

# About a thousand million steps: some 20 seconds, and far less for all but hostile patterns.
_MOST_DOUBLINGS = 30
# Operations that a step takes at most: such texts may be many.
_STEP = 1 << 7
# Of what a text becomes, between two looks at whether it fits.
_LOOK = 1 << 20
_LONGEST_CHARACTER = 4
# Bytes of memory of two pieces beside what is in them.
_PIECES = 82
_Text = TypeVar("_Text", str, bytes, covariant=True)
_REWRITE = re.compile(rb"\\(.?)|[^\\]+", re.DOTALL)


class PatternMatch(Protocol[_Text]):
    """One match."""

    def start(self) -> int: ...

    def end(self) -> int: ...

    def group(self, number: int, /) -> _Text | None: ...


class CompiledPattern(Protocol[AnyStr]):
    """A compiled pattern of either engine."""

    @property
    def groups(self) -> int: ...

    def search(self, text: AnyStr, position: int, /) -> PatternMatch[AnyStr] | None: ...

    def fullmatch(self, text: AnyStr, /) -> PatternMatch[AnyStr] | None: ...


class Expression(Struct, Generic[AnyStr], frozen=True):
    """A regular expression, whichever engine runs it.

    Args:
        engine: the compiled pattern.
        read: makes what the engine searches of a text's bytes.
        written: the inverse of ``read``.
        character: how long the character at a position of such a text is.
    """

    engine: CompiledPattern[AnyStr]
    read: Callable[[bytes], AnyStr]
    written: Callable[[AnyStr], bytes]
    character: Callable[[AnyStr, int], int]

    def matches(self, text: bytes) -> bool:
        """Whether the whole of a text matches."""
        return self.engine.fullmatch(self.read(text)) is not None

    def is_in(self, text: bytes) -> bool:
        """Whether any part of a text matches."""
        return self.engine.search(self.read(text), 0) is not None

    def replaced(self, rewrite: bytes, text: bytes, *, everywhere: bool) -> bytes:
        """A text with the first match, or every match, rewritten.

        Args:
            rewrite: what takes the place of a match, with ``\\1`` for its first group.

        Source: ``RE2::GlobalReplace``: a match of nothing right after a match does not count.
        """
        searched = self.read(text)
        pieces: list[bytes] = []
        position, last = 0, -1
        made = looked_at = 0
        while position <= len(searched):
            if made - looked_at > _LOOK:
                check_bytes(made, "what the text becomes")
                looked_at = made
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
            made += len(pieces[-1]) + len(pieces[-2]) + _PIECES
            last = match.end()
            if not everywhere:
                break
        return b"".join(pieces) + self.written(searched[position:])

    def _rewritten(self, rewrite: bytes, match: PatternMatch[AnyStr]) -> bytes:
        pieces: list[bytes] = []
        for part in _REWRITE.finditer(rewrite):
            kind = part[1]
            if kind is None or kind == b"\\":
                pieces.append(b"\\" if kind else part[0])
            elif kind.isdigit() and int(kind) <= self.engine.groups:
                group = match.group(int(kind))
                pieces.append(b"" if group is None else self.written(group))
            else:
                message = f"the replacement {decoded(rewrite)!r} names a group that is not there"
                raise ValueError(message)
        return b"".join(pieces)


@lru_cache(maxsize=256)
def compiled(pattern: bytes) -> Expression[bytes] | Expression[str]:
    """A pattern of RE2's syntax, for RE2 where it is installed."""
    try:
        import re2  # rarely needed
    except ImportError:
        return python_expression(pattern)
    return re2_expression(pattern, re2)


def re2_expression(pattern: bytes, re2: ModuleType) -> Expression[bytes]:
    """A pattern for RE2, given its module."""
    options = re2.Options()
    options.log_errors = False
    try:
        return Expression(re2.compile(pattern, options), bytes, bytes, _character)
    except re2.error as error:
        raise _malformed(pattern, decoded(error.args[0])) from error


def python_expression(pattern: bytes) -> Expression[str]:
    """A pattern for Python's engine."""
    python = translated(decoded(pattern))
    try:
        engine = re.compile(python, re.ASCII)
    except re.error as error:
        raise _malformed(pattern, str(error)) from error

    def read(text: bytes) -> str:
        found = decoded(text)
        if differs(decoded(pattern), found):
            message = f"the regular expression {decoded(pattern)!r} needs RE2 for the text {text!r}"
            raise UnsupportedError(message, INSTALL)
        ways = doublings(python, len(found))
        if ways > _MOST_DOUBLINGS:
            message = (
                f"the regular expression {decoded(pattern)!r} may take very long "
                f"on a text of {len(found)} characters"
            )
            raise UnsupportedError(message, INSTALL)
        spend(_STEP * 2.0**ways, "the regular expression")
        return found

    return Expression(engine, read, encoded, lambda _text, _position: 1)


def _malformed(pattern: bytes, why: str) -> ValueError:
    return ValueError(f"the regular expression {decoded(pattern)!r} is not understood: {why}")


def _character(text: bytes, position: int) -> int:
    """How many bytes the character at a position takes; one that is no UTF-8 takes one."""
    for size in range(1, _LONGEST_CHARACTER + 1):
        try:
            text[position : position + size].decode()
        except UnicodeDecodeError:
            continue
        return size
    return 1


def decoded(text: bytes) -> str:
    """Bytes as text, those that are no UTF-8 as lone surrogates."""
    return text.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """The inverse of ``decoded``."""
    return text.encode("utf-8", "surrogateescape")
