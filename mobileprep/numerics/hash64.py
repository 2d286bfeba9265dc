"""TensorFlow's own 64-bit hash of bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from struct import iter_unpack
from typing import Final

import numpy as np

_MASK: Final = (1 << 64) - 1
_MULTIPLIER: Final = 0xC6A4A7935BD1E995
_SHIFT: Final = 47
_SEED: Final = 0xDECAFCAFFE
_WORD: Final = 8
_BLOCK: Final = 1 << 18
# Below this, calling numpy takes longer than counting in Python.
_SHORT: Final = 1 << 6
# Below this many of a length, likewise.
_FEW: Final = 16


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


def hash64_many(elements: Sequence[bytes]) -> list[int]:
    """The hashes of many byte strings, those of about one length at once."""
    groups: dict[int, list[int]] = defaultdict(list)
    for place, data in enumerate(elements):
        groups[len(data) // _WORD].append(place)
    hashes = [0] * len(elements)
    for words, places in groups.items():
        group = [elements[place] for place in places]
        many = _hashes(group, words) if len(group) >= _FEW else map(hash64, group)
        for place, found in zip(places, many, strict=True):
            hashes[place] = found
    return hashes


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


def _hashes(texts: Sequence[bytes], words: int) -> list[int]:
    """The hashes of texts that all have so many whole words, and perhaps some bytes more."""
    lengths = np.array([len(data) for data in texts], np.uint64)
    padded = b"".join(data.ljust((words + 1) * _WORD, b"\0") for data in texts)
    columns = np.frombuffer(padded, "<u8").reshape(len(texts), words + 1).T
    multiplier, shift = np.uint64(_MULTIPLIER), np.uint64(_SHIFT)
    state = lengths * multiplier ^ np.uint64(_SEED)
    for column in columns[:words]:
        word = column * multiplier
        word ^= word >> shift
        word *= multiplier
        state = (state ^ word) * multiplier
    rest = (state ^ columns[words]) * multiplier
    state = np.where(lengths % np.uint64(_WORD) > 0, rest, state)
    state ^= state >> shift
    state *= multiplier
    state ^= state >> shift
    hashes: list[int] = state.tolist()
    return hashes
