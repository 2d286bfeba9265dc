"""Why a target's folder is not what its stages left, file by file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mobileprep.building.pipeline.publish import MANIFEST, Changes, listed
from mobileprep.building.pipeline.runner import Built
from mobileprep.building.plan.fingerprints import digest_text
from mobileprep.core.files import file_inside, sha256_bytes, sha256_file
from mobileprep.core.paths import no_folder_above
from mobileprep.errors import CorruptFileError


def folder_reasons(todo: Changes, expected: Mapping[str, str]) -> list[str]:
    """What is to be done to a folder, and why; nothing where it is as it should be.

    Args:
        expected: the sha256 of each file that belongs there, by name.
    """
    obstacle = no_folder_above(todo.folder)
    if obstacle is None and not todo.folder.exists() and todo.write:
        return [f"{from_here(todo.folder)} is not there"]
    # Several files may tell of the same thing in the place of their folder.
    return list(dict.fromkeys(_reasons(todo, expected)))


def expected_files(built: Built, extra: Mapping[str, bytes], todo: Changes) -> dict[str, str]:
    """The sha256 of each file that a target's folder should hold, its manifest included."""
    return {
        **{name: output.sha256 for name, output in built.files.items()},
        **{name: sha256_bytes(data) for name, data in extra.items()},
        MANIFEST: sha256_bytes(todo.manifest),
    }


def _reasons(todo: Changes, expected: Mapping[str, str]) -> Iterator[str]:
    before = listed(todo.folder)
    for name in todo.write:
        # The manifest is written with whatever else is, so that alone would be no news.
        if name != MANIFEST or len(todo.write) == 1:
            yield _reason(file_inside(todo.folder, name), expected[name], before.get(name))
    for name in todo.remove:
        yield f"{from_here(todo.folder / name)} is left from an earlier build"


def _reason(path: Path, expected: str, before: str | None) -> str:
    obstacle = no_folder_above(path)
    if obstacle is not None:
        return f"{from_here(obstacle)} is no folder"
    return f"{from_here(path)} {_fault(path, expected, before)}"


def _fault(path: Path, expected: str, before: str | None) -> str:
    """What is wrong with a file, as the end of a sentence.

    Args:
        expected: the sha256 that it should have.
    """
    if path.is_symlink():
        return "is a link"
    if not path.exists():
        return "is missing"
    if not path.is_file():
        return "is no regular file"
    try:
        found = sha256_file(path)
    except CorruptFileError as error:
        return error.message
    told = digest_text(found)
    if found == expected:
        noted = digest_text(before or "none")
        return f"is not what {MANIFEST} says: its sha256 is {told}, and not {noted}"
    how = "is of an earlier build" if found == before else "was altered"
    return f"{how}: its sha256 is {told}, expected {digest_text(expected)}"


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
