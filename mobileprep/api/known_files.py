"""What builds know of files, apart from all else: so hashing can begin before the rest is there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from mobileprep.api.recipes import target_folders
from mobileprep.pipeline.file_index import FileIndex
from mobileprep.pipeline.published import held
from mobileprep.pipeline.store_folder import FORMAT, default_folder, index_file
from mobileprep.recipe.model import Recipe


def files_of_builds(out: Path, *, checksum: bool = False) -> FileIndex:
    """What earlier builds into an output folder have hashed.

    Args:
        out: the output folder.
        checksum: hash every file all the same.
    """
    return FileIndex(index_file(default_folder() / FORMAT, out), checksum=checksum)


def being_hashed(recipes: Sequence[Recipe], out: Path, targets: Collection[str] = ()) -> FileIndex:
    """An index that trusts nothing of before; to hash what is published has begun.

    Args:
        recipes: what is to be built.
        out: the output folder.
        targets: the names of targets; all without any.

    Raises:
        ArtifactError: a name leads out of the output folder.
    """
    files = files_of_builds(out, checksum=True)
    folders = target_folders(recipes, out, targets)
    files.begin(path for folder in folders for path in held(folder))
    return files
