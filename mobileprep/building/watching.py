"""Wait until an input of a build changes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from msgspec import Struct

from mobileprep.building.pipeline.state import files_read, folders_read
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.portable import input_files
from mobileprep.building.plan.spec import Plan
from mobileprep.errors import MobileprepError, UnsupportedError
from mobileprep.recipe.files import load_tree, paths_in
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.units import Variables

# Maximum interval between changes that count as one.
_QUIET_MS: Final = 100
# Polling interval for file systems without change notifications, such as network shares.
_LOOK_MS: Final = 1000

_Stamps: TypeAlias = dict[Path, tuple[int, int, int, int] | None]


class Watched(Struct, frozen=True):
    """The files and directories to watch.

    Args:
        stamps: files, and directories whose entries matter, with their last known state.
        below: directories in which every change counts, including their subdirectories.
        looked_into: directories in which a new or removed file could change the inputs.
    """

    stamps: _Stamps
    below: frozenset[Path] = frozenset()
    looked_into: frozenset[Path] = frozenset()


class SameReads:
    """Checks whether a build would still read the same files, regardless of their content.

    It plans again if an entry of a searched directory was added or removed, and on the first call,
    because a file may have changed during planning.

    Args:
        watched: the current inputs.
        watch_again: determines the inputs again.
    """

    def __init__(self, watched: Watched, watch_again: Callable[[], Watched]) -> None:
        self._watched = watched
        self._watch_again = watch_again
        self._looked: _Stamps | None = None

    def __call__(self) -> bool:
        """Return whether the inputs are the same; False if planning fails now."""
        if not self._watched.looked_into:
            return True  # planning has failed before; this case is watched in another way
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
    """Return the current state of all inputs of a build."""
    recipes = list(recipes)
    plan = plan_recipes(recipes, frozenset(targets))
    read = files_read(recipes, plan, locked=locked)
    looked_into = _folders_looked_into(plan, _files_named(recipes), read)
    return Watched(_stamps(read | folders_read(plan)), looked_into=frozenset(looked_into))


def watch_folders(
    files: Iterable[Path], before: Watched | None, settings: Mapping[str, str] | None = None
) -> Watched:
    """Return files whose changes may fix recipes that cannot be planned.

    These are all files below the recipes' directories, the previously watched files, and outside of
    them the files that the recipes extend or name, as far as they can be read.
    """
    files = list(files)
    tops = frozenset(path.absolute().parent for path in files)
    # A file that is added between planning and watching changes the time of its directory.
    below = (Path(folder) for top in tops for folder, _, _ in os.walk(top))
    read = (path for file in files for path in _read_so_far(file, settings or {}))
    return Watched(_stamps({*(before.stamps if before else ()), *files, *below, *read}), tops)


def watcher() -> ModuleType:
    """Import the package that reports file changes.

    Raises:
        UnsupportedError: watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError as error:
        message = "watching needs the package watchfiles, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[watch]'") from error
    return watchfiles


def wait_for_change(watched: Watched, is_same: Callable[[], bool] = lambda: True) -> None:
    """Return as soon as anything differs from the state in ``watched``."""
    watcher()
    if _differs(watched, is_same):
        return
    with contextlib.suppress(FileNotFoundError):  # a removed directory is a change
        for changes in _changes(_folders(watched) or [Path.cwd()]):
            if (changes and watched.below) or _differs(watched, is_same):
                return


def _folders(watched: Watched) -> list[Path]:
    """Return the directories to watch one by one, since some subdirectories may be unreadable."""
    if watched.below:
        tops = watched.below
        folders = {p for p in watched.stamps if p in tops or tops.intersection(p.parents)}
    else:
        folders = {path if path.is_dir() else path.parent for path in watched.stamps}
        folders |= watched.looked_into
    return sorted(p for p in folders if p.is_dir() and os.access(p, os.R_OK | os.X_OK))


def _changes(folders: Iterable[Path]) -> Iterator[set[Any]]:
    """Yield batches of changes in directories, and an empty set after each timeout.

    Systems limit the number of watched directories; beyond that, they are polled.
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


def _files_named(recipes: Iterable[Recipe]) -> set[Path]:
    """Return the files, directories, and checkpoint prefixes that recipes name, existing or not."""
    return {file.path for recipe in recipes for file in input_files(recipe.targets)}


def _folders_looked_into(plan: Plan, named: set[Path], read: Iterable[Path]) -> set[Path]:
    """Return the directories in which a new or removed file could change the plan."""
    slots = [files for spec in plan.stages for files in spec.stage.files.values()]
    roots = {files.root for files in slots}
    # The assets of a MetaGraph are in the same directory.
    beside = {root.with_name("assets") for root in roots}
    walked = {*folders_read(plan), *beside, *(path for path in named if path.is_dir())}
    below = {Path(folder) for top in walked for folder, _, _ in os.walk(top.absolute())}
    # A file may be added to the nearest existing parent directory.
    paths = (path.absolute() for path in (*read, *named, *roots, *beside))
    return below | {next(p for p in path.parents if p.is_dir()) for path in paths}


def _read_so_far(file: Path, settings: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files of a recipe, the files that it names, and their directories.

    The directories detect new files, such as those of a checkpoint, whose name is a prefix.
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
    """Return a file's identity and modification times, or None if it does not exist."""
    try:
        facts = path.stat()
    except OSError:
        return None
    # Programs cannot set the ctime, so it detects a copy with a preserved mtime.
    return facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino
