"""Reject builds whose outputs would overlap their inputs, the cache, or each other."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mobileprep.building.pipeline.state import files_read
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import Plan
from mobileprep.core.files import inside
from mobileprep.core.paths import links
from mobileprep.errors import ArtifactError
from mobileprep.recipe.model import Recipe

_HINT = "name another folder with --out, or give the recipe or the target another name"


def check_overlaps(recipes: Iterable[Recipe], plan: Plan, store: Store, out: Path) -> None:
    """Check that no target's directory contains files that a build must not touch.

    Whole directories are compared, because the names of the output files are not known before the
    stages run: an input file must not be in an output directory at all.

    Raises:
        ArtifactError: an output directory overlaps an input, the cache, or another one.
    """
    folders: dict[Path, str] = {}
    for target in plan.targets:
        folder = inside(out, target.folder)
        other = folders.setdefault(folder, target.folder)
        if other != target.folder:
            message = f"the outputs of {other} and {target.folder} would go to the same folder"
            raise ArtifactError(message, "remove the link that leads there", str(folder))
    _check_store(folders, store.root)
    held = _Places(folders)
    for path in sorted(files_read(recipes, plan)):
        holder = held.holder(path)
        if holder is not None:
            message = f"outputs would go to this folder, where the build reads {path}"
            raise ArtifactError(message, _HINT, str(holder))


def check_beside(path: Path, read: Iterable[Path], folders: Iterable[Path]) -> None:
    """Reject an additional file that would overwrite an input or an output of the build."""
    own = _Places([path])
    for other in sorted(read):
        if own.holder(other) is not None:
            message = f"it would be written over {other}, which the build reads"
            raise ArtifactError(message, "name another file", str(path))
    folder = _Places(folders).holder(path)
    if folder is not None:
        message = f"it would lie among the outputs of a target, in {folder}"
        raise ArtifactError(message, "name a file outside of that directory", str(path))


def _check_store(folders: Iterable[Path], store: Path) -> None:
    whole = _Places([Path(os.path.realpath(store))])
    for folder in folders:
        if whole.holder(folder) or _Places([folder]).holder(store):
            message = f"outputs and the store, {store}, would lie one inside the other"
            hint = "name another folder with --out, or set MOBILEPREP_CACHE to another"
            raise ArtifactError(message, hint, str(folder))


class _Places:
    """Directories that can be searched for the one that contains a path.

    Directories are identified by device and inode, so that symlinks, ``..``, and letter case do not
    matter; missing ones are identified by path.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._identities: dict[Path, tuple[int, int] | None] = {}
        self._folders = {self._identity(folder) or folder: folder for folder in folders}

    def holder(self, path: Path) -> Path | None:
        """Return the directory that contains a path or a target of its symlinks, or None."""
        for way in (Path(os.path.abspath(path)), *links(path)):  # noqa: PTH100 - '..' is lexical here
            for above in (way, *way.parents):
                folder = self._folders.get(self._identity(above) or above)
                if folder is not None:
                    return folder
        return None

    def _identity(self, path: Path) -> tuple[int, int] | None:
        if path not in self._identities:
            try:
                status = path.stat()
            except OSError:
                self._identities[path] = None
            else:
                self._identities[path] = status.st_dev, status.st_ino
        return self._identities[path]
