"""What recipes are built with, pinned in ``mobileprep.lock`` and compared with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Final

from mobileprep import __version__
from mobileprep.building.pages import page_files
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.publish import MANIFEST, published_names
from mobileprep.building.pipeline.state import State, files_named, files_read, folders_looked_into
from mobileprep.building.pipeline.unchanged import (
    Unchanged,
    code_stamp,
    digest_of,
    names_in,
    save_note,
)
from mobileprep.building.plan.fingerprints import computing_libraries, fingerprint
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.portable import is_absolute
from mobileprep.building.plan.running_stages import EngineChoice
from mobileprep.building.targets import plan_state
from mobileprep.building.unchanged import Request, store_folder
from mobileprep.core.arguments import FilePath
from mobileprep.core.files import file_inside, inside, write_text
from mobileprep.core.frozen import dataclass
from mobileprep.errors import CorruptFileError, MobileprepError, RecipeError
from mobileprep.recipe.loading import load_recipes
from mobileprep.recipe.lock_file import LOCK, LockFile, Pins, lock_path, lock_text, read_lock
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.schemas import SCHEMA_FOLDER
from mobileprep.recipe.tree import show


@dataclass(frozen=True)
class Locked:
    """A lock that was brought up to date.

    Args:
        path: the lock.
        is_changed: whether it had to be written.
    """

    path: Path
    is_changed: bool


def lock(recipes: Recipe | FilePath | Iterable[Recipe | FilePath]) -> list[Locked]:
    """Pin what recipes are built with in ``mobileprep.lock`` beside them, for locked builds.

    Args:
        recipes: one or more, loaded or as files.

    Raises:
        UsageError: two recipes have one name.
        RecipeError: a recipe is wrong, see ``load_recipe``, or a lock that is there cannot be read.
        CorruptFileError: a file that a recipe names is missing, or not what the recipe pins.
        UnsupportedError: an engine that a recipe names is not installed.
        ArtifactError: a lock cannot be written.
    """
    return write_locks(load_recipes(recipes))


def write_locks(recipes: Sequence[Recipe]) -> list[Locked]:
    """Pin what recipes are built with, each in the lock of its folder.

    Other recipes of the folder keep their sections while their files are there.
    """
    found = _found(recipes, plan_state(recipes))
    paths = {lock_path(Path(recipe.file)): None for recipe in recipes}
    done = []
    for path in paths:
        mine = {
            Path(recipe.file).name: found[recipe.name]
            for recipe in recipes
            if lock_path(Path(recipe.file)) == path
        }
        before = _before(path)
        beside = {other.name for other in path.parent.iterdir() if other.is_file()}
        kept = {n: p for n, p in before.items() if n in beside}
        text = lock_text(LockFile(path, {**kept, **mine}))
        is_changed = not path.is_file() or path.read_bytes() != text.encode()
        if is_changed:
            write_text(path, text)
        done.append(Locked(path, is_changed))
    return done


def check_locks(recipes: Sequence[Recipe], state: State, *, whole: bool) -> None:
    """Make sure that recipes are built with what their locks pin.

    Args:
        whole: whether all targets of the recipes are planned, so that what is pinned and not
            read is a difference too.
    """
    told = [line for recipe in recipes for line in _differences(recipe, state, whole=whole)]
    if told:
        raise CorruptFileError("\n".join(told), _hint(recipes))


def lock_warnings(recipes: Sequence[Recipe], state: State, *, whole: bool) -> Iterator[str]:
    """For each recipe that a lock names and no longer fits, a sentence.

    A recipe without a lock, or next to the lock of other recipes, is not pinned: no warning.
    """
    for recipe in recipes:
        file = Path(recipe.file)
        lock = read_lock(lock_path(file))
        if lock is None or file.name not in lock.recipes:
            continue
        told = list(_differences(recipe, state, whole=whole))
        if told:
            more = f" and {len(told) - 1} more" if len(told) > 1 else ""
            yield f"{LOCK} does not fit: {told[0]}{more}; {_hint([recipe])}"


def _differences(recipe: Recipe, state: State, *, whole: bool) -> Iterator[str]:
    file = Path(recipe.file)
    lock = read_lock(lock_path(file))
    if lock is None:
        yield f"{lock_path(file)} is not there"
        return
    pinned = lock.recipes.get(file.name)
    if pinned is None:
        yield f"{lock.place()}: {show(file.name)} is not pinned"
        return
    found = _found([recipe], state)[recipe.name]
    if pinned.mobileprep != found.mobileprep:
        place = lock.place(file.name, "mobileprep")
        yield f"{place}: this is mobileprep {found.mobileprep}, and {pinned.mobileprep!r} is pinned"
    # A lock without this section is of an earlier version.
    libraries = {n: version for n, version in found.libraries.items() if n in pinned.libraries}
    for kind, what, before, now in (
        ("libraries", "version", pinned.libraries, libraries),
        ("engines", "version", pinned.engines, found.engines),
        ("files", "sha256", pinned.files, found.files),
    ):
        for name in sorted(before.keys() | now.keys() if whole else now.keys()):
            told = _difference(show(name), what, before.get(name), now.get(name))
            if told:
                yield f"{lock.place(file.name, kind, name)}: {told}"


def _difference(name: str, what: str, pinned: str | None, found: str | None) -> str:
    if pinned == found:
        return ""
    if pinned is None:
        return f"{name} is not pinned, and has the {what} {found}"
    if found is None:
        return f"{name} is pinned, and not used"
    return f"{name} has the {what} {found}, and {pinned} is pinned"


def _hint(recipes: Iterable[Recipe]) -> str:
    files = " ".join(recipe.file for recipe in recipes)
    return f"restore what is pinned, or run 'mobileprep lock {files}' if the change is meant"


def _before(path: Path) -> Mapping[str, Pins]:
    try:
        lock = read_lock(path)
    except RecipeError as error:
        raise error.at(error.where, hint="remove it to have a new one written") from error
    return {} if lock is None else lock.recipes


def _found(recipes: Iterable[Recipe], state: State) -> dict[str, Pins]:
    """What the planned targets of recipes are built with, by the recipes' names."""
    stages = {spec.task: spec.stage for spec in state.plan.stages}
    found = {}
    for recipe in recipes:
        targets = [target for target in state.plan.targets if target.recipe == recipe.name]
        files = {file.shown: state.digest(file) for t in targets for file in t.sources}
        choices = [getattr(stages[task], "engine", None) for t in targets for task in t.tasks]
        engines = {
            name: version
            for choice in choices
            if isinstance(choice, EngineChoice)
            for name, version in choice.versions.items()
        }
        found[recipe.name] = Pins(__version__, engines, _portable(files), computing_libraries())
    return found


def _portable(files: Mapping[str, str]) -> dict[str, str]:
    """Digests by names that are the same on every machine.

    An absolute path, as a variable may give one, counts by its last part; of several that end
    alike each is told apart by the order of their digests.
    """
    named: dict[str, str] = {}
    absolute = {name for name in files if is_absolute(name)}
    for name in sorted(files, key=lambda name: (files[name], name)):
        if name not in absolute:
            named[name] = files[name]
            continue
        short = f"*/{PureWindowsPath(name).name}"
        number = sum(1 for other in named if other.partition(" #")[0] == short) + 1
        named[short if number == 1 else f"{short} #{number}"] = files[name]
    return named


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
    """The digests of the files of the stages' records, which say what was judged by."""
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


# What shells set anew for each command, and what of Python's own decides nothing here.
