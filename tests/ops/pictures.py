"""Small images, encoded by Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def encoded(pixels: np.ndarray, kind: str, mode: str | None = None, **options) -> bytes:
    """An image file, converted to a Pillow mode first."""
    image = Image.fromarray(pixels)
    stream = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(stream, kind, **options)
    return stream.getvalue()


def text(data: bytes) -> np.ndarray:
    """A scalar string tensor."""
    out = np.empty((), dtype=object)
    out[()] = data
    return out
