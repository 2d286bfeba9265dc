"""RE2's regular expressions, which TensorFlow uses, put into Python's notation.

Python's engine is not linear in the length of the text, as RE2's is: a pattern made for that
purpose can take very long.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mobileprep.errors import UnsupportedError

_LONGEST = 1 << 16
_REWRITE = re.compile(r"\\(.?)|[^\\]+", re.DOTALL)

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
_TOKEN = re.compile(
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
# Escapes that RE2 has and Python's engine does not, or the other way round.
_FOREIGN = frozenset("123456789CNPUZpu")


@lru_cache(maxsize=256)
def compiled(pattern: bytes) -> re.Pattern[str]:
    """A pattern of RE2's syntax, for texts decoded by ``decoded``.

    Raises:
        UnsupportedError: the pattern uses what only one of the engines has.
        ValueError: it is malformed.
    """
    text = decoded(pattern)
    if len(text) > _LONGEST:
        message = f"a regular expression of {len(text)} characters"
        raise ValueError(message)
    # Without flags RE2's dollar is the end of the text, Python's also before a last line end.
    end = "$" if re.search(r"\(\?[a-zA-Z]*m", text) else r"\Z"
    try:
        return re.compile("".join(_outside(f, end, text) for f in _TOKEN.finditer(text)), re.ASCII)
    except re.error as error:
        message = f"the regular expression {text!r} is not understood: {error}"
        raise ValueError(message) from error


def _outside(found: re.Match[str], end: str, text: str) -> str:
    """One token outside of character classes, or a whole class."""
    if found["foreign"] is not None:
        raise _refused(found["foreign"], text)
    if found["quoted"] is not None:
        return re.escape(found["quoted"])
    if found["end"] is not None:
        return end
    if found["members"] is not None:
        return f"[{''.join(_member(m, text) for m in _MEMBER.finditer(found['members']))}]"
    return _character(found, text)


def _member(found: re.Match[str], text: str) -> str:
    if found["bracket"] is not None:
        return r"\["
    if found["posix"] is not None:
        if found["posix"] not in _POSIX:
            raise _refused(found[0], text)
        return _POSIX[found["posix"]]
    return _character(found, text)


def _character(found: re.Match[str], text: str) -> str:
    if found["code"] is not None:
        return re.escape(chr(min(int(found["code"], 16), 0x10FFFF)))
    if found["escape"] is None:
        return found[0]
    if found["escape"] in _FOREIGN:
        raise _refused(found[0], text)
    return r"\Z" if found["escape"] == "z" else found[0]


def _refused(part: str, text: str) -> UnsupportedError:
    message = f"{part!r} in the regular expression {text!r} cannot be run here"
    return UnsupportedError(message, "write the pattern without it, or use another engine")


def decoded(text: bytes) -> str:
    """Bytes as text, those that are no UTF-8 as lone surrogates."""
    return text.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """The inverse of ``decoded``."""
    return text.encode("utf-8", "surrogateescape")


def replaced(pattern: re.Pattern[str], rewrite: str, text: str, *, everywhere: bool) -> str:
    """A text with the first match, or every match, of a pattern rewritten.

    Args:
        pattern: the pattern.
        rewrite: what takes the place of a match, with ``\\1`` for its first group.
        text: the text.
        everywhere: whether to go on after the first match.

    Source: ``RE2::GlobalReplace``: a match of nothing right after a match does not count.
    """
    pieces: list[str] = []
    position, last = 0, -1
    while position <= len(text):
        match = pattern.search(text, position)
        if match is None:
            break
        pieces.append(text[position : match.start()])
        position = match.end()
        if match.start() == match.end() == last:
            pieces.append(text[position : position + 1])
            position += 1
            continue
        pieces.append(_rewritten(rewrite, match))
        last = match.end()
        if not everywhere:
            break
    return "".join(pieces) + text[position:]


def _rewritten(rewrite: str, match: re.Match[str]) -> str:
    pieces: list[str] = []
    for part in _REWRITE.finditer(rewrite):
        kind = part[1]
        if kind is None or kind == "\\":
            pieces.append("\\" if kind else part[0])
        elif kind.isascii() and kind.isdigit() and int(kind) <= match.re.groups:
            pieces.append(match[int(kind)] or "")
        else:
            message = f"the replacement {rewrite!r} names a group that is not there"
            raise ValueError(message)
    return "".join(pieces)
