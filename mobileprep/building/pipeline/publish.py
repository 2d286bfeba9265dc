"""Puts a target's files into its output folder, with a manifest, and takes stale ones away."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from mobileprep import __version__
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.runner import Built
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.fingerprints import digest_text
from mobileprep.building.plan.spec import TargetPlan, Upstream
from mobileprep.core.files import (
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


class Changes(Struct, frozen=True):
    """What brings a target's folder up to date.

    Args:
        folder: the folder.
        write: the names of files that are missing or have other bytes, manifest last.
        remove: the names of files that an earlier build left and this one does not, whole or not.
        manifest: the manifest's bytes.
    """

    folder: Path
    write: tuple[str, ...]
    remove: tuple[str, ...]
    manifest: bytes

    def __bool__(self) -> bool:
        return bool(self.write or self.remove)


def changes(built: Built, extra: Mapping[str, bytes], out: Path, files: FileIndex) -> Changes:
    """Compare a target's folder with what it should hold.

    Args:
        files: tells what bytes files have.
    """
    folder = inside(out, built.target.folder)
    wanted = {name: (output.sha256, output.size) for name, output in built.files.items()}
    wanted.update({name: (sha256_bytes(data), len(data)) for name, data in extra.items()})
    manifest = _manifest(built, {name: digest for name, (digest, _) in wanted.items()})
    before = listed(folder)
    write = [
        name
        for name, (sha256, size) in sorted(wanted.items())
        if not stays(folder, name, sha256, size, before, files)
    ]
    if write or not files.matches(folder / MANIFEST, sha256_bytes(manifest), len(manifest)):
        write.append(MANIFEST)
    left = (set(before) - set(wanted)) | set(_unfinished(folder, [*wanted, MANIFEST]))
    remove = sorted(left)
    return Changes(folder, tuple(write), tuple(remove), manifest)


def stays(
    folder: Path, name: str, sha256: str, size: int, before: Mapping[str, str], files: FileIndex
) -> bool:
    """Whether a target's file stays untouched: it has the bytes that it should have.

    What was of other bytes when the folder was last whole is not worth a look.

    Args:
        sha256, size: of the bytes that it should have.
        files: tells what bytes files have.
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
    """Bring a target's folder up to date; what was done.

    Files whose bytes are right stay untouched. A link is replaced, wherever it leads: what is
    behind it may be another output, or none of ours. The manifest is written last, so that a folder
    with a fitting manifest is whole.
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
    """Remove the files that a folder's manifest lists, and the folders left empty; their names."""
    names = published_names(folder)
    for name in (*names, *_unfinished(folder, [*names, MANIFEST])):
        _remove(folder, name)
    if names:
        with contextlib.suppress(OSError):
            (folder / MANIFEST).unlink()
            folder.rmdir()
            folder.parent.rmdir()
    return names


def published_names(folder: Path) -> list[str]:
    """The files that a folder's manifest lists, which ``unpublish`` would remove."""
    return sorted(listed(folder))


def hash_all(state: State, out: Path) -> None:
    """Hash all that a plan reads and has published, on all processors, before it is asked for."""
    published = {p for t in state.plan.targets for p in held(inside(out, t.folder))}
    inputs = {file.path for spec in state.plan.stages for file in spec.input_files}
    files = state.store.files
    files.begin(sorted(published | inputs))
    for path in sorted(published | inputs):
        files.digest(path)


def made_of(target: TargetPlan, sources: Mapping[str, str]) -> dict[str, Any]:
    """What a target's manifest tells of all that its files are made of.

    Args:
        sources: the sha256 of each file from outside, by name.
    """
    return {
        "tool": TOOL,
        "recipe": target.recipe,
        "target": target.target,
        "settings": target.settings,
        "sources": {name: {"sha256": digest} for name, digest in sources.items()},
    }


def _manifest(built: Built, files: Mapping[str, str]) -> bytes:
    listing = {name: {"sha256": digest} for name, digest in files.items()}
    data = {**made_of(built.target, built.sources), "files": listing}
    return (json.dumps(data, sort_keys=True, indent=1) + "\n").encode()


def _unfinished(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """What a killed build has left of files that it was about to write."""
    paths = [Path(name) for name in names]
    for parent in {path.parent for path in paths}:
        here = {path.name for path in paths if path.parent == parent}
        for name in unfinished(folder / parent, here):
            yield (parent / name).as_posix()


def _remove(folder: Path, name: str) -> None:
    try:
        path = file_inside(folder, name)
    except (ValueError, ArtifactError):
        return  # a manifest that points elsewhere is not ours
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - never raise
        return
    remove_file(path)
    with contextlib.suppress(OSError):  # one holds something else
        for parent in itertools.takewhile(folder.resolve().__ne__, path.parents):
            parent.rmdir()


MANIFEST: Final = "manifest.json"


TOOL: Final = f"mobileprep {__version__}"
"""The generator that manifests and reports name."""


MOST_MANIFEST: Final = 64 << 20
"""No manifest is longer."""


def listed(folder: Path) -> dict[str, str]:
    """The digests of the files that an earlier build left, by name; none without a manifest."""
    try:
        found = manifest(folder)["files"]
        return {str(n): str(f["sha256"]) for n, f in found.items() if n != MANIFEST}
    except (LookupError, TypeError, AttributeError):
        return {}


def manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a folder tells, whoever wrote it; an empty dict without one."""
    path = folder / MANIFEST
    try:
        if path.is_symlink() or not path.is_file():
            return {}
        found = json.loads(read_bytes(path, limit=MOST_MANIFEST))
    except (CorruptFileError, OSError, ValueError):
        return {}
    except RecursionError:  # of lists in lists
        return {}
    return found if isinstance(found, dict) else {}


def held(folder: Path) -> Iterator[Path]:
    """The files of an earlier build that are still there, the manifest too."""
    for name in (*listed(folder), MANIFEST):
        with contextlib.suppress(ArtifactError, OSError, ValueError):
            path = file_inside(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


_HINT: Final = "build the folder again"


class Manifest(Struct, frozen=True):
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
    """The manifest of a folder."""
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
    """A folder that has a manifest, or else all such folders below it, sorted."""
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
    return CorruptFileError("is not a manifest of a build", _HINT, str(path))


def _refuse(error: OSError) -> None:
    raise unreadable(Path(error.filename), error) from error


def folder_reasons(todo: Changes, expected: Mapping[str, str]) -> list[str]:
    """What is to be done to a folder, and why; nothing where it is as it should be.

    Args:
        expected: the sha256 of each file that belongs there, by name.
    """
    obstacle = no_folder_above(todo.folder)
    if obstacle is None and not todo.folder.exists() and todo.write:
        return [f"{from_here(todo.folder)} does not exist"]
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
        yield f"{from_here(todo.folder / name)} remains from an earlier build"


def _reason(path: Path, expected: str, before: str | None) -> str:
    obstacle = no_folder_above(path)
    if obstacle is not None:
        return f"{from_here(obstacle)} is not a directory"
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
        return "is not a regular file"
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
