"""What measures compressed sizes: part of what decides them."""

from __future__ import annotations

from typing import Final

LEVEL: Final = 1
"""Of deflate in ISA-L, whose levels are not zlib's: this one is as good as the higher ones."""


def compressor() -> str:
    """The compressor with its version, as reports name it."""
    from isal import ISAL_VERSION

    return f"deflate by ISA-L {ISAL_VERSION} at level {LEVEL}"
