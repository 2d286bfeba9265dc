"""Which steps of two chains are the same step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher


def aligned(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of positions, in order; None where a step is only in the other chain.

    Args:
        old: the transforms' names.
        new: the same, now.
    """
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        if tag == "equal":
            yield from zip(range(a, a_end), range(b, b_end), strict=True)
        else:
            yield from ((i, None) for i in range(a, a_end))
            yield from ((None, j) for j in range(b, b_end))


def labels(names: Sequence[str]) -> list[str]:
    """Names that tell steps apart: ``fold_constants``, and ``fold_constants#2`` for the second."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found
