"""The compressor of the compressed sizes in reports, which is part of their cache key."""

from __future__ import annotations

from typing import Final

LEVEL: Final = 1
"""Level of deflate in zlib: higher levels gain at most some percent on weights."""


def compressor() -> str:
    """The compressor with its version, as reports name it."""
    from zlib import ZLIB_RUNTIME_VERSION

    return f"deflate by zlib {ZLIB_RUNTIME_VERSION} at level {LEVEL}"
