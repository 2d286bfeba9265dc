"""Why a target's folder is not what its stages left, file by file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mobileprep.errors import CorruptFileError
from mobileprep.fsio import inside, read_file, sha256_bytes, sha256_file
from mobileprep.pipeline.publish import Changes
from mobileprep.pipeline.published import MANIFEST, MOST_MANIFEST
from mobileprep.pipeline.runner import Built
from mobileprep.plan.fingerprints import digest_text


def folder_reasons(todo: Changes, expected: Mapping[str, str]) -> list[str]:
    """What is to be done to a folder, and why; nothing where it is as it should be.

    Args:
        todo: what brings the folder up to date.
        expected: the sha256 of each file that belongs there, by name.
    """
    if not todo.folder.exists() and todo.write:
        return [f"{from_here(todo.folder)} is not there"]
    return list(_reasons(todo, expected))


def expected_files(built: Built, extra: Mapping[str, bytes], todo: Changes) -> dict[str, str]:
    """The sha256 of each file that a target's folder should hold, its manifest included."""
    return {
        **{name: output.sha256 for name, output in built.files.items()},
        **{name: sha256_bytes(data) for name, data in extra.items()},
        MANIFEST: sha256_bytes(todo.manifest),
    }


def _reasons(todo: Changes, expected: Mapping[str, str]) -> Iterator[str]:
    before = _noted(todo.folder)
    for name in todo.write:
        # The manifest is written with whatever else is, so that alone would be no news.
        if name != MANIFEST or len(todo.write) == 1:
            path = inside(todo.folder, name)
            yield f"{from_here(path)} {_fault(path, expected[name], before.get(name))}"
    for name in todo.remove:
        yield f"{from_here(todo.folder / name)} is left from an earlier build"


def _fault(path: Path, expected: str, before: str | None) -> str:
    """What is wrong with a file, as the end of a sentence."""
    if not path.exists():
        return "is missing"
    if not path.is_file():
        return "is no regular file"
    try:
        found = sha256_file(path)
    except CorruptFileError as error:
        return error.message
    told = "is of an earlier build" if found == before else "was altered"
    return f"{told}: its sha256 is {digest_text(found)}, expected {digest_text(expected)}"


def _noted(folder: Path) -> dict[str, str]:
    """The digests in a folder's manifest, which tell what the last build there left."""
    try:
        files = json.loads(read_file(folder / MANIFEST, limit=MOST_MANIFEST))["files"]
        return {str(name): str(facts["sha256"]) for name, facts in files.items()}
    except (CorruptFileError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def from_here(path: Path) -> str:
    """A path from the current folder on, where it lies below that; without ``..`` where it can be.

    Tools that compare paths as text, as doit and Make do, know a file by one spelling.
    """
    if ".." in path.parts:
        plain = os.path.normpath(path)
        # Behind a link ``..`` leads elsewhere than the text says.
        path = Path(plain) if os.path.realpath(plain) == os.path.realpath(path) else path
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
