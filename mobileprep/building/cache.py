"""Inspect, clean up, verify, and clear the build cache."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct, structs

from mobileprep.building.pipeline.cache_files import FORMAT, default_folder
from mobileprep.building.pipeline.eviction import (
    forget_notes,
    remove_unfinished,
    store_bound,
    survey,
)
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.locks import alone, remove_folder
from mobileprep.building.pipeline.output import sweep
from mobileprep.building.pipeline.store import Store
from mobileprep.core.files import unreadable
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.recipe.settings import SIGN_IN

Tell = Callable[[str], None]

_FORMAT_NAME: Final = re.compile(r"v[0-9]{1,4}")
_HINT: Final = "set MOBILEPREP_CACHE to another directory, or remove this file"


class StoreFormat(Struct, frozen=True):
    """The directory of one cache format.

    Args:
        name: name of the directory.
        bytes: total size of its files.
        used: whether this version reads and writes the format.
    """

    name: str
    bytes: int
    used: bool


class CacheInfo(Struct, frozen=True):
    """The contents of the cache.

    Args:
        folder: path of the cache.
        formats: cache formats that the directory contains.
        objects: number of stored files.
        object_bytes: total size of the objects.
        records: number of recorded stage runs.
        record_bytes: total size of the records.
        oldest_use: last use of the least recently used record, in seconds since 1970; null without
            records.
        newest_use: last use of the most recently used record, accurate to half an hour.
        limit_bytes: maximum size of the cache; null if unlimited.
        remote: URL of the remote cache from MOBILEPREP_REMOTE_CACHE, without user and password;
            null if there is none.
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
    """The result of removing unused data from the cache.

    Args:
        folder: path of the cache.
        formats: old formats that were removed.
        workspaces: number of removed work directories of dead processes.
        unfinished: number of removed partially written files.
        objects: number of removed objects.
        records: number of removed records.
        removed_bytes: size of the removed formats, objects, and records.
        left_bytes: size of the remaining objects and records.
        limit_bytes: maximum size of the cache; null if unlimited.
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
    """The result of verifying the cache.

    Args:
        folder: path of the cache.
        objects: number of objects whose content matches their digest.
        object_bytes: total size of these objects.
        records: number of valid records.
        incomplete: number of valid records with a missing object. Their stages run again when a
            build needs the object.
        damaged: paths of the damaged files, which are removed.
        stuck: paths of the damaged files that could not be removed.
    """

    folder: str
    objects: int
    object_bytes: int
    records: int
    incomplete: int
    damaged: tuple[str, ...]
    stuck: tuple[str, ...]


class CacheCleared(Struct, frozen=True):
    """The result of clearing the cache.

    Args:
        folder: path of the cache.
        formats: formats that were removed.
        removed_bytes: total size of the removed files.
    """

    folder: str
    formats: tuple[str, ...]
    removed_bytes: int


def cache_info() -> CacheInfo:
    """Summarize the user's cache without writing to it."""
    store = _store()
    return CacheInfo(
        str(store.root),
        _formats(store.root),
        **structs.asdict(survey(store.folder)),
        limit_bytes=store_bound(os.environ),
        remote=shown_remote(os.environ.get("MOBILEPREP_REMOTE_CACHE", "")),
    )


def cache_gc(limit: int | None, *, wait: bool, tell: Tell) -> CacheCollected:
    """Remove old formats, data of killed processes, and the least recently used data.

    Args:
        limit: maximum size of objects and records in bytes; None for no limit.
        wait: wait for builds that use the cache instead of failing.
        tell: receives a message before a longer wait and for each removed symlink.
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
    """Hash every object, check every record, and remove damaged files."""
    store = _store()
    objects = list(_entries(store.folder / "cas"))
    whole = _whole(objects)
    # A build may have repaired an object meanwhile, and another command may have removed one.
    suspects = [path for path in objects if path not in whole and os.path.lexists(path)]
    whole |= _whole(suspects)
    damaged = [path for path in suspects if path not in whole]
    stuck = _remove(damaged)
    records = list(_entries(store.folder / "ac"))
    good = [path for path in records if store.is_record(path)]
    bad = [path for path in {*records} - {*good} if os.path.lexists(path)]
    stuck += _remove(bad)
    return CacheVerified(
        str(store.root),
        len(whole),
        sum(whole.values()),
        len(good),
        sum(_is_incomplete(store, path) for path in good),
        tuple(sorted(map(str, [*damaged, *bad]))),
        tuple(sorted(map(str, stuck))),
    )


def cache_clear(*, wait: bool, tell: Tell) -> CacheCleared:
    """Remove the cache directories of all formats."""
    store = _store()
    formats = _formats(store.root)
    if not store.folder.is_dir():
        freed = sum(_removed(store.root / one.name, tell) for one in formats)
    else:
        with alone(store.folder, wait=wait, tell=tell):
            freed = sum(_removed(store.root / one.name, tell) for one in formats)
    return CacheCleared(str(store.root), tuple(one.name for one in formats), freed)


def empty_store(*, wait: bool, tell: Tell) -> None:
    """Remove the cache directory of this version's format."""
    store = _store()
    if not os.path.lexists(store.folder):
        return
    with alone(store.folder, wait=wait, tell=tell):
        _removed(store.folder, tell)


def shown_remote(url: str) -> str | None:
    """Return the URL of a remote cache without credentials, or None if it is empty."""
    if not url:
        return None
    scheme, mark, rest = url.partition("://")
    try:
        parts = urlsplit(scheme + mark + SIGN_IN.sub("", rest))
    except ValueError:  # invalid URL: the position of a password is unknown
        return "an address that cannot be read"
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def folder_bytes(folder: Path) -> int:
    """Return the total size of all files in a directory; ignore files that disappear meanwhile."""
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
    """Return the format directories; other entries are not part of the cache."""
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


def _removed(folder: Path, report_message: Tell) -> int:
    """Remove the directory of a format, or the symlink to it, and return the freed bytes."""
    is_link = folder.is_symlink()
    size = 0 if is_link else folder_bytes(folder)
    try:
        if is_link or not folder.is_dir():
            folder.unlink()
        else:
            remove_folder(folder)
    except FileNotFoundError:
        return size  # another process removed it
    except OSError as error:
        message = f"cannot be removed: {error.strerror or error}"
        raise ArtifactError(message, "check its rights", str(folder)) from error
    if is_link:
        report_message(f"{folder} is a symlink: its target is kept")
    return size


def _whole(objects: list[Path]) -> dict[Path, int]:
    """Return the sizes of the objects whose content matches their digest."""
    sizes = [_size(path) for path in objects]
    requests = [(path, path.name, size) for path, size in zip(objects, sizes, strict=True)]
    # Verification must not trust earlier hashes.
    matches = FileIndex(None).match_many(requests)
    return {path: size for path, size, good in zip(objects, sizes, matches, strict=True) if good}


def _is_incomplete(store: Store, record: Path) -> bool:
    try:
        paths = list(map(store.objects.path, store.references(record)))
    except CorruptFileError:
        return os.path.lexists(record)  # another process may have removed it
    return not all(map(os.path.exists, paths)) and os.path.lexists(record)


def _entries(folder: Path) -> Iterator[Path]:
    """Yield all entries of the subdirectories except unfinished files."""
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
    """Remove damaged files and return those that could not be removed."""
    stuck = []
    for path in paths:
        try:
            if stat.S_ISDIR(path.lstat().st_mode):
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            continue  # another command removed it
        except OSError:
            stuck.append(path)
    return stuck
