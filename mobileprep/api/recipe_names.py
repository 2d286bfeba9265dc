"""Names for first recipes: from the model's file or folder, and no other recipe's."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mobileprep.core.paths import opened

# What exporters call every model: it tells nothing of this one.
_GENERIC: Final = re.compile(
    r"(v?\d+|saved_?model|exports?|variables|checkpoints?|serving|frozen|"
    r"(frozen|optimized|eval|inference|output|train|training|test|tf|my|the|_)*(graph|model)"
    r"(_?def|\d+)?|(model|train|training|checkpoint|export)?\.?ckpt(-\d+)?|model-\d+|models?|"
    r"build|out|output|tmp|data|assets|public|src|app)\Z",
    re.IGNORECASE,
)
_SUFFIXES: Final = re.compile(r"(\.(pb|pbtxt|meta|index|bin|tf|graphdef))+\Z", re.IGNORECASE)
_NAMED: Final = re.compile(r"name:[ \t]*[\"']?([A-Za-z0-9][A-Za-z0-9._-]*)")
_LONGEST: Final = 80
_LOOKED_AT: Final = 500
_HEAD: Final = 1 << 16


def recipe_name(model: Path, recipe: Path) -> str:
    """A name that tells the model, and that no recipe here or near the new one has.

    Outputs go by the names of recipes: two of one name would overwrite each other's.

    Args:
        model: the model's file or folder.
        recipe: where the recipe will be.
    """
    path = Path(os.path.abspath(model))  # noqa: PTH100 - links keep the name that the user sees
    stem = _clean(_SUFFIXES.sub("", path.name))
    names = [stem, *(_clean(p.name) for p in path.parents)]
    told = next((n for n in names if n and not _GENERIC.match(n)), "") or stem or "model"
    taken = set(_taken(recipe))
    numbered = (f"{told}-{number}" for number in itertools.count(2))
    longer = [f"{told}-{stem}"] if stem and stem != told else []
    return next(n for n in itertools.chain([told], longer, numbered) if n not in taken)


def _clean(name: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return kept.strip("._-")[:_LONGEST].rstrip("._-")


def _taken(recipe: Path) -> Iterator[str]:
    """The names of recipes beside the new one, here, and up to two folders below."""
    below = _folders(Path.cwd())
    near = [*below, *(inner for folder in below for inner in _folders(folder))]
    folder = Path(os.path.abspath(recipe)).parent  # noqa: PTH100 - as above
    folders = dict.fromkeys([folder, Path.cwd(), *near[:_LOOKED_AT]])
    files = (
        path
        for place in folders
        for path in _listed(place)
        if path.suffix in (".yaml", ".yml") and path.is_file()
    )
    for path in itertools.islice(files, _LOOKED_AT):
        try:
            with opened(path) as stream:
                text = stream.read(_HEAD).decode("utf-8", "replace")
        except OSError:
            continue
        yield from (found[1] for line in text.splitlines() if (found := _NAMED.match(line)))


def _folders(folder: Path) -> list[Path]:
    return [p for p in _listed(folder) if p.is_dir() and not p.name.startswith(".")]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:_LOOKED_AT]
    except OSError:
        return []
