"""How long a backtracking engine may search: a bound from the pattern and the text's length."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache

_TOKEN = re.compile(
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
    """What was read of a group: numbers of ways to match, as powers of two.

    Args:
        alternatives: the alternatives that are complete.
        parts: the parts of the alternative that is being read.
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
    """The binary logarithm of a bound on the ways that an engine may try on a text."""
    groups = [_Group()]
    for token in _TOKEN.finditer(pattern):
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
    # A search begins at every character.
    return groups[0].ways() + math.log2(length + 1)


def _repeated(ways: float, token: re.Match[str], length: int) -> float:
    """The ways of a part that is repeated: each number of times, and each time any of its ways."""
    least, most = _times(token, length)
    counts = math.log2(max(most - least, 0) + 1)
    return counts if ways == 0 else counts + most * ways


def _times(token: re.Match[str], length: int) -> tuple[int, int]:
    sign = token["repeat"][0]
    if sign == "{":
        least = int(token["least"])
        # Without an end, a repetition that takes nothing ends it.
        most = int(token["most"] or (least + length if token["comma"] else least))
        return least, most
    return (1 if sign == "+" else 0), (1 if sign == "?" else length)


def _sum(powers: list[float]) -> float:
    """The binary logarithm of a sum of powers of two."""
    largest = max(powers)
    return largest + math.log2(sum(2 ** (power - largest) for power in powers))
