"""``mobileprep.lock``: the files and versions that the recipes of a directory were built with.

The file has a section for each recipe in its directory, by file name. It has the same size limits
as recipes, and its problems are reported with their locations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from msgspec import Meta, Struct, convert, field
from msgspec.json import schema_components

from mobileprep.core.declare import Located
from mobileprep.recipe.files import read_source
from mobileprep.recipe.tree import MappingNode, SourceText, place_of, plain, recipe_error
from mobileprep.recipe.validate import schema_problems
from mobileprep.recipe.yaml_tree import parse_yaml

LOCK: Final = "mobileprep.lock"
_HEAD: Final = (
    "# Pinned inputs of the recipes in this directory. Written by 'mobileprep lock'; check it in.\n"
)
# Characters that YAML or variable substitution would not accept unchanged in double quotes.
_ESCAPED: Final = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff$]")


_Sha256: TypeAlias = Annotated[
    str,
    Meta(
        pattern="^[0-9a-f]{64}$(?!\\n)",
        extra_json_schema={
            "patternErrorMessage": "a sha256 has 64 hexadecimal digits in lower case"
        },
    ),
]


class Pins(Struct, frozen=True, forbid_unknown_fields=True):
    """The pinned inputs of a recipe.

    Args:
        mobileprep: version of this package.
        engines: version of each engine that stages may use, by name.
        files: SHA-256 of each external file, by its name in the recipe: models, data, and code of
            transforms.
        libraries: version of each library that computes or writes outputs, by name.
    """

    mobileprep: str
    engines: Mapping[str, str]
    files: Mapping[str, _Sha256]
    libraries: Mapping[str, str] = field(default_factory=dict)


class LockFile(Located, frozen=True):
    """The lock file of a directory.

    Args:
        path: path of the file, which may not exist yet.
        recipes: pins of each recipe, by file name.
    """

    path: Path
    recipes: Mapping[str, Pins]
    tree: MappingNode | None = None
    aside: ClassVar[frozenset[str]] = frozenset({"tree"})

    def place(self, *keys: str) -> str:
        """Return ``file:line:column`` of a key path below ``recipes``, or of the nearest parent."""
        return str(place_of(self.tree, ("recipes", *keys))) if self.tree else str(self.path)


def lock_path(recipe: Path) -> Path:
    """Return the path of the lock file next to a recipe."""
    return recipe.parent / LOCK


def read_lock(path: Path) -> LockFile | None:
    """Read a lock file; None if it does not exist."""
    if not path.is_symlink() and not path.exists():
        return None
    return _parsed(path, read_source(path))


def lock_text(lock: LockFile) -> str:
    """Return the content of a lock file; equal locks have equal bytes."""
    text = _HEAD + "version: 1\nrecipes:" + "".join(_lines(lock.recipes)) + "\n"
    _parsed(lock.path, SourceText(str(lock.path), lock.path.parent, text))
    return text


def _lines(recipes: Mapping[str, Pins]) -> Iterator[str]:
    if not recipes:
        yield " {}"
    for name, pins in sorted(recipes.items()):
        yield f"\n  {_quoted(name)}:\n    mobileprep: {_quoted(pins.mobileprep)}"
        libraries = (("libraries", pins.libraries),) if pins.libraries else ()
        for key, values in (*libraries, ("engines", pins.engines), ("files", pins.files)):
            yield f"\n    {key}:" + ("" if values else " {}")
            yield from (f"\n      {_quoted(k)}: {_quoted(v)}" for k, v in sorted(values.items()))


def _quoted(text: str) -> str:
    return _ESCAPED.sub(_escaped, json.dumps(text, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    return f"\\U{ord(match.group()):08x}"


def _parsed(path: Path, source: SourceText) -> LockFile:
    tree = parse_yaml(source)
    problems = schema_problems(tree, _schema())
    if problems:
        raise recipe_error(problems)
    return LockFile(path, convert(plain(tree)["recipes"], dict[str, Pins]), tree)


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    (pins,), definitions = schema_components([Pins], ref_template="#/$defs/{name}")
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["version", "recipes"],
        "properties": {
            "version": {"const": 1},
            "recipes": {"type": "object", "additionalProperties": pins},
        },
        "$defs": definitions,
    }
