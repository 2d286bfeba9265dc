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
    """A command line with the files that it reads.

    Args:
        arguments: arguments of ``mobileprep``, with paths of ``files``.
        files: bytes by path, relative to the working directory of the command.
        damaged: the damaged files, which shrinking makes smaller.
        environment: environment variables.
        expected: digests of files that the command must write in spite of the damage.
    """

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    damaged: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the files to a directory."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def save(self, folder: Path) -> None:
        """Write the files and the command."""
        self.write(folder / "files")
        note = {
            "arguments": self.arguments,
            "damaged": self.damaged,
            "environment": self.environment,
            "expected": self.expected,
        }
        text = json.dumps(note, indent=1, default=dict) + "\n"
        (folder / NOTE).write_text(text, encoding="utf-8")


def read_case(folder: Path) -> Case:
    """Read a case that ``Case.save`` wrote."""
    note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    files = dict(tree(folder / "files"))
    arguments, damaged = tuple(note["arguments"]), tuple(note["damaged"])
    return Case(arguments, files, damaged, note["environment"], note.get("expected", {}))


Make = Callable[[random.Random], Case]
"""Builds a case from a random state."""

formats: dict[str, Make] = {}


def fuzz_format(name: str) -> Callable[[Make], Make]:
    """Register a function that builds cases of a format."""

    def register(make: Make) -> Make:
        formats[name] = make
        return make

    return register


T = TypeVar("T")


def weighted_choice(rng: random.Random, choices: Sequence[tuple[int, T]]) -> T:
    """Choose one by weight; slow ones have low weights."""
    return rng.choices([x for _, x in choices], [weight for weight, _ in choices])[0]


def tree(folder: Path, under: str = "") -> Iterator[tuple[str, bytes]]:
    """The files of a directory by path, below ``under``."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(Path(under) / path.relative_to(folder)), path.read_bytes()
