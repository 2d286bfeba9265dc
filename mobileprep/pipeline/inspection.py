"""Looks at every file of a store: what is damaged is found, and removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from mobileprep.errors import CorruptFileError
from mobileprep.frozen import dataclass
from mobileprep.fsio import unreadable
from mobileprep.pipeline.file_index import FileIndex
from mobileprep.pipeline.store import Store


@dataclass(frozen=True)
class Inspected:
    """What was found in a store.

    Args:
        objects: how many objects are whole.
        object_bytes: what they take together.
        records: how many records are whole.
        incomplete: how many of these need an object that is not there; their stages run again
            once it is needed.
        damaged: the paths below the store's folder of what was damaged.
    """

    objects: int
    object_bytes: int
    records: int
    incomplete: int
    damaged: tuple[str, ...]


def inspect(store: Store) -> Inspected:
    """Hash every object, read every record, and remove what is damaged.

    Raises:
        CorruptFileError: the store cannot be read.
    """
    objects = list(_entries(store.folder / "cas"))
    sizes = [_size(path) for path in objects]
    wanted = [(path, path.name, size) for path, size in zip(objects, sizes, strict=True)]
    # Of nothing that was hashed before: that is what this is for.
    whole = FileIndex(None).match_many(wanted)
    damaged = [path for path, good in zip(objects, whole, strict=True) if not good]
    _remove(damaged)
    records = list(_entries(store.folder / "ac"))
    bad = [path for path in records if not store.is_record(path)]
    _remove(bad)
    good = sorted(set(records) - set(bad))
    return Inspected(
        sum(whole),
        sum(size for size, is_whole in zip(sizes, whole, strict=True) if is_whole),
        len(good),
        sum(not _is_complete(store, path) for path in good),
        tuple(sorted(path.relative_to(store.folder).as_posix() for path in (*damaged, *bad))),
    )


def _is_complete(store: Store, record: Path) -> bool:
    try:
        return all(map(os.path.exists, map(store.objects.path, store.references(record))))
    except CorruptFileError:
        return False


def _entries(folder: Path) -> Iterator[Path]:
    """What stands in the folders of a folder, whatever it is; not what is being written."""
    for shard in _listed(folder):
        if shard.is_symlink() or not shard.is_dir():
            yield shard
            continue
        yield from (path for path in _listed(shard) if not path.name.startswith("."))


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(folder, error) from error


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _remove(paths: list[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(path.lstat().st_mode):
                shutil.rmtree(path)
            else:
                path.unlink()
