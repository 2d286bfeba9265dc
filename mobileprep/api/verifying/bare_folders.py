"""Folders of targets that lack their manifests, and so would not be looked at.

Users may keep what they like beside the folders of builds, and build some targets alone. So a
folder counts only where it lies in a recipe's folder, there is a trace of a build, and the recipe,
where it is known, has such a target. A trace is a statement of provenance on the folder, or a file
in it that is named as one of the targets beside it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from mobileprep.api.pages import is_page
from mobileprep.api.provenance import stated_folder
from mobileprep.api.targets import REPORT
from mobileprep.frozen import dataclass
from mobileprep.pipeline.manifest import Manifest
from mobileprep.pipeline.published import MANIFEST
from mobileprep.recipe.model import Recipe
from mobileprep.report.page.render import PAGE


@dataclass(frozen=True)
class BareFolder:
    """A folder that should have a manifest.

    Args:
        folder: the folder, whether it is there or not.
        recipe: the recipe's name.
        target: the target's folder below the recipe's.
    """

    folder: Path
    recipe: str
    target: str

    @property
    def reason(self) -> str:
        """What is wrong with it, as the end of a sentence."""
        return f"has no {MANIFEST}" if self.folder.exists() else "is missing"


def bare_folders(
    out: Path, found: Mapping[Path, Manifest], recipes: Iterable[Recipe] = ()
) -> list[BareFolder]:
    """The folders of targets without manifests that a folder holds, or should hold, sorted.

    Args:
        out: the folder.
        found: the folders in it that have manifests.
        recipes: those that are known to have been built into it.
    """
    targets = {recipe.name: {t.folder for t in recipe.targets} for recipe in recipes}
    bare = [
        BareFolder(top / target, recipe, target)
        for top, recipe in sorted(recipe_folders(out, found).items())
        for target in sorted({*_traces(top, found)})
        if top / target not in found and target in targets.get(recipe, (target,))
    ]
    return sorted(bare, key=lambda one: one.folder)


def recipe_folders(out: Path, found: Mapping[Path, Manifest]) -> dict[Path, str]:
    """The folders of recipes at or below a folder, with the recipes' names.

    Args:
        out: the folder.
        found: the folders in it that have manifests.
    """
    above = {folder: _recipe_folder(folder, manifest) for folder, manifest in found.items()}
    tops = {
        top: found[folder].recipe
        for folder, top in above.items()
        if top is not None and out in (top, *top.parents)
    }
    pages = (Path(top) for top, names in _walk(out, found) if PAGE in names)
    return tops | {top: top.name for top in pages if top not in tops and is_page(top / PAGE)}


def _recipe_folder(folder: Path, manifest: Manifest) -> Path | None:
    """The folder of a target's recipe; None for a target that was moved elsewhere."""
    parts = (manifest.recipe, *manifest.target.split("/"))
    is_moved = folder.absolute().parts[-len(parts) :] != parts
    above = list(folder.parents)[len(parts) - 2 : len(parts) - 1]
    return None if is_moved or not above else above[0]


def _traces(top: Path, found: Mapping[Path, Manifest]) -> Iterator[str]:
    """The targets that a build has left something of in a recipe's folder."""
    known = {name for folder, m in found.items() if top in folder.parents for name in m.files}
    known.add(REPORT)
    for folder, names in _walk(top, found):
        for name in names:
            target = stated_folder(folder / name)
            if target is not None and target not in found:
                yield target.relative_to(top).as_posix()
        if folder != top and not known.isdisjoint(names):
            yield folder.relative_to(top).as_posix()


def _walk(top: Path, found: Collection[Path]) -> Iterator[tuple[Path, list[str]]]:
    """The folders below one that neither have manifests nor are hidden, with their files."""
    for folder, below, names in os.walk(top):
        if Path(folder) in found:
            below.clear()
            continue
        below[:] = [name for name in below if not name.startswith(".")]
        yield Path(folder), names
