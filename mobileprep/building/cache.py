"""The store of what stages have left: what it holds, and how to keep it small and whole."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from mobileprep.building.pipeline.cache_files import FORMAT, default_folder
from mobileprep.building.pipeline.eviction import (
    forget_notes,
    remove_unfinished,
    store_bound,
    survey,
)
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.output import sweep
from mobileprep.building.pipeline.store import Store
from mobileprep.building.pipeline.store_lock import alone, remove_folder
from mobileprep.core.files import unreadable
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.recipe.settings import SIGN_IN

Tell = Callable[[str], None]

_FORMAT_NAME: Final = re.compile(r"v[0-9]{1,4}")
_HINT: Final = "set MOBILEPREP_CACHE to another directory, or remove this file"


class StoreFormat(Struct, frozen=True):
    """A folder with what one format of stores has left.

    Args:
        name: the folder's.
        bytes: what its files take together.
        used: whether this version reads and writes it.
    """

    name: str
    bytes: int
    used: bool


class CacheInfo(Struct, frozen=True):
    """What the store holds.

    Args:
        folder: where it is.
        formats: the formats that are there.
        objects: how many files are kept.
        object_bytes: what they take together.
        records: how many runs of stages are known.
        record_bytes: what the records take together.
        oldest_use: when the record that has not been used for longest was used, in seconds since
            1970; null without records.
        newest_use: when a record was last used, within half an hour.
        limit_bytes: what the store may take; null for any number.
        remote: the remote store that MOBILEPREP_REMOTE_CACHE names, its user and password
            left out; null for none.
    """

    folder: str
    formats: tuple[StoreFormat, ...]
    objects: int
    object_bytes: int
    records: int
    record_bytes: int
    oldest_use: float | None
    newest_use: float | None
    limit_bytes: int | None
    remote: str | None


class CacheCollected(Struct, frozen=True):
    """What was removed of the store, and what is left.

    Args:
        folder: where it is.
        formats: the old formats that were removed.
        workspaces: how many folders of processes that are gone were removed.
        unfinished: how many files that were never finished were removed.
        objects: how many objects were removed.
        records: how many records were removed.
        removed_bytes: what the old formats, objects and records took.
        left_bytes: what objects and records take now.
        limit_bytes: what they may take; null for any number.
    """

    folder: str
    formats: tuple[str, ...]
    workspaces: int
    unfinished: int
    objects: int
    records: int
    removed_bytes: int
    left_bytes: int
    limit_bytes: int | None


class CacheVerified(Struct, frozen=True):
    """What of the store is whole.

    Args:
        folder: where it is.
        objects: how many objects have the bytes of their digests.
        object_bytes: what they take together.
        records: how many records are whole.
        incomplete: how many of these need an object that is not there; their stages run again
            once it is needed.
        damaged: the paths of what was damaged, and is removed.
        stuck: those of them that could not be removed.
    """

    folder: str
    objects: int
    object_bytes: int
    records: int
    incomplete: int
    damaged: tuple[str, ...]
    stuck: tuple[str, ...]


class CacheCleared(Struct, frozen=True):
    """What was removed of the store: all.

    Args:
        folder: where it is.
        formats: the formats that were removed.
        removed_bytes: what they took.
    """

    folder: str
    formats: tuple[str, ...]
    removed_bytes: int


def cache_info() -> CacheInfo:
    """What the user's store holds; nothing is written."""
    store = _store()
    facts = survey(store.folder)
    return CacheInfo(
        str(store.root),
        _formats(store.root),
        facts.objects,
        facts.object_bytes,
        facts.records,
        facts.record_bytes,
        facts.oldest_use,
        facts.newest_use,
        store_bound(os.environ),
        shown_remote(os.environ.get("MOBILEPREP_REMOTE_CACHE", "")),
    )


