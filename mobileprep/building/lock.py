"""Pin versions and input files of recipes in ``mobileprep.lock``, and check builds against it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath

from msgspec import Struct

from mobileprep import __version__
from mobileprep.building.pipeline.state import State
from mobileprep.building.plan.engines import EngineChoice
from mobileprep.building.plan.fingerprints import computing_libraries
from mobileprep.building.plan.portable import is_absolute
from mobileprep.building.targets import plan_state
from mobileprep.core.arguments import FilePath
from mobileprep.core.files import write_text
from mobileprep.errors import CorruptFileError, RecipeError
from mobileprep.recipe.load import load_recipes
from mobileprep.recipe.lock_file import LOCK, LockFile, Pins, lock_path, lock_text, read_lock
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.tree import show


class LockResult(Struct, frozen=True):
    """A lock file that is up to date.

    Args:
        path: path of the lock file.
        is_changed: whether it was written.
    """

    path: Path
    is_changed: bool


def lock(recipes: Recipe | FilePath | Iterable[Recipe | FilePath]) -> list[LockResult]:
    """Pin versions and input files of recipes in the ``mobileprep.lock`` next to them.

    Args:
        recipes: recipes, or paths of recipe files.

    Returns:
        A result for each lock file.

    Raises:
        UsageError: two recipes have the same name.
        RecipeError: a recipe is invalid, see ``load_recipe``, or an existing lock file is invalid.
        CorruptFileError: an input file is missing, or differs from the digest in the recipe.
        UnsupportedError: an engine that a recipe names is not installed.
        ArtifactError: a lock file cannot be written.
    """
    return write_locks(load_recipes(recipes))


def write_locks(recipes: Sequence[Recipe]) -> list[LockResult]:
    """Pin versions and input files of recipes in the lock files of their directories.

    Sections of other existing recipes in the same directory do not change.
    """
    pins = _actual_pins(recipes, plan_state(recipes))
    paths = {lock_path(Path(recipe.file)): None for recipe in recipes}
    done = []
    for path in paths:
        mine = {
            Path(recipe.file).name: pins[recipe.name]
            for recipe in recipes
            if lock_path(Path(recipe.file)) == path
        }
        before = _before(path)
        beside = {other.name for other in path.parent.iterdir() if other.is_file()}
        retained = {n: p for n, p in before.items() if n in beside}
        text = lock_text(LockFile(path, {**retained, **mine}))
        is_changed = not path.is_file() or path.read_bytes() != text.encode()
        if is_changed:
            write_text(path, text)
        done.append(LockResult(path, is_changed))
    return done


def check_locks(recipes: Sequence[Recipe], state: State, *, whole: bool) -> None:
    """Check that versions and input files of recipes match their lock files.

    Args:
        recipes: the recipes.
        state: the plan and the digests of its input files.
        whole: whether all targets of the recipes are planned, so that unused pins count as
            differences.

    Raises:
        CorruptFileError: a version or a file differs from the lock file.
    """
    lines = [line for recipe in recipes for line in _differences(recipe, state, whole=whole)]
    if lines:
        raise CorruptFileError("\n".join(lines), _hint(recipes))


def lock_warnings(recipes: Sequence[Recipe], state: State, *, whole: bool) -> Iterator[str]:
    """Yield a warning for each recipe that does not match its lock file.

    A recipe without a lock, or next to the lock of other recipes, is not pinned: no warning.
    """
    for recipe in recipes:
        file = Path(recipe.file)
        lock = read_lock(lock_path(file))
        if lock is None or file.name not in lock.recipes:
            continue
        lines = list(_differences(recipe, state, whole=whole))
        if lines:
            more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
            yield f"{LOCK} does not fit: {lines[0]}{more}; {_hint([recipe])}"


def _differences(recipe: Recipe, state: State, *, whole: bool) -> Iterator[str]:
    file = Path(recipe.file)
    lock = read_lock(lock_path(file))
    if lock is None:
        yield f"{lock_path(file)} does not exist"
        return
    pinned = lock.recipes.get(file.name)
    if pinned is None:
        yield f"{lock.place()}: {show(file.name)} is not pinned"
        return
    actual = _actual_pins([recipe], state)[recipe.name]
    if pinned.mobileprep != actual.mobileprep:
        place = lock.place(file.name, "mobileprep")
        version = actual.mobileprep
        yield f"{place}: this is mobileprep {version}, and {pinned.mobileprep!r} is pinned"
    # Lock files of earlier versions do not have this section.
    libraries = {n: version for n, version in actual.libraries.items() if n in pinned.libraries}
    for kind, what, before, now in (
        ("libraries", "version", pinned.libraries, libraries),
        ("engines", "version", pinned.engines, actual.engines),
        ("files", "sha256", pinned.files, actual.files),
    ):
        for name in sorted(before.keys() | now.keys() if whole else now.keys()):
            difference = _difference(show(name), what, before.get(name), now.get(name))
            if difference:
                yield f"{lock.place(file.name, kind, name)}: {difference}"


def _difference(name: str, what: str, pinned: str | None, actual: str | None) -> str:
    if pinned == actual:
        return ""
    if pinned is None:
        return f"{name} is not pinned, and has the {what} {actual}"
    if actual is None:
        return f"{name} is pinned, and not used"
    return f"{name} has the {what} {actual}, and {pinned} is pinned"


def _hint(recipes: Iterable[Recipe]) -> str:
    files = " ".join(recipe.file for recipe in recipes)
    return f"restore the pinned input, or run 'mobileprep lock {files}' if the change is meant"


def _before(path: Path) -> Mapping[str, Pins]:
    try:
        lock = read_lock(path)
    except RecipeError as error:
        raise error.at(error.where, hint="remove it to have a new one written") from error
    return {} if lock is None else lock.recipes


def _actual_pins(recipes: Iterable[Recipe], state: State) -> dict[str, Pins]:
    """Return the actual versions and file digests of planned targets by recipe name."""
    stages = {spec.task: spec.stage for spec in state.plan.stages}
    pins = {}
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
        pins[recipe.name] = Pins(__version__, engines, _portable(files), computing_libraries())
    return pins


def _portable(files: Mapping[str, str]) -> dict[str, str]:
    """Return digests by names that are the same on every machine.

    An absolute path, for example from a variable, is reduced to its last part. Duplicates are
    numbered in the order of their digests.
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
