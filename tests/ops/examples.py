"""Serialized examples, written field by field to allow invalid ones."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.wire import delimited, encode_varint


def texts_of(*values: bytes) -> bytes:
    """A feature of strings."""
    return delimited(1, b"".join(delimited(1, v) for v in values))


def floats_of(*values: float, packed: bool = True) -> bytes:
    """A feature of float32."""
    raw = [np.float32(v).tobytes() for v in values]
    body = delimited(1, b"".join(raw)) if packed else b"".join(b"\x0d" + r for r in raw)
    return delimited(2, body)


def integers_of(*values: int, packed: bool = True) -> bytes:
    """A feature of int64."""
    raw = [encode_varint(v % (1 << 64)) for v in values]
    body = delimited(1, b"".join(raw)) if packed else b"".join(b"\x08" + r for r in raw)
    return delimited(3, body)


def example(**features: bytes) -> bytes:
    """A serialized example of features by name."""
    entries = (delimited(1, n.encode()) + delimited(2, f) for n, f in features.items())
    return delimited(1, b"".join(delimited(1, e) for e in entries))
