"""What a build that had nothing to do went by: as long as it holds, the next has nothing to do.

To read recipes, plan them and judge every stage takes a fifth of a second, most of it importing
what does so. A note says what all of that came from: files with their digests, folders with the
names in them, the records of stages, and what was published. Nothing here knows recipes or plans.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from mobileprep.building.pipeline.cache_files import mark_used, seal, unseal
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.core.files import read_file, sha256_bytes, write_bytes
from mobileprep.core.frozen import dataclass
from mobileprep.errors import ArtifactError, CorruptFileError

_MOST_NOTE: Final = 16 << 20
_MOST_NAMES: Final = 10_000


@dataclass(frozen=True)
class Unchanged:
    """A build that had nothing to do. Paths are absolute; folders count by ``names_in``.

    Args:
        code: what ``code_stamp`` says of the modules that judged it.
        inputs: the sha256 of each file that it read.
        folders: the names in each folder that it looked into.
        records: the sha256 of the file of each stage's record.
        places: where target folders are once links are followed.
        published: the sha256 and the length of each file in a target's folder.
        beside: the names in the target folders.
        entries: what an index of files has of those that are large.
        targets: the target folders, as they are told of.
        stages: how many there are.
    """

    code: Mapping[str, str]
    inputs: Mapping[str, str]
    folders: Mapping[str, str]
    records: Mapping[str, str]
    places: Mapping[str, str]
    published: Mapping[str, tuple[str, int]]
    beside: Mapping[str, str]
    entries: Mapping[str, str]
    targets: tuple[str, ...]
    stages: int

    def files(self, *, checksum: bool) -> FileIndex:
        """What is known of the files; with ``checksum`` all are hashed, which has begun then."""
        index = FileIndex(None, checksum=checksum, kept=self.entries)
        if checksum:
            index.begin(map(Path, (*self.inputs, *self.published)))
        return index

    def inputs_hold(self, files: FileIndex) -> bool:
        """Whether all that judges, and all that it reads outside target folders, is as it was."""
        try:
            return (
                all(code_stamp(path) == stamp for path, stamp in self.code.items())
                and all(names_in(path) == names for path, names in self.folders.items())
                and all(digest_of(path) == found for path, found in self.records.items())
                and all(files.digest(Path(path)) == found for path, found in self.inputs.items())
            )
        except CorruptFileError:
            return False

    def outputs_hold(self, files: FileIndex) -> bool:
        """Whether the target folders are as they were; nobody else works on them now."""
        if any(os.path.realpath(path) != place for path, place in self.places.items()):
            return False
        try:
            if any(names_in(path) != names for path, names in self.beside.items()):
                return False
        except CorruptFileError:
            return False
        wanted = [(Path(path), *found) for path, found in self.published.items()]
        return all(files.match_many(wanted))

    def mark_used(self) -> None:
        """Note that the records are used now, so that the store keeps them."""
        for path in self.records:
            mark_used(Path(path))


def note_file(store: Path, key: str) -> Path:
    """Where a note of that key lies in a store's folder."""
    return store / "unchanged" / f"{key}.json"


def load_note(store: Path, key: str) -> Unchanged | None:
    """The note of that key; None where there is none, or it is damaged."""
    path = note_file(store, key)
    try:
        data = unseal(key, read_file(path, limit=_MOST_NOTE))
        note = Unchanged(**data)  # type: ignore[arg-type]
    except (CorruptFileError, TypeError):
        return None
    mark_used(path)
    return note


def save_note(store: Path, key: str, note: Unchanged) -> None:
    """Keep a note; one that cannot be written is none, and no error."""
    data = seal(key, asdict(note))
    if len(data) <= _MOST_NOTE:
        with contextlib.suppress(ArtifactError, OSError):
            write_bytes(note_file(store, key), data, follow=False)


def names_in(folder: str) -> str:
    """A digest of the names in a folder, and of what each is: file, folder, or neither."""
    try:
        with os.scandir(folder) as entries:
            found = [f"{e.name}\0{int(e.is_file())}{int(e.is_dir())}" for e in entries]
    except OSError as error:
        message = f"cannot be listed: {error.strerror}"
        raise CorruptFileError(message, "", folder) from error
    if len(found) > _MOST_NAMES:
        message = f"has more than {_MOST_NAMES} names"
        raise CorruptFileError(message, "", folder)
    return sha256_bytes(os.fsencode("\0".join(sorted(found))))


def code_stamp(path: str) -> str:
    """What tells whether a module is as it was, as Python's own cache of modules does."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of some hundred files, on the way to a quick answer
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise CorruptFileError(message, "", path) from error
    return f"{found.st_size} {found.st_mtime_ns}"


def digest_of(path: str) -> str:
    """The sha256 of a small file that is read whole."""
    return sha256_bytes(read_file(Path(path), limit=_MOST_NOTE))
