"""The order in which the original tool goes through a set of names.

The tool appends what it finds in a C++ ``unordered_set``; a graph's inputs stand in this order
behind its other nodes. Source: the hash table of the compiler that TensorFlow 1.15's wheel was
built with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mobileprep.tf115.hashing import hash_text

# The table grows to the next of these when it holds as many names as it has buckets.
_BUCKETS: Final = (1, 3, 7, 17, 37, 79, 167)


def hash_order(names: Iterable[str]) -> Sequence[str]:
    """Distinct names in the order of the set that they were put into one after another."""
    order: list[str] = []
    buckets = iter(_BUCKETS)
    count = next(buckets)
    hashes: dict[str, int] = {}
    for name in dict.fromkeys(names):
        hashes[name] = hash_text(name)
        if len(order) + 1 >= count:
            count = next(buckets, count)
            order = _filled(order, hashes, count)
        order = _filled([name], hashes, count, order)
    return order


def _filled(
    names: Iterable[str], hashes: dict[str, int], count: int, order: Iterable[str] = ()
) -> list[str]:
    """Names put into a table: before the others of their bucket, or else before all."""
    filled = list(order)
    for name in names:
        bucket = hashes[name] % count
        same = (i for i, other in enumerate(filled) if hashes[other] % count == bucket)
        filled.insert(next(same, 0), name)
    return filled
