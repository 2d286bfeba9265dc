"""TensorFlow's 64-bit hash, by which the original orders nodes when it merges duplicates."""

from __future__ import annotations

from functools import lru_cache
from struct import iter_unpack
from typing import Final

import numpy as np

_MASK: Final = (1 << 64) - 1
_MULTIPLIER: Final = 0xC6A4A7935BD1E995
_SHIFT: Final = 47
_SEED: Final = 0xDECAFCAFFE
_GOLDEN: Final = 0x9E3779B97F4A7800
_WORD: Final = 8
_BLOCK: Final = 1 << 18
# Below this, calling numpy takes longer than counting in Python.
_SHORT: Final = 1 << 6


def hash64(data: bytes) -> int:
    """MurmurHash2 for 64-bit machines, with TensorFlow's seed. Source: ``Hash64`` of TensorFlow.

    It takes word after word, about 10 MB a second here; see to it that ``data`` is short.
    """
    size = len(data)
    whole = size - size % _WORD
    state = _SEED ^ (size * _MULTIPLIER & _MASK)
    for start in range(0, whole, _BLOCK):
        for word in _mixed(data[start : min(start + _BLOCK, whole)]):
            state = (state ^ word) * _MULTIPLIER & _MASK
    if size > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state ^= state >> _SHIFT
    state = state * _MULTIPLIER & _MASK
    return state ^ state >> _SHIFT


@lru_cache(maxsize=1 << 17)
def hash_text(text: str) -> int:
    """The hash of a name, an op or a device, which graphs repeat."""
    return hash64(text.encode())


def combine(first: int, second: int) -> int:
    """One hash of two. Source: ``Hash64Combine`` of TensorFlow."""
    return first ^ (second + _GOLDEN + (first << 10 & _MASK) + (first >> 4) & _MASK)


def _mixed(data: bytes) -> list[int]:
    """The words of the data, which the hash has stirred one by one before it takes them."""
    if len(data) < _SHORT:
        return [_stirred(*word) for word in iter_unpack("<Q", data)]
    words = np.frombuffer(data, dtype="<u8") * np.uint64(_MULTIPLIER)
    words ^= words >> np.uint64(_SHIFT)
    words *= np.uint64(_MULTIPLIER)
    stirred: list[int] = words.tolist()
    return stirred


def _stirred(word: int) -> int:
    word = word * _MULTIPLIER & _MASK
    return (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
