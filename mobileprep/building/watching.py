"""Waits until something that a build reads has changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from msgspec import Struct

from mobileprep.building.pipeline.state import (
    files_named,
    files_read,
    folders_looked_into,
    folders_read,
)
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.errors import MobileprepError, UnsupportedError
from mobileprep.recipe.files import load_tree, paths_in
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.units import Variables

# Changes count as one while they come no further apart than this.
_QUIET_MS: Final = 100
# File systems that tell of no changes, as those of a network, are looked at so often.
_LOOK_MS: Final = 1000

_Stamps: TypeAlias = dict[Path, tuple[int, int, int, int] | None]


class Watched(Struct, frozen=True):
    """What to wait for.

    Args:
        stamps: files, and folders whose entries matter, with what told their state.
        below: folders of which any change below counts.
        looked_into: folders in which a file that comes or goes could change what is read.
    """

    stamps: _Stamps
    below: frozenset[Path] = frozenset()
    looked_into: frozenset[Path] = frozenset()


class SameReads:
    """Tells whether a build would read the same files still, whatever is in them.

    It plans again where a name has come or gone in a folder that was looked into, and when it is
    first asked: what was edited while a plan was made may not be in it.

    Args:
        watched: what was read.
        watch_again: makes it anew.
    """

    def __init__(self, watched: Watched, watch_again: Callable[[], Watched]) -> None:
        self._watched = watched
        self._watch_again = watch_again
        self._looked: _Stamps | None = None

    def __call__(self) -> bool:
        """Whether they are the same; what can be planned no longer is not."""
        if not self._watched.looked_into:
            return True  # it could not be planned before, and is watched in another way
        looked = _stamps(self._watched.looked_into)
        if looked == self._looked:
            return True
        self._looked = looked
        try:
            return self._watch_again().stamps.keys() == self._watched.stamps.keys()
        except MobileprepError:
            return False


def watch_inputs(
    recipes: Iterable[Recipe], targets: Iterable[str] = (), *, locked: bool = False
) -> Watched:
    """All that a build reads, as it is now."""
    recipes = list(recipes)
    plan = plan_recipes(recipes, frozenset(targets))
    read = files_read(recipes, plan, locked=locked)
    looked_into = folders_looked_into(plan, files_named(recipes), read)
    return Watched(_stamps(read | folders_read(plan)), looked_into=frozenset(looked_into))


def watch_folders(
    files: Iterable[Path], before: Watched | None, settings: Mapping[str, str] | None = None
) -> Watched:
    """What may mend recipes that cannot be planned.

    That is all below their folders, what was watched before, and outside the recipes that they
    extend and what these name, as far as they can be read.
    """
    files = list(files)
    tops = frozenset(path.absolute().parent for path in files)
    # What is put into a folder between a look and the wait is told by the folder's own time.
    below = (Path(folder) for top in tops for folder, _, _ in os.walk(top))
    read = (path for file in files for path in _read_so_far(file, settings or {}))
    return Watched(_stamps({*(before.stamps if before else ()), *files, *below, *read}), tops)


def watcher() -> ModuleType:
    """The package that tells of changes."""
    try:
        import watchfiles
    except ImportError as error:
        message = "watching needs the package watchfiles, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[watch]'") from error
    return watchfiles


def wait_for_change(watched: Watched, is_same: Callable[[], bool] = lambda: True) -> None:
    """Return once anything differs from what it was when ``watched`` was made."""
    watcher()
    if _differs(watched, is_same):
        return
    with contextlib.suppress(FileNotFoundError):  # a folder that has just gone is a change
        for changes in _changes(_folders(watched) or [Path.cwd()]):
            if (changes and watched.below) or _differs(watched, is_same):
                return


def _folders(watched: Watched) -> list[Path]:
    """The folders to be told of: of each alone, since some below may be for others to read."""
    if watched.below:
        tops = watched.below
        folders = {p for p in watched.stamps if p in tops or tops.intersection(p.parents)}
    else:
        folders = {path if path.is_dir() else path.parent for path in watched.stamps}
        folders |= watched.looked_into
    return sorted(p for p in folders if p.is_dir() and os.access(p, os.R_OK | os.X_OK))


def _changes(folders: Iterable[Path]) -> Iterator[set[Any]]:
    """What changes in folders, round by round, and nothing after each time of silence.

    A system tells of so many folders at a time; where they are too many they are looked at.
    """
    watch = partial(
        watcher().watch,
        *folders,
        recursive=False,
        step=_QUIET_MS,
        rust_timeout=_LOOK_MS,
        yield_on_timeout=True,
        watch_filter=None,
    )
    try:
        yield from watch()
    except (OSError, RuntimeError):
        yield from watch(force_polling=True, poll_delay_ms=_LOOK_MS)


def _differs(watched: Watched, is_same: Callable[[], bool]) -> bool:
    return _stamps(watched.stamps) != watched.stamps or not is_same()


def _read_so_far(file: Path, settings: Mapping[str, str]) -> Iterator[Path]:
    """The files that a recipe was read from, and what it names, with the folders of that.

    The folder tells of what comes, as the files of a checkpoint, of which the name is a prefix.
    """
    read: list[Path] = []
    with contextlib.suppress(MobileprepError):
        tree = load_tree(file, Variables(settings, os.environ), begin=read.append)
        for path in paths_in(tree):
            yield from (path, path.parent)
    yield from read


def _stamps(paths: Iterable[Path]) -> _Stamps:
    return {path: _stamp(path) for path in paths}


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    """What tells that a file was touched or replaced; None where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    # No program can set the ctime: a copy that keeps the mtime is told by it.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
