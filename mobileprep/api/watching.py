"""Waits until something that a build reads has changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias

from mobileprep.errors import MobileprepError, UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.reads import files_read, folders_read
from mobileprep.plan.planner import plan_recipes
from mobileprep.recipe.files import load_tree
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.named_files import paths_in
from mobileprep.recipe.variables import Variables

# Changes count as one while they come no further apart than this.
_QUIET_MS: Final = 100
# File systems that tell of no changes, as those of a network, are looked at so often.
_LOOK_MS: Final = 1000

_Stamps: TypeAlias = dict[Path, tuple[int, int, int] | None]


@dataclass(frozen=True)
class Watched:
    """What to wait for.

    Args:
        stamps: files, and folders whose entries matter, with what told their state.
        below: folders of which any change below counts.
    """

    stamps: _Stamps
    below: frozenset[Path] = frozenset()


def watch_inputs(recipes: Iterable[Recipe], targets: Iterable[str] = ()) -> Watched:
    """All that a build reads, as it is now.

    Args:
        recipes: what is built.
        targets: the names of those to build; all without any.

    Raises:
        MobileprepError: a recipe names what is not there.
    """
    recipes = list(recipes)
    plan = plan_recipes(recipes, frozenset(targets))
    return Watched(_stamps(files_read(recipes, plan) | folders_read(plan)))


def watch_folders(
    files: Iterable[Path], before: Watched | None, settings: Mapping[str, str] | None = None
) -> Watched:
    """What may mend recipes that cannot be planned.

    That is all below their folders, what was watched before, and outside the recipes that they
    extend and what these name, as far as they can be read.

    Args:
        files: the recipes.
        before: what was watched before.
        settings: values of ``${NAME}`` references, looked at before the environment.
    """
    files = list(files)
    tops = frozenset(path.absolute().parent for path in files)
    # What is put into a folder between a look and the wait is told by the folder's own time.
    below = (Path(folder) for top in tops for folder, _, _ in os.walk(top))
    read = (path for file in files for path in _read_so_far(file, settings or {}))
    return Watched(_stamps({*(before.stamps if before else ()), *files, *below, *read}), tops)


def watcher() -> ModuleType:
    """The package that tells of changes.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        import watchfiles
    except ImportError as error:
        message = "watching needs the package watchfiles, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[watch]'") from error
    return watchfiles


def wait_for_change(watched: Watched, is_same: Callable[[], bool] = lambda: True) -> None:
    """Return once anything differs from what it was when ``watched`` was made.

    Args:
        watched: what to wait for.
        is_same: asked at each look whether what else matters is as it was.

    Raises:
        UnsupportedError: the package that tells of changes is not installed.
    """
    watchfiles = watcher()
    folders = watched.below or {p if p.is_dir() else p.parent for p in watched.stamps}
    if _differs(watched, is_same):
        return
    for changes in watchfiles.watch(
        *(sorted(folder for folder in folders if folder.is_dir()) or [Path.cwd()]),
        recursive=bool(watched.below),
        step=_QUIET_MS,
        rust_timeout=_LOOK_MS,
        yield_on_timeout=True,
        watch_filter=None,
    ):
        if (changes and watched.below) or _differs(watched, is_same):
            return


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


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What tells that a file was touched or replaced; None where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
