"""A case: files, and a command that reads them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

NOTE = "case.json"


class Case(Struct, frozen=True):
    """A command line with the files that it is run beside.

    Args:
        arguments: what follows ``mobileprep``; paths are those of ``files``.
        files: bytes by path, relative to the folder that the command runs in.
        damaged: which of the files are damaged: what shrinking makes smaller.
        environment: variables that are set.
        expected: the digests of files that the command has to leave, whatever is damaged.
    """

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    damaged: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Put the files into a folder."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def keep(self, folder: Path) -> None:
        """Write the case with a note of its command."""
        self.write(folder / "files")
        note = {
            "arguments": self.arguments,
            "damaged": self.damaged,
            "environment": self.environment,
            "expected": self.expected,
        }
        text = json.dumps(note, indent=1, default=dict) + "\n"
        (folder / NOTE).write_text(text, encoding="utf-8")


def kept_case(folder: Path) -> Case:
    """The case that ``Case.keep`` has written."""
    note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    found = folder / "files"
    files = {
        str(p.relative_to(found)): p.read_bytes() for p in sorted(found.rglob("*")) if p.is_file()
    }
    arguments, damaged = tuple(note["arguments"]), tuple(note["damaged"])
    return Case(arguments, files, damaged, note["environment"], note.get("expected", {}))


Make = Callable[[random.Random], Case]
"""Makes the case of a random state."""

formats: dict[str, Make] = {}


def fuzzed(name: str) -> Callable[[Make], Make]:
    """A decorator that registers what makes a format's cases."""

    def register(make: Make) -> Make:
        formats[name] = make
        return make

    return register


T = TypeVar("T")


def shared_out(rng: random.Random, shares: Sequence[tuple[int, T]]) -> T:
    """One of several, each as often as its share says: what takes long is chosen seldom."""
    return rng.choices([x for _, x in shares], [share for share, _ in shares])[0]


def tree(folder: Path, under: str = "") -> Iterator[tuple[str, bytes]]:
    """The files of a folder, with their paths below another."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(Path(under) / path.relative_to(folder)), path.read_bytes()
