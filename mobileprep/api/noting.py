"""Notes what a build went by that had nothing to do, for the next one to be quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mobileprep.api.lock import lock_warnings
from mobileprep.api.pages import page_files
from mobileprep.api.unchanged import Request, store_folder
from mobileprep.core.files import file_inside, inside
from mobileprep.errors import CorruptFileError, MobileprepError
from mobileprep.pipeline.file_index import FileIndex
from mobileprep.pipeline.publish import published_names
from mobileprep.pipeline.published import MANIFEST
from mobileprep.pipeline.reads import files_named, files_read, folders_looked_into
from mobileprep.pipeline.state import State
from mobileprep.pipeline.unchanged import (
    Unchanged,
    code_stamp,
    digest_of,
    names_in,
    save_note,
)
from mobileprep.plan.fingerprints import fingerprint
from mobileprep.plan.planner import plan_recipes
from mobileprep.recipe.lock_file import lock_path
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.schemas import SCHEMA_FOLDER

# Larger files are hashed once more by each build until their times are old enough to be believed.
_LARGE: Final = 1 << 20


def note_unchanged(
    request: Request,
    recipes: Sequence[Recipe],
    state: State,
    read_again: Callable[[], Sequence[Recipe]],
) -> None:
    """Keep a note of a build that has found all in place, while it still holds its folders.

    What recipes and plans were made of is noted first, and then they are made again: had anything
    changed in between, they would differ, and what changes after that differs from the note.

    Args:
        request: what the build was asked for.
        recipes: its recipes.
        state: its plan against the store, where all stages are fresh.
        read_again: reads the recipes.
    """
    if state.store.sharing is not None:
        return  # which of its stores a build uses may change without a trace here
    try:
        note = _note(request, recipes, state)
        again = read_again()
        plan = plan_recipes(again, frozenset(request.targets))
        same = plan == state.plan and [*map(_asked, again)] == [*map(_asked, recipes)]
        whole = not request.targets
        if note is None or not same or [*lock_warnings(again, state, whole=whole)]:
            return
    except (MobileprepError, OSError):
        return  # the next build tells
    save_note(store_folder(), request.key, note)


def _asked(recipe: Recipe) -> tuple[object, ...]:
    return recipe.name, recipe.file, recipe.targets, recipe.cache, recipe.version


def _note(request: Request, recipes: Sequence[Recipe], state: State) -> Unchanged | None:
    """What a build went by; None where a file has changed since, or a large one may have."""
    files, out = state.store.files, Path(request.out)
    folders = [inside(out, target.folder) for target in state.plan.targets]
    in_folders = [
        file_inside(folder, name)
        for folder in folders
        for name in (*published_names(folder), MANIFEST)
    ]
    published = [*in_folders, *page_files(state.plan, out).values()]
    locks = {lock_path(Path(recipe.file)) for recipe in recipes}
    named = files_named(recipes)
    read = {*files_read(recipes, state.plan), *(p for p in locks | named if p.is_file())}
    inputs, digests = _digests(sorted(read), files), _digests(published, files)
    # Only now: what the build had no need to hash, such as a page, is known as well then.
    known = files.entries([*read, *published])
    if any(_is_large(path) and str(path.absolute()) not in known for path in (*read, *published)):
        return None
    if not all(map(files.unchanged, [*read, *published])):
        return None  # what was judged by is not what is there now
    return Unchanged(
        code={path: code_stamp(path) for path in _code()},
        inputs=inputs,
        folders=_names(folders_looked_into(state.plan, named, read | locks)),
        records=_records(state),
        places={
            str(out.joinpath(target.folder).absolute()): str(folder)
            for target, folder in zip(state.plan.targets, folders, strict=True)
        },
        published={path: (digest, Path(path).stat().st_size) for path, digest in digests.items()},
        beside=_names({path.parent for path in in_folders}),
        entries=known,
        targets=tuple(target.folder for target in state.plan.targets),
        stages=len(state.plan.stages),
    )


def _digests(paths: Sequence[Path], files: FileIndex) -> dict[str, str]:
    return {str(path.absolute()): files.digest(path) for path in paths}


def _names(folders: set[Path]) -> dict[str, str]:
    return {str(folder): names_in(str(folder)) for folder in sorted(folders)}


def _is_large(path: Path) -> bool:
    return path.stat().st_size > _LARGE


def _records(state: State) -> dict[str, str]:
    """The digests of the files of the stages' records, which say what was judged by.

    Raises:
        CorruptFileError: one does not.
    """
    found = {}
    for spec in state.plan.stages:
        record = state.record(spec.task)
        key = fingerprint(dict(record.components))
        path = str(state.store.record_file(key).absolute())
        found[path] = digest_of(path)
        if state.store.load(key) != record:
            message = "the record of a stage is another by now"
            raise CorruptFileError(message, "build again", path)
    return found


def _code() -> list[str]:
    """The files of this package's modules that have run, and of the schemas that they read."""
    loaded = [
        module for name, module in sorted(sys.modules.items()) if name.startswith("mobileprep.")
    ]
    files = [file for module in loaded if (file := getattr(module, "__file__", None))]
    return [*files, *sorted(map(str, SCHEMA_FOLDER.rglob("*.json")))]
