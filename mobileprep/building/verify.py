"""Verify output directories against their manifests or against a rebuild."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins

from mobileprep.building.builder import prepared, run_build, workers_of
from mobileprep.building.pages import is_page
from mobileprep.building.pipeline.execute import Listener, Warn
from mobileprep.building.pipeline.publish import (
    MANIFEST,
    TOOL,
    Manifest,
    manifest_folders,
    read_manifest,
)
from mobileprep.building.pipeline.state import State
from mobileprep.building.plan.spec import TargetPlan
from mobileprep.building.report.page.render import PAGE
from mobileprep.building.targets import REPORT, stated_folder
from mobileprep.core.arguments import FilePath, as_warning
from mobileprep.core.arguments import Warn as CallerWarn
from mobileprep.core.files import canonical, sha256_file, unreadable
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.load import load_recipes
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.tree import show

FileStatus = Literal["same", "differs", "missing", "extra"]
_SHOWN = 120
# Number of characters to show before a difference.
_KEPT = 30


class VerifiedFile(Struct, frozen=True):
    """The comparison of a file with its expected content.

    Args:
        name: path relative to the directory, with ``/`` as separator.
        status: ``same``, ``differs``, ``missing``, or ``extra`` for an unexpected file.
        expected: expected SHA-256; None for an extra file.
        found: actual SHA-256; None if the file is missing or not a regular file.
    """

    name: str
    status: FileStatus
    expected: str | None
    found: str | None


class VerifyResult(Struct, frozen=True):
    """The comparison of an output directory with its expected content.

    Args:
        folder: the directory.
        recipe: name of the recipe in the manifest.
        target: name of the target in the manifest.
        is_rebuilt: whether the directory was compared with a rebuild instead of its manifest.
        reasons: why a requested rebuild or the whole comparison was not possible.
        files: all files, sorted by name; empty if no comparison was possible.
    """

    folder: Path
    recipe: str
    target: str
    is_rebuilt: bool
    reasons: tuple[str, ...]
    files: tuple[VerifiedFile, ...]

    @property
    def is_same(self) -> bool:
        """Whether all files match and the requested comparison was possible."""
        return not self.reasons and all(file.status == "same" for file in self.files)

    def as_data(self) -> dict[str, Any]:
        """Convert the result to JSON-compatible data."""
        plain: dict[str, Any] = to_builtins(self, enc_hook=str)
        return {**plain, "is_same": self.is_same}


def verify(
    out: FilePath,
    recipes: Recipe | FilePath | Iterable[Recipe | FilePath] | None = None,
    *,
    jobs: int | None = None,
    warn: CallerWarn | None = None,
) -> list[VerifyResult]:
    """Verify every byte of output directories.

    Args:
        out: directory of a target, or a directory that contains such directories.
        recipes: recipes of the directories, which are rebuilt with an empty cache for comparison.
            By default, each directory is compared with its manifest only.
        jobs: number of parallel stages; by default the number of processors.
        warn: called with each warning of a stage; by default it is a ``MobileprepWarning``.

    Returns:
        A result for each directory.

    Raises:
        UsageError: two recipes have the same name, or ``jobs`` is below 1.
        RecipeError: a recipe is invalid, see ``load_recipe``.
        CorruptFileError: a manifest is missing or invalid, or a file cannot be read.
        MobileprepError: a stage failed.
    """
    report_warning, workers = warn or as_warning, workers_of(jobs)
    folders = manifests(Path(out))
    return verify_folders(
        Path(out),
        folders,
        None if recipes is None else load_recipes(recipes),
        jobs=workers,
        warn=lambda task, text: report_warning(f"{task}: {text}"),
    )


def manifests(out: Path) -> dict[Path, Manifest]:
    """Read the manifest of a directory, or the manifests of all directories below it."""
    return {folder: read_manifest(folder) for folder in manifest_folders(out)}


def verify_folders(
    out: Path,
    folders: Mapping[Path, Manifest],
    recipes: Sequence[Recipe] | None,
    *,
    jobs: int,
    warn: Warn,
) -> list[VerifyResult]:
    """Compare directories with rebuilds or with their manifests, sorted by path."""
    if recipes is None:
        checked = verify_files(folders)
    else:
        checked = verify_builds(folders, recipes, jobs=jobs, warn=warn)
    bare = bare_folders(out, folders, recipes or ())
    return sorted([*checked, *bare], key=lambda result: result.folder)


def verify_files(folders: Mapping[Path, Manifest]) -> list[VerifyResult]:
    """Compare directories with their manifests only."""
    return [_by_manifest(folder, manifest, ()) for folder, manifest in folders.items()]


def verify_builds(
    folders: Mapping[Path, Manifest],
    recipes: Iterable[Recipe],
    *,
    jobs: int = 1,
    listen: Listener = lambda *_: None,
    warn: Warn = lambda *_: None,
) -> list[VerifyResult]:
    """Rebuild directories with an empty cache, and compare every byte.

    If the program, an input, or the recipe differs from the manifest, nothing is rebuilt: the
    directory is compared with its manifest, and the result contains the reasons.
    """
    by_name = {recipe.name: recipe for recipe in recipes}
    checked: list[VerifyResult] = []
    with tempfile.TemporaryDirectory(prefix="mobileprep-verify-") as top:
        run = functools.partial(run_build, jobs=jobs, listen=listen, warn=warn)
        for name in sorted({manifest.recipe for manifest in folders.values()}):
            mine = {folder: m for folder, m in folders.items() if m.recipe == name}
            recipe = by_name.get(name)
            reasons = {folder: _obstacles(manifest, recipe) for folder, manifest in mine.items()}
            fit = {folder: m for folder, m in mine.items() if not reasons[folder]}
            if recipe is not None and fit:
                reasons |= _rebuild(recipe, fit, Path(top), run)
            checked += [
                _by_manifest(folder, manifest, reasons[folder])
                if reasons[folder]
                else _by_rebuild(folder, manifest, Path(top, "out", name, manifest.target))
                for folder, manifest in mine.items()
            ]
    return sorted(checked, key=lambda result: result.folder)


def _rebuild(
    recipe: Recipe,
    folders: Mapping[Path, Manifest],
    top: Path,
    run: Callable[..., object],
) -> dict[Path, tuple[str, ...]]:
    """Rebuild the targets with the same inputs as in their manifests.

    Returns:
        The differences of each manifest; empty if its target was rebuilt.
    """

    def planned(targets: Iterable[str]) -> State:
        return prepared([recipe], top / "out", targets=targets, cache=top / "store")

    try:
        state = planned({manifest.target for manifest in folders.values()})
        targets = {target.target: target for target in state.plan.targets}
        reasons = {f: tuple(_changes(targets[m.target], state, m)) for f, m in folders.items()}
    except CorruptFileError as error:  # a missing input or a digest mismatch
        return dict.fromkeys(folders, (str(error),))
    same = {manifest.target for folder, manifest in folders.items() if not reasons[folder]}
    if same:
        run(planned(same), top / "out", memory=[recipe.memory])
    return reasons


def _obstacles(manifest: Manifest, recipe: Recipe | None) -> tuple[str, ...]:
    """Return why a directory cannot be rebuilt, without reading any input file."""
    if manifest.tool != TOOL:
        built, _, version = manifest.tool.rpartition(" ")
        hint = f"; pip install 'mobileprep=={version}'" if built == "mobileprep" else ""
        return (f"it was built by {show(manifest.tool)}, and this is {TOOL}{hint}",)
    if recipe is None:
        return (f"no recipe is named {show(manifest.recipe)}: name its file with --recipe",)
    if manifest.target not in {target.folder for target in recipe.targets}:
        return (f"{recipe.file} has no target {show(manifest.target)}",)
    return ()


def _changes(target: TargetPlan, state: State, manifest: Manifest) -> Iterator[str]:
    """Describe how a target's inputs and settings differ from a manifest."""
    now = {file.name: state.digest(file) for file in target.sources}
    for name in sorted(now.keys() | manifest.sources.keys()):
        before, after = manifest.sources.get(name), now.get(name)
        if before is None or after is None:
            verb = "was not" if before is None else "is no longer"
            yield f"{show(name)} {verb} a source of it"
        elif before != after:
            yield f"{show(name)} has the sha256 {after}, and had {before}"
    settings = json.loads(json.dumps(target.settings))
    for name, was, now_is in _differing("", manifest.settings, settings):
        before, after = _from_difference(canonical(was), canonical(now_is))
        yield f"{show(name)} is {show(after, _SHOWN)}, and was {show(before, _SHOWN)}"


