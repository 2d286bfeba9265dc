"""Source files of the package for tests that check its code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import mobileprep

PACKAGE = Path(mobileprep.__file__).parent


class Source(NamedTuple):
    """A module: its path below the package, its text, and its syntax tree."""

    path: str
    text: str
    tree: ast.Module


def sources() -> Iterator[Source]:
    """Parse each module of the package.

    Extract the facts that a test needs from each tree instead of keeping all trees: a complete
    list of trees takes much memory and slows down garbage collection.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        yield Source(path.relative_to(PACKAGE).as_posix(), text, ast.parse(text))
