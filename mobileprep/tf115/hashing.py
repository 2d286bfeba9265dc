"""TensorFlow's 64-bit hash, by which the original orders nodes when it merges duplicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.numerics.hashes import hash64, hash64_many

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7800
# Below this many rows of a length, calling numpy takes longer than counting in Python.
_FEW: Final = 16


@lru_cache(maxsize=1 << 17)
def hash_text(text: str) -> int:
    """The hash of a name, an op or a device, which graphs repeat."""
    return hash64(text.encode())


def hash_texts(texts: Iterable[str]) -> Mapping[str, int]:
    """The hashes of many texts."""
    distinct = list(dict.fromkeys(texts))
    hashes = hash64_many([text.encode() for text in distinct])
    return dict(zip(distinct, hashes, strict=True))


def combine_rows(rows: Sequence[Sequence[int]]) -> list[int]:
    """Each row of at least one hash combined into one, from left to right."""
    groups: dict[int, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[len(row)].append(i)
    combined = [0] * len(rows)
    for places in groups.values():
        many = [rows[i] for i in places]
        results = _combined(many) if len(many) >= _FEW else (reduce(combine, row) for row in many)
        for i, result in zip(places, results, strict=True):
            combined[i] = result
    return combined


def combine(first: int, second: int) -> int:
    """One hash of two. Source: ``Hash64Combine`` of TensorFlow."""
    return first ^ (second + _GOLDEN + (first << 10 & _MASK) + (first >> 4) & _MASK)


def _combined(rows: Sequence[Sequence[int]]) -> list[int]:
    """Rows of one length, combined."""
    columns: Array = np.array(rows, np.uint64).T
    state = columns[0]
    for column in columns[1:]:
        state = state ^ (
            column + np.uint64(_GOLDEN) + (state << np.uint64(10)) + (state >> np.uint64(4))
        )
    combined: list[int] = state.tolist()
    return combined
