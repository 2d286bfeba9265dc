"""The verb ``clean``: removes the outputs of recipes, and optionally the cache."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from mobileprep.cli._shared.arguments import out_argument, recipe_arguments
from mobileprep.cli._shared.folders import holding, no_wait_argument
from mobileprep.cli._shared.telling import print_note
from mobileprep.cli.verb import Group, verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    out_argument(parser)
    no_wait_argument(parser)
    parser.add_argument("--cache", action="store_true", help="Empty the cache, too")


@verb(
    "clean",
    Group.MAINTENANCE,
    "Remove the outputs of recipes",
    _arguments,
    "mobileprep clean recipe.yaml",
)
def run(args: argparse.Namespace) -> int:
    """Remove the files that manifests list, provenance files, and report pages."""
    from mobileprep.building.pages import remove_page
    from mobileprep.building.pipeline.publish import unpublish
    from mobileprep.building.targets import remove_provenance
    from mobileprep.cli._shared.folders import load_recipes
    from mobileprep.recipe.load import target_folders

    folders = target_folders(load_recipes(args), Path(args.out))
    with holding(args, folders):
        removed = {f: len(unpublish(f)) + remove_provenance(f) for f in folders}
        pages = [f for f in {folder.parent for folder in folders} if remove_page(f, print_note)]
    for parent in {f.parent for f, count in removed.items() if count} | {*pages}:
        with contextlib.suppress(OSError):
            parent.rmdir()  # contained the lock file
    if args.cache:
        from mobileprep.building.cache import empty_store

        empty_store(wait=not args.no_wait, tell=print_note)
    print(f"{sum(removed.values()) + len(pages)} files removed", file=sys.stderr)
    return 0
