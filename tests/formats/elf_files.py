"""Small ELF libraries for tests."""

from __future__ import annotations

import struct


def elf_library(
    content: bytes = b"\0NoOp\0", *, machine: int = 183, alignment: int = 1 << 14, wide: bool = True
) -> bytes:
    """Return a library with two loaded segments: its headers and ``content``."""
    header, entry = (64, 56) if wide else (52, 32)
    start = header + 2 * entry
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    word = "Q" if wide else "I"
    head = struct.pack(
        f"<HHI{word}{word}{word}IHHHHHH", 3, machine, 1, 0, header, 0, 0, header, entry, 2, 0, 0, 0
    )
    segments = [(0, start, 1 << 16), (start, len(content), alignment)]
    packed = b""
    for offset, size, align in segments:
        if wide:
            packed += struct.pack("<IIQQQQQQ", 1, 4, offset, 0, 0, size, size, align)
        else:
            packed += struct.pack("<IIIIIIII", 1, offset, 0, 0, size, size, 4, align)
    return ident + head + packed + content
