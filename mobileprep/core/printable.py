"""Make strings from models safe for terminals, images, and pages."""

from __future__ import annotations

import unicodedata
from typing import Final

# Control characters, direction marks, surrogates, and line separators.
_UNSHOWN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def plain(text: str, keep: str = "") -> str:
    """Escape characters that could control a terminal, in Python's notation."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or _is_shown(c) else repr(c)[1:-1] for c in text)


def shortened(text: str, width: int) -> str:
    """Shorten a plain string to at most ``width`` characters by omitting its middle."""
    text = plain(text)
    if len(text) <= width:
        return text
    tail = (width - 3) // 2
    return f"{text[: width - 3 - tail]}...{text[len(text) - tail :]}"


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in _UNSHOWN
