"""Puts a target's files into its output folder, with a manifest, and takes stale ones away."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mobileprep.core.files import (
    file_inside,
    inside,
    remove_file,
    sha256_bytes,
    unfinished,
    write_bytes,
)
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.file_index import FileIndex
from mobileprep.pipeline.output import Output
from mobileprep.pipeline.published import MANIFEST, TOOL, held, listed
from mobileprep.pipeline.runner import Built
from mobileprep.pipeline.state import State
from mobileprep.pipeline.store import Store
from mobileprep.plan.spec import TargetPlan, Upstream


class ChangedOutputError(CorruptFileError):
    """An output was lost, and its stage has left another instead."""


@dataclass(frozen=True)
class Changes:
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
        built: what the target's stages left.
        extra: further files, by name.
        out: the output folder of the build.
        files: tells what bytes files have.

    Raises:
        ArtifactError: the target's name leads out of the folder.
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
        folder: the target's.
        name: the file's there.
        sha256, size: of the bytes that it should have.
        before: what the folder's manifest tells of its files.
        files: tells what bytes files have.

    Raises:
        ArtifactError: the name leads out of the folder.
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

    Args:
        built: what the target's stages left.
        extra: further files, by name.
        store: the store.
        out: the output folder of the build.
        obtain: makes sure that an output is at hand; without it the store has to have it.

    Raises:
        CorruptFileError: the store does not have an output any more.
        ChangedOutputError: it was lost, and what is made again is another.
        ArtifactError: a file cannot be written.
    """
    todo = changes(built, extra, out, store.files)
    store.fetch(built.files[name] for name in todo.write if name in built.files)
    for name in todo.write:
        path = file_inside(todo.folder, name)
        if name in built.files:
            if obtain is not None and obtain(built.origins[name]) != built.files[name]:
                message = f"what {built.origins[name].task} left is another by now"
                raise ChangedOutputError(message, "build again", str(path))
            store.publish(built.files[name], path)
        else:
            data = todo.manifest if name == MANIFEST else extra[name]
            write_bytes(path, data, follow=False)
            store.files.note(path, sha256_bytes(data))
    for name in todo.remove:
        _remove(todo.folder, name)
    return todo


def unpublish(folder: Path) -> list[str]:
    """Remove the files that a folder's manifest lists, and the folders left empty; their names.

    Raises:
        ArtifactError: one cannot be removed.
    """
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
    """Hash all that a plan reads and has published, on all processors, before it is asked for.

    Raises:
        CorruptFileError: an input file is missing or unreadable.
    """
    published = {p for t in state.plan.targets for p in held(inside(out, t.folder))}
    inputs = {file.path for spec in state.plan.stages for file in spec.input_files}
    files = state.store.files
    files.begin(sorted(published | inputs))
    for path in sorted(published | inputs):
        files.digest(path)


def made_of(target: TargetPlan, sources: Mapping[str, str]) -> dict[str, Any]:
    """What a target's manifest tells of all that its files are made of.

    Args:
        target: the target's plan.
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
