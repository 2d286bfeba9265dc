"""Hashes of strings and 64-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from struct import iter_unpack
from typing import Final

import numpy as np

from mobileprep.graph.tensor import Array

_MASK: Final = (1 << 64) - 1
_MULTIPLIER: Final = 0xC6A4A7935BD1E995
_SHIFT: Final = 47
_SEED: Final = 0xDECAFCAFFE
_WORD: Final = 8


def hash64(data: bytes) -> int:
    """Compute MurmurHash2 for 64-bit machines with TensorFlow's seed.

    It processes about 5 MB a second, so ``data`` should be short. Source: ``Hash64`` of
    TensorFlow.
    """
    size = len(data)
    whole = size - size % _WORD
    state = _SEED ^ (size * _MULTIPLIER & _MASK)
    for (word,) in iter_unpack("<Q", memoryview(data)[:whole]):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> _SHIFT) * _MULTIPLIER & _MASK
        state = (state ^ mixed) * _MULTIPLIER & _MASK
    if size > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state ^= state >> _SHIFT
    state = state * _MULTIPLIER & _MASK
    return state ^ state >> _SHIFT


_K0, _K1, _K2 = map(np.uint64, (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
_STRING_SEED = np.uint64(81)
_CAT = np.uint64(0xC6A4A7935BD1E995)
_STRING_BLOCK: Final = 64
_STRING_WORD: Final = np.arange(8)
_SIP_WORDS: Final = (
    0x736F6D6570736575,
    0x646F72616E646F6D,
    0x6C7967656E657261,
    0x7465646279746573,
)
_U64 = np.uint64


class _Texts:
    """Byte strings laid end to end, and the start of each.

    Args:
        elements: the byte strings.
    """

    def __init__(self, elements: Sequence[bytes]) -> None:
        # Whole words are read, up to a block beyond the end of a string.
        self._bytes = np.frombuffer(b"".join(elements) + bytes(_STRING_BLOCK), np.uint8)
        self.lengths: Array = np.array([len(e) for e in elements], np.int64)
        self._starts: Array = np.cumsum(self.lengths) - self.lengths

    def words(self, which: Array, offset: Array | int) -> Array:
        """Return 8 bytes at an offset into each selected string, as little-endian numbers."""
        places = (self._starts[which] + offset)[:, np.newaxis] + _STRING_WORD
        out: Array = self._bytes[places].view("<u8")[:, 0]
        return out

    def halves(self, which: Array, offset: Array | int) -> Array:
        """Return 4 bytes each, likewise."""
        out: Array = self.words(which, offset) & _U64(0xFFFFFFFF)
        return out

    def bytes_at(self, which: Array, offset: Array | int) -> Array:
        """Return one byte each, likewise."""
        out: Array = self._bytes[self._starts[which] + offset].astype(np.uint64)
        return out


def fingerprint64(elements: Sequence[bytes]) -> Array:
    """Return FarmHash's fingerprint of each string.

    Source: ``farmhashna::Hash64`` of Google's FarmHash.
    """
    texts = _Texts(elements)
    out = np.full(len(elements), _K2)
    for low, high, rule in _RULES:
        which = np.flatnonzero((low <= texts.lengths) & (texts.lengths <= high))
        if which.size:
            out[which] = rule(texts, which, texts.lengths[which])
    return out


def combined_fingerprints(first: Array, second: Array) -> Array:
    """Combine two uint64 fingerprints. Source: ``FingerprintCat64`` of TensorFlow."""
    stirred = first ^ _CAT
    stirred = (stirred ^ _mixed_string(second * _CAT) * _CAT) * _CAT
    return _mixed_string(_mixed_string(stirred) * _CAT)


def siphash(elements: Sequence[bytes], key: tuple[int, int]) -> Array:
    """Compute SipHash-2-4 of each string. Source: Aumasson and Bernstein, "SipHash", 2012."""
    texts = _Texts(elements)
    lengths = texts.lengths
    start = np.array([k ^ w for k, w in zip(key * 2, _SIP_WORDS, strict=True)], _U64)
    state = np.repeat(start[:, np.newaxis], len(elements), axis=1)
    blocks = lengths // 8
    for index in range(int(blocks.max(initial=-1)) + 1):
        which = np.flatnonzero(blocks >= index)
        words = texts.words(which, index * 8)
        words = np.where(blocks[which] == index, _ending(words, lengths[which]), words)
        chosen = state[:, which]
        chosen[3] ^= words
        chosen = _sip_rounds(chosen, 2)
        chosen[0] ^= words
        state[:, which] = chosen
    state[2] ^= _U64(0xFF)
    out: Array = np.bitwise_xor.reduce(_sip_rounds(state, 4), axis=0)
    return out


def _ending(words: Array, lengths: Array) -> Array:
    """Return the bytes of strings after their whole words, and the length in the highest byte."""
    mask = (_U64(1) << (lengths % 8 * 8).astype(_U64)) - _U64(1)
    out: Array = words & mask | lengths.astype(_U64) << _U64(56)
    return out


def _sip_rounds(state: Array, count: int) -> Array:
    a, b, c, d = state
    for _ in range(count):
        a, c = a + b, c + d
        b, d = _rotr(b, 51) ^ a, _rotr(d, 48) ^ c
        a = _rotr(a, 32)
        c, a = c + b, a + d
        b, d = _rotr(b, 47) ^ c, _rotr(d, 43) ^ a
        c = _rotr(c, 32)
    return np.stack([a, b, c, d])


def _rotr(x: Array, bits: int) -> Array:
    out: Array = x >> _U64(bits) | x << _U64(64 - bits)
    return out


def _mixed_string(x: Array) -> Array:
    out: Array = x ^ x >> _U64(47)
    return out


def _pair_hash(a: Array, b: Array, multiplier: Array) -> Array:
    """Mix two numbers into one."""
    first = _mixed_string((a ^ b) * multiplier)
    return _mixed_string((b ^ first) * multiplier) * multiplier


def _multiplier(lengths: Array) -> Array:
    out: Array = _K2 + lengths.astype(_U64) * _U64(2)
    return out


def _up_to_3(texts: _Texts, which: Array, lengths: Array) -> Array:
    first = texts.bytes_at(which, 0) + (texts.bytes_at(which, lengths >> 1) << _U64(8))
    second = lengths.astype(_U64) + (texts.bytes_at(which, lengths - 1) << _U64(2))
    out: Array = _mixed_string(first * _K2 ^ second * _K0) * _K2
    return out


def _up_to_7(texts: _Texts, which: Array, lengths: Array) -> Array:
    first = lengths.astype(_U64) + (texts.halves(which, 0) << _U64(3))
    return _pair_hash(first, texts.halves(which, lengths - 4), _multiplier(lengths))


def _up_to_16(texts: _Texts, which: Array, lengths: Array) -> Array:
    multiplier = _multiplier(lengths)
    a, b = texts.words(which, 0) + _K2, texts.words(which, lengths - 8)
    c = _rotr(b, 37) * multiplier + a
    return _pair_hash(c, (_rotr(a, 25) + b) * multiplier, multiplier)


def _ends(
    texts: _Texts, which: Array, lengths: Array, factor: np.uint64
) -> tuple[Array, Array, Array]:
    """Mix the first and last 16 bytes of strings: two sums, and the first word."""
    a, b = texts.words(which, 0) * factor, texts.words(which, 8)
    c = texts.words(which, lengths - 8) * _multiplier(lengths)
    d = texts.words(which, lengths - 16) * _K2
    return _rotr(a + b, 43) + _rotr(c, 30) + d, a + _rotr(b + _K2, 18) + c, a


def _up_to_32(texts: _Texts, which: Array, lengths: Array) -> Array:
    first, second, _ = _ends(texts, which, lengths, _K1)
    return _pair_hash(first, second, _multiplier(lengths))


def _up_to_64(texts: _Texts, which: Array, lengths: Array) -> Array:
    multiplier = _multiplier(lengths)
    y, second, a = _ends(texts, which, lengths, _K2)
    z = _pair_hash(y, second, multiplier)
    e, f = texts.words(which, 16) * multiplier, texts.words(which, 24)
    g = (y + texts.words(which, lengths - 32)) * multiplier
    h = (z + texts.words(which, lengths - 24)) * multiplier
    return _pair_hash(_rotr(e + f, 43) + _rotr(g, 30) + h, e + _rotr(f + a, 18) + g, multiplier)


def _above_64(texts: _Texts, which: Array, lengths: Array) -> Array:
    nought = np.zeros(len(which), _U64)
    x = (nought + _STRING_SEED) * _K2 + texts.words(which, 0)
    y = (nought + _STRING_SEED) * _K1 + _U64(113)
    z = _mixed_string(y * _K2 + _U64(113)) * _K2
    state = np.stack([x, y, z, nought, nought, nought, nought])
    blocks = (lengths - 1) // _STRING_BLOCK
    for index in range(int(blocks.max())):
        longer = np.flatnonzero(blocks > index)
        block = _block(texts, which[longer], index * _STRING_BLOCK)
        state[:, longer] = _mixed_block(state[:, longer], block, _K1, _U64(1))
    return _finished(state, _block(texts, which, lengths - _STRING_BLOCK), lengths)


def _block(texts: _Texts, which: Array, offset: Array | int) -> list[Array]:
    """Return the eight words of a 64-byte block."""
    return [texts.words(which, offset + 8 * i) for i in range(8)]


def _mixed_block(
    state: Array, block: Sequence[Array], factor: Array | np.uint64, times: np.uint64
) -> Array:
    """Mix a block into the state of the hash: x, y, z, and two pairs v and w."""
    x, y, z, v0, v1, w0, w1 = state
    x = _rotr(x + y + v0 + block[1], 37) * factor ^ w1 * times
    y = _rotr(y + v1 + block[6], 42) * factor + v0 * times + block[5]
    z = _rotr(z + w0, 33) * factor
    v = _weak(block[:4], v1 * factor, x + w0)
    w = _weak(block[4:], z + w1, y + block[2])
    return np.stack([z, y, x, *v, *w])


def _weak(words: Sequence[Array], a: Array, b: Array) -> tuple[Array, Array]:
    first, second, third, fourth = words
    a = a + first
    b = _rotr(b + a + fourth, 21)
    total = a + second + third
    return total + fourth, b + _rotr(total, 44) + a


def _finished(state: Array, block: Sequence[Array], lengths: Array) -> Array:
    """Finish the hash with the last 64 bytes, which may overlap the previous block."""
    factor = _K1 + ((state[2] & _U64(0xFF)) << _U64(1))
    state[5] += ((lengths - 1) & 63).astype(_U64)
    state[3] += state[5]
    state[5] += state[3]
    x, y, z, v0, v1, w0, w1 = _mixed_block(state, block, factor, _U64(9))
    first = _pair_hash(v0, w0, factor) + _mixed_string(y) * _K0 + z
    return _pair_hash(first, _pair_hash(v1, w1, factor) + x, factor)


_RULES: Final = (
    (1, 3, _up_to_3),
    (4, 7, _up_to_7),
    (8, 16, _up_to_16),
    (17, 32, _up_to_32),
    (33, 64, _up_to_64),
    (65, 1 << 62, _above_64),
)
