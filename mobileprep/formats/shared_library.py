"""Shared libraries in ELF: their platform, segments, and strings."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.core.files import map_file
from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.wire import Buffer

_MAGIC: Final = b"\x7fELF"
# Exceptions of pyelftools, besides its own, for invalid sizes and offsets.
_OF_DAMAGE: Final = (ValueError, LookupError, AttributeError, OverflowError, TypeError, OSError)
_ABIS: Final = {
    "EM_AARCH64": "arm64-v8a",
    "EM_ARM": "armeabi-v7a",
    "EM_386": "x86",
    "EM_X86_64": "x86_64",
}


class SharedLibrary(Struct, frozen=True):
    """The headers of a library.

    Args:
        machine: processor, as named by ELF: ``EM_AARCH64``.
        abi: Android's name of the ABI, or an empty string.
        bits: 32 or 64.
        alignments: alignment of each loaded segment in bytes.
        loaded: offset and length of each loaded segment in the file.
    """

    machine: str
    abi: str
    bits: int
    alignments: tuple[int, ...]
    loaded: tuple[tuple[int, int], ...]


def read_library(path: Path) -> SharedLibrary:
    """Read the headers of a library.

    Raises:
        CorruptFileError: if the file is not an ELF library, or is damaged.
        UnsupportedError: if pyelftools is not installed.
    """
    try:
        from elftools.common.exceptions import ELFError
        from elftools.construct import ConstructError
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        message = "reading libraries needs the package pyelftools, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[elf]'") from error
    data = map_file(path)
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        message = "is not an ELF library"
        raise CorruptFileError(message, "give the .so file of an app", str(path))
    try:
        elf = ELFFile(io.BytesIO(data))
        machine, bits = str(elf["e_machine"]), int(elf.elfclass)
        segments = [s.header for s in elf.iter_segments(type="PT_LOAD")]
    except (ELFError, ConstructError, *_OF_DAMAGE) as error:
        message = f"has damaged headers: {error}"
        raise CorruptFileError(message, "copy it again", str(path)) from error
    loaded = tuple((int(s["p_offset"]), int(s["p_filesz"])) for s in segments)
    if not loaded or any(offset + length > len(data) for offset, length in loaded):
        message = "has segments that lie outside of the file" if loaded else "loads no segment"
        raise CorruptFileError(message, "copy it again", str(path))
    aligned = tuple(int(s["p_align"]) for s in segments)
    return SharedLibrary(machine, _ABIS.get(machine, ""), bits, aligned, loaded)


def texts_in(path: Path, library: SharedLibrary, texts: Iterable[str]) -> frozenset[str]:
    """Return the strings that loaded segments of a library contain, followed by a zero byte.

    Linkers merge a string with the end of a longer one, so a match can be the end of another
    string.
    """
    data: Buffer = map_file(path)
    parts = [bytes(data[start:end]) for start, end in _apart(library.loaded)]
    return frozenset(text for text in texts if any(text.encode() + b"\0" in part for part in parts))


def _apart(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping ranges, because headers may name the same bytes many times."""
    ranges: list[tuple[int, int]] = []
    for offset, length in sorted(runs):
        if ranges and offset <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], offset + length))
        else:
            ranges.append((offset, offset + length))
    return ranges
