"""Reads the manifests of output folders, which may have come from anywhere."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mobileprep.core.files import read_bytes, sha256_bytes, unreadable
from mobileprep.errors import CorruptFileError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.published import MANIFEST, MOST_MANIFEST

_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_HINT: Final = "build the folder again"


@dataclass(frozen=True)
class Manifest:
    """What a build has noted of a target's folder.

    Args:
        tool: the program and its version, ``mobileprep 1.2``.
        recipe: the recipe's name.
        target: the target's folder below the recipe's.
        settings: what the recipe says of the target.
        sources: the sha256 of each file that it was made from, by its name in the recipe.
        files: the sha256 of each file of the folder but the manifest.
        sha256: of the manifest itself.
    """

    tool: str
    recipe: str
    target: str
    settings: Mapping[str, Any]
    sources: Mapping[str, str]
    files: Mapping[str, str]
    sha256: str


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder.

    Raises:
        CorruptFileError: there is none, or it is none of ours.
    """
    path = folder / MANIFEST
    data = read_bytes(path, limit=MOST_MANIFEST)
    try:
        found = json.loads(data)
        tool, recipe, target = found["tool"], found["recipe"], found["target"]
        settings = found["settings"]
        sources, files = _digests(found["sources"]), _digests(found["files"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _none_of_ours(path) from error
    texts = all(isinstance(text, str) for text in (tool, recipe, target))
    if not texts or not isinstance(settings, dict):
        raise _none_of_ours(path)
    return Manifest(tool, recipe, target, settings, sources, files, sha256_bytes(data))


def manifest_folders(top: Path) -> list[Path]:
    """A folder that has a manifest, or else all such folders below it, sorted.

    Raises:
        CorruptFileError: there is none, or a folder cannot be listed.
    """
    found: list[Path] = []
    for folder, below, files in os.walk(top, onerror=_refuse):
        if MANIFEST in files:
            found.append(Path(folder))
            below.clear()
    if not found:
        message = f"neither the folder nor any below it has a {MANIFEST}"
        raise CorruptFileError(message, "name the folder for outputs of a build", str(top))
    return sorted(found)


def _digests(listed: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    digests = {name: facts["sha256"] for name, facts in listed.items()}
    if not all(isinstance(d, str) and _DIGEST.match(d) for d in digests.values()):
        message = "not a sha256"
        raise ValueError(message)
    return digests


def _none_of_ours(path: Path) -> CorruptFileError:
    return CorruptFileError("is no manifest of a build", _HINT, str(path))


def _refuse(error: OSError) -> None:
    raise unreadable(Path(error.filename), error) from error
