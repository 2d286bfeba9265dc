"""Publish a target's files and manifest to its output directory, and remove stale files."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, ValidationError, convert

from mobileprep import __version__
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.runner import Built
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.fingerprints import digest_text
from mobileprep.building.plan.spec import Upstream
from mobileprep.core.files import (
    NONSENSE,
    file_inside,
    inside,
    read_bytes,
    remove_file,
    sha256_bytes,
    sha256_file,
    unfinished,
    unreadable,
    write_bytes,
)
from mobileprep.core.paths import no_folder_above
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.formats.parts import Digest


class Changes(Struct, frozen=True):
    """The changes that bring a target's directory up to date.

    Args:
        folder: output directory of the target.
        write: names of missing or different files, with the manifest last.
        remove: names of obsolete and partially written files of earlier builds.
        manifest: content of the manifest.
    """

    folder: Path
    write: tuple[str, ...]
    remove: tuple[str, ...]
    manifest: bytes

    def __bool__(self) -> bool:
        return bool(self.write or self.remove)


def changes(built: Built, extra: Mapping[str, bytes], out: Path, files: FileIndex) -> Changes:
    """Compare a target's directory with its expected content.

    Args:
        built: outputs of the target's stages.
        extra: content of additional files by name.
        out: output directory of the build.
        files: index of file digests.
    """
    folder = inside(out, built.target.folder)
    expected = {name: (output.sha256, output.size) for name, output in built.files.items()}
    expected.update({name: (sha256_bytes(data), len(data)) for name, data in extra.items()})
    manifest = _manifest(built, {name: digest for name, (digest, _) in expected.items()})
    before = listed(folder)
    write = [
        name
        for name, (sha256, size) in sorted(expected.items())
        if not stays(folder, name, sha256, size, before, files)
    ]
    if write or not files.matches(folder / MANIFEST, sha256_bytes(manifest), len(manifest)):
        write.append(MANIFEST)
    superfluous = (set(before) - set(expected)) | set(_unfinished(folder, [*expected, MANIFEST]))
    remove = sorted(superfluous)
    return Changes(folder, tuple(write), tuple(remove), manifest)


def stays(
    folder: Path, name: str, sha256: str, size: int, before: Mapping[str, str], files: FileIndex
) -> bool:
    """Return whether a target's file already has the expected content.

    If the last manifest lists a different digest, the file is not checked.

    Args:
        folder: output directory of the target.
        name: name of the file.
        sha256, size: expected digest and size.
        before: digests of the last manifest by name.
        files: index of file digests.
    """
    if before.get(name, sha256) != sha256:
        return False
    return files.matches(file_inside(folder, name), sha256, size)


def publish(
    built: Built,
    extra: Mapping[str, bytes],
    store: Store,
    out: Path,
    obtain: Callable[[Upstream], Output] | None = None,
) -> Changes:
    """Bring a target's directory up to date and return the changes.

    Files with the right content are not touched. A symlink is replaced, never followed, because its
    target may not belong to this build. The manifest is written last, so that a directory with a
    matching manifest is complete.

    Args:
        built: outputs of the target's stages.
        extra: content of additional files by name.
        store: cache with the outputs.
        out: output directory of the build.
        obtain: makes an output available locally before it is written.
    """
    todo = changes(built, extra, out, store.files)
    store.fetch(built.files[name] for name in todo.write if name in built.files)
    for name in todo.write:
        path = file_inside(todo.folder, name)
        if name in built.files:
            if obtain is not None:
                obtain(built.origins[name])
            store.publish(built.files[name], path)
        else:
            data = todo.manifest if name == MANIFEST else extra[name]
            write_bytes(path, data, follow=False)
            store.files.note(path, sha256_bytes(data))
    for name in todo.remove:
        _remove(todo.folder, name)
    return todo


def unpublish(folder: Path) -> list[str]:
    """Remove the files of a manifest and directories that become empty; return the names."""
    names = sorted(listed(folder))
    for name in (*names, *_unfinished(folder, [*names, MANIFEST])):
        _remove(folder, name)
    if names:
        with contextlib.suppress(OSError):
            (folder / MANIFEST).unlink()
            folder.rmdir()
            folder.parent.rmdir()
    return names


def _manifest(built: Built, files: Mapping[str, str]) -> bytes:
    listing = {name: {"sha256": digest} for name, digest in files.items()}
    data = {
        "tool": TOOL,
        "recipe": built.target.recipe,
        "target": built.target.target,
        "settings": built.target.settings,
        "sources": {name: {"sha256": digest} for name, digest in built.sources.items()},
        "files": listing,
    }
    return (json.dumps(data, sort_keys=True, indent=1) + "\n").encode()


def _unfinished(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the temporary files of a killed build."""
    paths = [Path(name) for name in names]
    for parent in {path.parent for path in paths}:
        here = {path.name for path in paths if path.parent == parent}
        for name in unfinished(folder / parent, here):
            yield (parent / name).as_posix()


def _remove(folder: Path, name: str) -> None:
    try:
        path = file_inside(folder, name)
    except (ValueError, ArtifactError):
        return  # invalid manifest that points outside the directory
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - Path raises for invalid names
        return
    remove_file(path)
    with contextlib.suppress(OSError):  # not empty
        for parent in itertools.takewhile(folder.resolve().__ne__, path.parents):
            parent.rmdir()


MANIFEST: Final = "manifest.json"


TOOL: Final = f"mobileprep {__version__}"
"""Name and version of the generator in manifests and reports."""


MOST_MANIFEST: Final = 64 << 20
"""Maximum size of a manifest in bytes."""


