"""What an unquoted YAML scalar means: YAML 1.2's core schema less octal, hex and infinities."""

from __future__ import annotations

import math
import re

from mobileprep.recipe.tree import ScalarValue

_WORDS: dict[str, ScalarValue] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")

# Longer digit strings are names or digests; turning them into numbers could only lose digits.
_LONGEST_NUMBER = 40


def resolve(text: str) -> ScalarValue:
    """The value of an unquoted scalar.

    ``no``, ``on``, ``010``, ``0x1f``, ``1:30`` and dates stay text; ``1e-3`` is a number.
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_NUMBER or _LEADING_ZERO.match(text):
        return text
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
