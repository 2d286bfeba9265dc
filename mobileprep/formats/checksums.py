"""CRC-32C, plain and in TensorFlow's masked form.

Computed by google-crc32c if it is installed (extra `crc32c`), otherwise by numpy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from mobileprep.formats.wire import Buffer

_UINT32: Final = (1 << 32) - 1
_MASK_DELTA: Final = 0xA282EAD8
# The Castagnoli polynomial in reversed bit order.
_POLYNOMIAL: Final = 0x82F63B78
# Up to this many bytes, a Python loop is faster than numpy.
_FEW: Final = 48
_ROW: Final = 512
# In words of 64 bits, y = x**64: y**5685 = y**1362 + y**426 + 1 modulo the polynomial. So a word
# can be added (xor) to the words that are 4323, 5259, and 5685 positions later instead. Adding
# blocks of 4323 words folds long data into 5685 words. The idea of sparse multiples is from Chorba
# (Russell, 2024).
_DEGREE: Final = 5685
_JUMPS: Final = (_DEGREE - 1362, _DEGREE - 426, _DEGREE)
_BLOCK: Final = _JUMPS[0]
_FOLDED: Final = 4 * _BLOCK


def crc32c(data: Buffer, seed: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of bytes, without copying them.

    Args:
        seed: the checksum of the bytes before these.
    """
    if not len(data):
        return seed
    # google-crc32c does not accept memoryviews, but accepts an array over the same bytes.
    return implementation()(seed, np.frombuffer(data, dtype=np.uint8))


def mask(checksum: int) -> int:
    """Mask a checksum: rotate it right by 15 bits, and add a constant (LevelDB).

    Otherwise, checksums of data that contains its own checksum would be weak.
    """
    rotated = (checksum >> 15) | (checksum << 17)
    return (rotated + _MASK_DELTA) & _UINT32


def masked_crc32c(data: Buffer, seed: int = 0) -> int:
    """Return the masked CRC-32C of bytes; ``seed`` is an unmasked checksum."""
    return mask(crc32c(data, seed))


@lru_cache(maxsize=1)
def implementation() -> Callable[[int, np.ndarray[Any, Any]], int]:
    """Return the faster implementation: the library, or numpy."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Warns about its slow implementation.
            import google_crc32c
    except ImportError:
        return numpy_crc32c
    if google_crc32c.implementation != "c":
        return numpy_crc32c
    extend: Callable[[int, np.ndarray[Any, Any]], int] = google_crc32c.extend
    return extend


def numpy_crc32c(seed: int, data: np.ndarray[Any, Any]) -> int:
    """Return the CRC-32C of a uint8 array, computed with numpy.

    The speed is about 2 GB/s for long tensors, and 100 MB/s for blocks of 4 KiB.
    """
    if len(data) > 8 * (_FOLDED + _DEGREE) and len(data) % 8:
        odd = len(data) % 8
        return numpy_crc32c(numpy_crc32c(seed, data[:odd]), data[odd:])
    state = seed ^ _UINT32
    if len(data) < _FEW:
        table = _byte_table()
        for byte in data.tolist():
            state = (state >> 8) ^ table[(state ^ byte) & 255]
        return state ^ _UINT32
    # The initial state is equivalent to adding it to the first four bytes.
    head = np.frombuffer(state.to_bytes(4, "little"), np.uint8) ^ data[:4]
    if len(data) > 8 * (_FOLDED + _DEGREE):
        return _residue(_fold(head, data)) ^ _UINT32
    # Leading zeros do not change the remainder.
    text = np.zeros(-(-len(data) // _ROW) * _ROW, np.uint8)
    text[len(text) - len(data) :] = data
    text[len(text) - len(data) :][:4] = head
    return _residue(text) ^ _UINT32


def _fold(head: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Reduce data to `_DEGREE` words with the same remainder, preceded by zeros."""
    work = np.zeros(_FOLDED + _DEGREE, np.uint64)
    space = work.view(np.uint8)
    step = 8 * _FOLDED
    body = len(data) - 8 * _DEGREE
    # The first window starts before the data.
    start = -(-body // step) * -step + body
    for at in range(start, body, step):
        first = max(at, 0)
        room = space[first - at : step]
        room ^= data[first : at + step]
        if first == 0:
            room[:4] ^= data[:4] ^ head
        for block in range(0, _FOLDED, _BLOCK):
            words = work[block : block + _BLOCK]
            for jump in _JUMPS:
                work[block + jump : block + jump + _BLOCK] ^= words
        work[:_DEGREE] = work[_FOLDED:]
        work[_DEGREE:] = 0
    text = np.zeros(-(-8 * _DEGREE // _ROW) * _ROW, np.uint8)
    text[-8 * _DEGREE :] = space[: 8 * _DEGREE] ^ data[body:]
    return text


def _residue(text: np.ndarray[Any, Any]) -> int:
    """Return the remainder of whole rows: that of each row, then pairwise combinations."""
    rows = text.reshape(-1, _ROW)
    table = _row_table()
    sums = np.bitwise_xor.reduce(table.take(rows + _row_offsets(), mode="clip"), axis=1)
    length = _ROW
    while len(sums) > 1:
        if len(sums) % 2:
            sums = np.concatenate([np.zeros(1, np.uint32), sums])
        sums = _advance(sums[::2], length) ^ sums[1::2]
        length *= 2
    return int(sums[0])


def _advance(sums: np.ndarray[Any, Any], zeros: int) -> np.ndarray[Any, Any]:
    """Return remainders after appending zero bytes to the data."""
    table = _advance_table(zeros)
    parts = sums.astype("<u4").view(np.uint8).reshape(-1, 4)
    advanced: np.ndarray[Any, Any] = np.bitwise_xor.reduce(table[np.arange(4), parts], axis=1)
    return advanced


@lru_cache(maxsize=1)
def _byte_table() -> list[int]:
    table = []
    for state in range(256):
        for _ in range(8):
            state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
        table.append(state)
    return table


def _after_zeros(states: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    table = np.array(_byte_table(), np.uint32)
    after: np.ndarray[Any, Any] = (states >> np.uint32(8)) ^ table[states & np.uint32(255)]
    return after


@lru_cache(maxsize=1)
def _row_table() -> np.ndarray[Any, Any]:
    """Return the contribution of each byte to the remainder of a row, by position and value."""
    table = np.empty((_ROW, 256), np.uint32)
    table[-1] = _byte_table()
    for at in range(_ROW - 1, 0, -1):
        table[at - 1] = _after_zeros(table[at])
    return table.reshape(-1)


@lru_cache(maxsize=1)
def _row_offsets() -> np.ndarray[Any, Any]:
    return np.arange(_ROW, dtype=np.intp) * 256


@lru_cache(maxsize=64)
def _advance_table(zeros: int) -> np.ndarray[Any, Any]:
    """Return the effect of zero bytes on each byte of a remainder; ``zeros`` is a power of two."""
    if zeros == 1:
        byte = np.arange(256, dtype=np.uint32)
        return np.stack([_after_zeros(byte << np.uint32(8 * k)) for k in range(4)])
    half = _advance_table(zeros // 2)
    parts = half.astype("<u4").view(np.uint8).reshape(4, 256, 4)
    table: np.ndarray[Any, Any] = np.bitwise_xor.reduce(half[np.arange(4), parts], axis=2)
    return table
