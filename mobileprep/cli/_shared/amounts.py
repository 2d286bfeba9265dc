"""Amounts for people."""

from __future__ import annotations


def size_text(count: int) -> str:
    """A number of bytes for people, in powers of 1,000."""
    size, unit = float(count), "bytes"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
