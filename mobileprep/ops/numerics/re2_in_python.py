"""RE2's regular expressions put into the notation of Python's ``re``, for want of RE2 itself."""

from __future__ import annotations

import re

from mobileprep.errors import UnsupportedError

# What makes a pattern run that Python's engine cannot take.
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
# Where the engines part: case beyond ASCII, bytes that are no UTF-8, no word border in nothing.
_FOLDS_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_TAKES_ANY = re.compile(r"\.|\[\^|\[:\^|\\[BDSW]")
# Flags for the rest of a pattern: Python's engine has them at its start alone.
_INNER_FLAGS = re.compile(r".(\(\?[a-zA-Z-]+\))", re.DOTALL)
_LONE_BYTE = re.compile("[\udc80-\udcff]")


def differs(pattern: str, text: str) -> bool:
    """Whether RE2 may find another match in a text than Python's engine does.

    Args:
        text: decoded, bytes that are no UTF-8 as lone surrogates.
    """
    if _FOLDS_CASE.search(pattern) and not (text.isascii() and pattern.isascii()):
        return True
    if _LONE_BYTE.search(text) and _TAKES_ANY.search(pattern):
        return True
    return not text and r"\B" in pattern


def translated(text: str) -> str:
    """A pattern of RE2's syntax in Python's."""
    if len(text) > _LONGEST:
        message = f"a regular expression of {len(text)} characters"
        raise ValueError(message)
    inner = _INNER_FLAGS.search(text)
    if inner:
        raise _refused(inner[1], text)
    # Without flags RE2's dollar is the end of the text, Python's also before a last line end.
    end = "$" if re.search(r"\(\?[a-zA-Z]*m", text) else r"\Z"
    return "".join(_outside(found, end, text) for found in _TOKEN.finditer(text))


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
    message = f"{part!r} in the regular expression {text!r} needs RE2"
    return UnsupportedError(message, INSTALL)
