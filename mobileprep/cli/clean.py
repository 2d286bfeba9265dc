"""The verb ``clean``: removes what builds left in the output folder, or the whole store."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mobileprep.cli._arguments import out_argument, recipe_arguments
from mobileprep.cli.verb import verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    out_argument(parser)
    parser.add_argument("--cache", action="store_true", help="empty the store as well")


@verb("clean", "remove the outputs of recipes", _arguments)
def run(args: argparse.Namespace) -> int:
    """Remove the files that manifests list; nothing else is touched."""
    from mobileprep.cli._load import load_recipes
    from mobileprep.fsio import inside
    from mobileprep.pipeline.publish import unpublish
    from mobileprep.pipeline.store import Store, default_folder

    count = 0
    for recipe in load_recipes(args):
        for target in recipe.targets:
            folder = inside(Path(args.out), f"{recipe.name}/{target.folder}")
            count += len(unpublish(folder))
    if args.cache:
        Store(default_folder()).empty()
    print(f"{count} files removed", file=sys.stderr)
    return 0