def cache_gc(limit: int | None, *, wait: bool, tell: Tell) -> CacheCollected:
    """Remove old formats, what killed processes have left, and what was used least recently.

    Args:
        limit: how many bytes objects and records may take, None for any number.
        tell: called with a sentence before a longer wait, and of a link that was removed.
    """
    store = _store()
    old = [one for one in _formats(store.root) if _number(one.name) < _number(FORMAT)]
    if not store.folder.is_dir():
        freed = sum(_removed(store.root / one.name, tell) for one in old)
        names = tuple(one.name for one in old)
        return CacheCollected(str(store.root), names, 0, 0, 0, 0, freed, 0, limit)
    with alone(store.folder, wait=wait, tell=tell):
        freed = sum(_removed(store.root / one.name, tell) for one in old)
        workspaces = sweep(store.folder / "tmp")
        unfinished = remove_unfinished(store.folder)
        freed += 0 if limit is None else forget_notes(store.folder, limit)
        facts = survey(store.folder)
        held = facts.object_bytes + facts.record_bytes
        done = store.collect(held if limit is None else limit)
    return CacheCollected(
        str(store.root),
        tuple(one.name for one in old),
        workspaces,
        unfinished,
        done.objects,
        done.records,
        freed + done.removed_bytes,
        done.left_bytes,
        limit,
    )


def cache_verify() -> CacheVerified:
    """Hash every object, check every record, and remove what is damaged."""
    store = _store()
    found = inspect(store)
    damaged, stuck = (
        tuple(str(store.folder / name) for name in names) for names in (found.damaged, found.stuck)
    )
    return CacheVerified(
        str(store.root),
        found.objects,
        found.object_bytes,
        found.records,
        found.incomplete,
        damaged,
        stuck,
    )


def cache_clear(*, wait: bool, tell: Tell) -> CacheCleared:
    """Remove all that stores of any format have left."""
    store = _store()
    formats = _formats(store.root)
    if not store.folder.is_dir():
        freed = sum(_removed(store.root / one.name, tell) for one in formats)
    else:
        with alone(store.folder, wait=wait, tell=tell):
            freed = sum(_removed(store.root / one.name, tell) for one in formats)
    return CacheCleared(str(store.root), tuple(one.name for one in formats), freed)


def empty_store(*, wait: bool, tell: Tell) -> None:
    """Remove what this version's store has left."""
    store = _store()
    if not os.path.lexists(store.folder):
        return
    with alone(store.folder, wait=wait, tell=tell):
        _removed(store.folder, tell)


def shown_remote(url: str) -> str | None:
    """The address of a remote store without what it may hold for signing in; None for none."""
    if not url:
        return None
    scheme, mark, rest = url.partition("://")
    try:
        parts = urlsplit(scheme + mark + SIGN_IN.sub("", rest))
    except ValueError:  # nobody knows where in it a password is
        return "an address that cannot be read"
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def folder_bytes(folder: Path) -> int:
    """The bytes of all files below a folder; those that go away meanwhile do not count."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{above}{os.sep}{name}").st_size
            except OSError:
                continue
    return total


def _store() -> Store:
    folder = default_folder()
    if os.path.lexists(folder) and not folder.is_dir():
        message = "the cache is not a directory"
        raise CorruptFileError(message, _HINT, str(folder))
    return Store(folder)


def _formats(root: Path) -> tuple[StoreFormat, ...]:
    """The folders of formats; what else is there belongs to somebody else."""
    try:
        names = sorted(
            (p.name for p in root.iterdir() if _FORMAT_NAME.fullmatch(p.name)), key=_number
        )
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unreadable(root, error) from error
    return tuple(StoreFormat(n, folder_bytes(root / n), n == FORMAT) for n in names)


def _number(name: str) -> int:
    return int(name[1:])


def _removed(folder: Path, tell: Tell) -> int:
    """Remove a format's folder, or the link to one; the bytes that went."""
    is_link = folder.is_symlink()
    size = 0 if is_link else folder_bytes(folder)
    try:
        if is_link or not folder.is_dir():
            folder.unlink()
        else:
            remove_folder(folder)
    except FileNotFoundError:
        return size  # another process was first
    except OSError as error:
        message = f"cannot be removed: {error.strerror or error}"
        raise ArtifactError(message, "check its rights", str(folder)) from error
    if is_link:
        tell(f"{folder} is a symlink: its target is kept")
    return size


class Inspected(Struct, frozen=True):
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
    """Hash every object, read every record, and remove what is damaged."""
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
