"""What builds know of files, apart from all else: so hashing can begin before the rest is there."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from mobileprep.building.pipeline.cache_files import FORMAT, default_folder, index_file
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.publish import held
from mobileprep.building.plan.sources import checkpoint_files, graph_files
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.loading import target_folders
from mobileprep.recipe.model import Recipe


def files_of_builds(out: Path, *, checksum: bool = False) -> FileIndex:
    """What earlier builds into an output folder have hashed."""
    return FileIndex(index_file(default_folder() / FORMAT, out), checksum=checksum)


def being_hashed(
    recipes: Sequence[Recipe], out: Path, targets: Collection[str] = (), *, checksum: bool
) -> FileIndex:
    """What earlier builds have hashed; to hash the models, where that is due, has begun."""
    files = files_of_builds(out, checksum=checksum)
    folders = target_folders(recipes, out, targets) if checksum else ()
    published = [path for folder in folders for path in held(folder)]
    files.begin({*published, *_models(recipes, targets)})
    return files


def _models(recipes: Sequence[Recipe], names: Collection[str]) -> Iterator[Path]:
    """The files of the models that some targets are built from, as far as they are there."""
    targets = [target for recipe in recipes for target in recipe.targets]
    chosen = [t for t in targets if not names or t.name in names or t.folder in names]
    for source in {target.source for target in chosen}:
        with contextlib.suppress(CorruptFileError):  # the plan says so
            yield from (member.path for member in graph_files(source).members)
        if source.checkpoint is not None:
            with contextlib.suppress(CorruptFileError):
                yield from (member.path for member in checkpoint_files(source.checkpoint).members)