def listed(folder: Path) -> dict[str, str]:
    """Return the digests of a directory's published files by name; empty without a manifest."""
    if os.path.islink(folder / MANIFEST):  # noqa: PTH114 - Path raises for long names
        return {}
    try:
        files = read_manifest(folder).files
    except CorruptFileError:
        return {}
    return {name: digest for name, digest in files.items() if name != MANIFEST}


_HINT: Final = "build the folder again"


class Manifest(Struct, frozen=True):
    """The manifest of a target's directory.

    Args:
        tool: program and version, such as ``mobileprep 1.2``.
        recipe: name of the recipe.
        target: directory of the target, relative to the recipe's directory.
        settings: settings of the target in the recipe.
        sources: SHA-256 of each input file, by its name in the recipe.
        files: SHA-256 of each file in the directory except the manifest.
        sha256: digest of the manifest itself.
    """

    tool: str
    recipe: str
    target: str
    settings: Mapping[str, Any]
    sources: Mapping[str, str]
    files: Mapping[str, str]
    sha256: str


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a directory.

    Raises:
        CorruptFileError: the manifest is missing or invalid.
    """
    path = folder / MANIFEST
    data = read_bytes(path, limit=MOST_MANIFEST)
    try:
        content = convert(json.loads(data), _Content)
    except (ValidationError, *NONSENSE) as error:
        message = "is not a manifest of a build"
        raise CorruptFileError(message, _HINT, str(path)) from error
    sources, files = (
        {name: file.sha256 for name, file in listing.items()}
        for listing in (content.sources, content.files)
    )
    settings = content.settings
    return Manifest(
        content.tool, content.recipe, content.target, settings, sources, files, sha256_bytes(data)
    )


class _File(Struct, frozen=True):
    sha256: Digest


class _Content(Struct, frozen=True):
    """The JSON of a manifest."""

    tool: str
    recipe: str
    target: str
    settings: dict[str, Any]
    sources: dict[str, _File]
    files: dict[str, _File]


def manifest_folders(top: Path) -> list[Path]:
    """Return ``top`` if it has a manifest, else all directories below it that have one, sorted.

    Raises:
        CorruptFileError: no directory has a manifest.
    """
    folders: list[Path] = []
    for folder, below, files in os.walk(top, onerror=_refuse):
        if MANIFEST in files:
            folders.append(Path(folder))
            below.clear()
    if not folders:
        message = f"neither the folder nor any below it has a {MANIFEST}"
        raise CorruptFileError(message, "name the folder for outputs of a build", str(top))
    return sorted(folders)


def _refuse(error: OSError) -> None:
    raise unreadable(Path(error.filename), error) from error


def folder_reasons(todo: Changes, expected: Mapping[str, str]) -> list[str]:
    """Explain the changes to a directory; empty if it is up to date.

    Args:
        todo: changes to explain.
        expected: SHA-256 of each expected file by name.
    """
    obstacle = no_folder_above(todo.folder)
    if obstacle is None and not todo.folder.exists() and todo.write:
        return [f"{from_here(todo.folder)} does not exist"]
    # Several files may have the same reason, for example a missing directory.
    return list(dict.fromkeys(_reasons(todo, expected)))


def expected_files(built: Built, extra: Mapping[str, bytes], todo: Changes) -> dict[str, str]:
    """Return the SHA-256 of each expected file of a target's directory, including the manifest."""
    return {
        **{name: output.sha256 for name, output in built.files.items()},
        **{name: sha256_bytes(data) for name, data in extra.items()},
        MANIFEST: sha256_bytes(todo.manifest),
    }


def _reasons(todo: Changes, expected: Mapping[str, str]) -> Iterator[str]:
    before = listed(todo.folder)
    for name in todo.write:
        # The manifest changes with any other file, so it is reported only on its own.
        if name != MANIFEST or len(todo.write) == 1:
            yield _reason(file_inside(todo.folder, name), expected[name], before.get(name))
    for name in todo.remove:
        yield f"{from_here(todo.folder / name)} remains from an earlier build"


def _reason(path: Path, expected: str, before: str | None) -> str:
    obstacle = no_folder_above(path)
    if obstacle is not None:
        return f"{from_here(obstacle)} is not a directory"
    return f"{from_here(path)} {_fault(path, expected, before)}"


def _fault(path: Path, expected: str, before: str | None) -> str:
    """Describe the problem of a file as the end of a sentence.

    Args:
        path: file to check.
        expected: SHA-256 that it should have.
        before: SHA-256 in the last manifest, if it lists the file.
    """
    if path.is_symlink():
        return "is a link"
    if not path.exists():
        return "is missing"
    if not path.is_file():
        return "is not a regular file"
    try:
        digest = sha256_file(path)
    except CorruptFileError as error:
        return error.message
    shown = digest_text(digest)
    if digest == expected:
        original = digest_text(before or "none")
        return f"is not what {MANIFEST} says: its sha256 is {shown}, and not {original}"
    how = "is of an earlier build" if digest == before else "was altered"
    return f"{how}: its sha256 is {shown}, expected {digest_text(expected)}"


def from_here(path: Path) -> str:
    """Return a path relative to the working directory if it is below it, avoiding ``..``.

    Tools that compare paths as strings, such as doit and Make, need one spelling per file.
    """
    if ".." in path.parts:
        plain = os.path.normpath(path)
        # After a symlink, ``..`` differs from the lexical parent.
        path = Path(plain) if os.path.realpath(plain) == os.path.realpath(path) else path
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
