"""Lets ``${NAME}`` stand unquoted inside ``{ }`` and ``[ ]``, where YAML gives braces a meaning.

Before YAML is read, each character of a reference is put out of its sight: moved by a fixed
distance into a range of Unicode that is nobody's, so that a reference becomes one word of the same
length. What YAML has made of the text is moved back. Lines and columns stay as they are, and values
take no part: they are put in long after YAML was read.

A reference with quotes or a backslash in its default stays in sight, because within quotes YAML has
to read these.
"""

from __future__ import annotations

import re
from typing import Final

_REFERENCE: Final = re.compile("\\$\\{[^{}\"'\\\\\r\n\x85\u2028\u2029\U00010000-\U0010ffff]*\\}")
_DISTANCE: Final = 0x100000
_HIDDEN: Final = re.compile("[\U00100000-\U0010ffff]+")


class References:
    """The references of one file's text.

    Args:
        text: the text. Where it has such characters of its own, nothing is hidden.
    """

    def __init__(self, text: str) -> None:
        self._hides = not _HIDDEN.search(text)
        self.hidden = _moved(_REFERENCE, text, _DISTANCE) if self._hides else text

    def shown(self, text: str) -> str:
        """A piece of the hidden text as it was."""
        return _moved(_HIDDEN, text, -_DISTANCE) if self._hides else text


def in_sight(line: str) -> bool:
    """Whether a line has the beginning of a reference that is not hidden."""
    return "${" in _REFERENCE.sub("", line)


def _moved(what: re.Pattern[str], text: str, distance: int) -> str:
    return what.sub(lambda match: "".join(chr(ord(c) + distance) for c in match.group()), text)
