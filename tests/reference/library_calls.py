"""Find the functions that TensorFlow 1.15 kernels call, in the library's machine code."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

_SECTION = np.dtype(
    [
        *(("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("addr", "<u8"), ("offset", "<u8")),
        *(("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8")),
    ]
)
_SYMBOL = np.dtype(
    [
        *(("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")),
        *(("value", "<u8"), ("size", "<u8")),
    ]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
# Functions of one file are close together; a more distant local target is a coincidence.
_NEAR = 1 << 20
_OBJECT, _FUNCTION, _STRONG = 1, 2, 1
_ABSOLUTE, _GLOBAL_DATA, _RELATIVE = 1, 6, 8


class Symbol(NamedTuple):
    """A function or an object; local and strong ones come from a single source file."""

    size: int
    name: str
    is_strong: bool
    is_local: bool


class Library:
    """An x86-64 shared library with its symbol table.

    Calls, jumps, and address loads with a 32-bit offset are found at any position of their opcodes;
    only those that hit the first byte of a function count, which excludes most coincidences.
    """

    def __init__(self, path: Path) -> None:
        self._bytes = np.memmap(path, np.uint8, "r")
        head = self._bytes[:64].tobytes()
        (at,) = struct.unpack_from("<Q", head, 40)
        count, names = struct.unpack_from("<HH", head, 60)
        table = np.frombuffer(self._bytes[at : at + 64 * count].tobytes(), _SECTION)
        strings = self._content(table[names])
        self._sections = {_text(strings, int(s["name"])): s for s in table}

    @cached_property
    def symbols(self) -> dict[int, Symbol]:
        """Functions and objects by address."""
        strings = self._named(".strtab")
        table = np.frombuffer(self._named(".symtab"), _SYMBOL)
        kinds = table["info"] & 15
        is_sized = ((kinds == _FUNCTION) | (kinds == _OBJECT)) & (table["size"] > 0)
        return {
            int(s["value"]): Symbol(
                int(s["size"]),
                _text(strings, int(s["name"])),
                *(s["info"] >> 4 == k for k in (_STRONG, 0)),
            )
            for s in table[is_sized]
        }

    def called(self, roots: Iterable[int]) -> set[str]:
        """Names of the functions that are called from functions or virtual tables.

        Strong functions are followed only if they are roots: others may belong to other files.
        """
        todo = [target for root in roots for target in (root, *self._targets(root))]
        seen: set[int] = set()
        names: set[str] = set()
        while todo:
            address = todo.pop()
            if address in seen:
                continue
            seen.add(address)
            for target in self._targets(address):
                symbol = self.symbols[target]
                if not symbol.name.startswith(("_ZTS", "_ZTI")):
                    names.add(symbol.name)
                if not symbol.is_strong:
                    todo.append(target)
        return names

    def _targets(self, address: int) -> Iterator[int]:
        start, end = self._range(".text")
        inside = start <= address < end
        targets = self._calls(address) if inside else self._slots(address)
        return (target for target in targets if target in self.symbols)

    def _slots(self, address: int) -> list[int]:
        """The addresses that an object holds."""
        keys = self._relocated_order
        at = bisect_left(keys, address)
        end = bisect_left(keys, address + self.symbols[address].size)
        return [t for t in (self._relocated[k] for k in keys[at:end]) if t in self.symbols]

    def _calls(self, address: int) -> Iterator[int]:
        start, _ = self._range(".text")
        size = self.symbols[address].size
        code = self._text_bytes[address - start : address - start + size]
        if size < 8:
            return
        padded = np.concatenate([np.zeros(3, np.uint8), code])
        for at in np.flatnonzero(_has_distance(padded)).tolist():
            (distance,) = struct.unpack("<i", code[at : at + 4].tobytes())
            target = address + at + 4 + distance
            through = self._through(target)
            # Symbols that other libraries could replace are called through the table.
            near = target in self.symbols and abs(distance) < _NEAR
            if through != target or (near and self.symbols[target].is_local):
                yield through

    def _through(self, target: int) -> int:
        """Resolve an address through the global offset table or the procedure linkage table."""
        start, end = self._range(".plt.got")
        if start <= target < end:
            at = target - start
            (distance,) = struct.unpack_from("<i", self._named(".plt.got"), at + 2)
            target = target + 6 + int(distance)
        return self._relocated.get(target, target)

    @cached_property
    def _relocated(self) -> dict[int, int]:
        """The addresses that the loader writes, by location."""
        symbols = np.frombuffer(self._named(".dynsym"), _SYMBOL)["value"].tolist()
        table = np.frombuffer(self._named(".rela.dyn"), _RELOCATION)
        addresses = {}
        for offset, info, addend in table.tolist():
            kind, index = info & 0xFFFFFFFF, info >> 32
            if kind in (_ABSOLUTE, _GLOBAL_DATA):
                addresses[offset] = symbols[index] + (addend if kind == _ABSOLUTE else 0)
            elif kind == _RELATIVE:
                addresses[offset] = addend
        return addresses

    @cached_property
    def _relocated_order(self) -> list[int]:
        return sorted(self._relocated)

    @cached_property
    def _text_bytes(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        section = self._sections[".text"]
        return self._bytes[int(section["offset"]) : int(section["offset"] + section["size"])]

    def _range(self, name: str) -> tuple[int, int]:
        section = self._sections[name]
        return int(section["addr"]), int(section["addr"] + section["size"])

    def _named(self, name: str) -> bytes:
        if name not in self._contents:
            self._contents[name] = self._content(self._sections[name])
        return self._contents[name]

    @cached_property
    def _contents(self) -> dict[str, bytes]:
        return {}

    def _content(self, section: np.void) -> bytes:
        at, size = int(section["offset"]), int(section["size"])
        return self._bytes[at : at + size].tobytes()


def _has_distance(padded: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> np.ndarray:
    """Whether the offset of a jump starts at each byte of code, which is padded by three bytes."""
    third, second, first = padded[:-6], padded[1:-5], padded[2:-4]
    call = (first == 0xE8) | (first == 0xE9) | ((second == 0x0F) & (first & 0xF0 == 0x80))
    loads = ((second == 0x8D) | (second == 0x8B)) & (first & 0xC7 == 5) & (third & 0xF8 == 0x48)
    by_table = (second == 0xFF) & ((first == 0x15) | (first == 0x25) | (first == 0x35))
    return np.asarray(call | loads | by_table)


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode("latin-1")