def _differing(key: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - JSON
    """Yield the innermost keys with different values, and both values; None if missing."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            inner = f"{key}.{name}" if key else name
            yield from _differing(inner, before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differing(f"{key}[{at}]", one, other)
    elif canonical(before) != canonical(after):
        yield key, before, after


def _from_difference(before: str, after: str) -> tuple[str, str]:
    """Remove most of the common prefix of two strings if they are too long to display."""
    if max(len(before), len(after)) <= _SHOWN:
        return before, after
    pairs = enumerate(zip(before, after, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(before), len(after)))
    start = max(same - _KEPT, 0)
    dots = "..." if start else ""
    return f"{dots}{before[start:]}", f"{dots}{after[start:]}"


def _by_manifest(folder: Path, manifest: Manifest, reasons: tuple[str, ...]) -> VerifyResult:
    expected = {**manifest.files, MANIFEST: manifest.sha256}
    return _checked(folder, manifest, reasons, expected, is_rebuilt=False)


def _by_rebuild(folder: Path, manifest: Manifest, rebuilt: Path) -> VerifyResult:
    expected = {name: digest for name, digest in _held(rebuilt).items() if digest is not None}
    return _checked(folder, manifest, (), expected, is_rebuilt=True)


def _checked(
    folder: Path,
    manifest: Manifest,
    reasons: tuple[str, ...],
    expected: Mapping[str, str],
    *,
    is_rebuilt: bool,
) -> VerifyResult:
    held = _held(folder)
    files = tuple(
        VerifiedFile(name, _status(name, expected, held), expected.get(name), held.get(name))
        for name in sorted(expected.keys() | held.keys())
    )
    return VerifyResult(folder, manifest.recipe, manifest.target, is_rebuilt, reasons, files)


def _status(name: str, expected: Mapping[str, str], held: Mapping[str, str | None]) -> FileStatus:
    if name not in expected:
        return "extra"
    if name not in held:
        return "missing"
    return "same" if held[name] == expected[name] else "differs"


def _held(folder: Path) -> dict[str, str | None]:
    """Return the SHA-256 of every file in a directory; None if it is not a regular file."""
    digests: dict[str, str | None] = {}
    for top, below, files in os.walk(folder, onerror=_refuse):
        links = [name for name in below if Path(top, name).is_symlink()]
        for name in (*files, *links):
            path = Path(top, name)
            plain = path.is_file() and not path.is_symlink()
            digests[path.relative_to(folder).as_posix()] = sha256_file(path) if plain else None
    return digests


def _refuse(error: OSError) -> None:
    raise unreadable(Path(error.filename), error) from error


def bare_folders(
    out: Path, built: Mapping[Path, Manifest], recipes: Iterable[Recipe] = ()
) -> Iterator[VerifyResult]:
    """Yield results for existing or expected target directories without a manifest."""
    targets = {recipe.name: {t.folder for t in recipe.targets} for recipe in recipes}
    for top, recipe in recipe_folders(out, built).items():
        for target in {*_traces(top, built)}:
            folder = top / target
            if folder not in built and target in targets.get(recipe, (target,)):
                reason = f"has no {MANIFEST}" if folder.exists() else "is missing"
                yield VerifyResult(folder, recipe, target, False, (reason,), ())


def recipe_folders(out: Path, built: Mapping[Path, Manifest]) -> dict[Path, str]:
    """Return the directories of recipes at or below a directory, with the recipes' names."""
    above = {folder: _recipe_folder(folder, manifest) for folder, manifest in built.items()}
    tops = {
        top: built[folder].recipe
        for folder, top in above.items()
        if top is not None and out in (top, *top.parents)
    }
    pages = (Path(top) for top, names in _walk(out, built) if PAGE in names)
    return tops | {top: top.name for top in pages if top not in tops and is_page(top / PAGE)}


def _recipe_folder(folder: Path, manifest: Manifest) -> Path | None:
    """Return the recipe directory of a target directory; None if the target was moved."""
    parts = (manifest.recipe, *manifest.target.split("/"))
    is_moved = folder.absolute().parts[-len(parts) :] != parts
    above = list(folder.parents)[len(parts) - 2 : len(parts) - 1]
    return None if is_moved or not above else above[0]


def _traces(top: Path, built: Mapping[Path, Manifest]) -> Iterator[str]:
    """Yield the targets that have files of a build in a recipe's directory."""
    published = {name for folder, m in built.items() if top in folder.parents for name in m.files}
    published.add(REPORT)
    for folder, names in _walk(top, built):
        for name in names:
            target = stated_folder(folder / name)
            if target is not None and target not in built:
                yield target.relative_to(top).as_posix()
        if folder != top and not published.isdisjoint(names):
            yield folder.relative_to(top).as_posix()


def _walk(top: Path, built: Collection[Path]) -> Iterator[tuple[Path, list[str]]]:
    """Yield directories that are not hidden and have no manifest, with the names of their files."""
    for folder, below, names in os.walk(top):
        if Path(folder) in built:
            below.clear()
            continue
        below[:] = [name for name in below if not name.startswith(".")]
        yield Path(folder), names
