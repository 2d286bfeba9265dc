"""Looks at every file of a store: what is damaged is found, and removed."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from mobileprep.core.files import unreadable
from mobileprep.errors import CorruptFileError
from mobileprep.frozen import dataclass
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
        stuck: those of them that could not be removed.
    """

    objects: int
    object_bytes: int
    records: int
    incomplete: int
    damaged: tuple[str, ...]
    stuck: tuple[str, ...]


def inspect(store: Store) -> Inspected:
    """Hash every object, read every record, and remove what is damaged.

    Raises:
        CorruptFileError: the store cannot be read.
    """
    objects = list(_entries(store.folder / "cas"))
    whole = _whole(objects)
    # Meanwhile a build may have mended one, and another command may have removed one.
    left = [path for path in objects if path not in whole and os.path.lexists(path)]
    whole |= _whole(left)
    damaged = [path for path in left if path not in whole]
    stuck = _remove(damaged)
    records = list(_entries(store.folder / "ac"))
    good = [path for path in records if store.is_record(path)]
    bad = [path for path in sorted({*records} - {*good}) if os.path.lexists(path)]
    stuck += _remove(bad)
    return Inspected(
        len(whole),
        sum(whole.values()),
        len(good),
        sum(_is_incomplete(store, path) for path in good),
        _names([*damaged, *bad], store),
        _names(stuck, store),
    )


def _names(paths: list[Path], store: Store) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(store.folder).as_posix() for path in paths))


def _whole(objects: list[Path]) -> dict[Path, int]:
    """The lengths of those of some objects that have the bytes of their digests."""
    sizes = [_size(path) for path in objects]
    wanted = [(path, path.name, size) for path, size in zip(objects, sizes, strict=True)]
    # Of nothing that was hashed before: that is what this is for.
    found = FileIndex(None).match_many(wanted)
    return {path: size for path, size, good in zip(objects, sizes, found, strict=True) if good}


def _is_incomplete(store: Store, record: Path) -> bool:
    try:
        paths = list(map(store.objects.path, store.references(record)))
    except CorruptFileError:
        return os.path.lexists(record)  # it may have been removed meanwhile
    return not all(map(os.path.exists, paths)) and os.path.lexists(record)


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


def _remove(paths: list[Path]) -> list[Path]:
    """Remove what is damaged; what the system would not let us remove."""
    stuck = []
    for path in paths:
        try:
            if stat.S_ISDIR(path.lstat().st_mode):
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            continue  # another command was first
        except OSError:
            stuck.append(path)
    return stuck
