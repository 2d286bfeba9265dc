"""The verb ``validate``: checks recipes and their files without building."""

from __future__ import annotations

import argparse
import json

from mobileprep.cli._shared.arguments import recipe_arguments
from mobileprep.cli._shared.diagnostics import add_output_format
from mobileprep.cli.verb import Group, verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    parser.add_argument(
        "--no-files", action="store_true", help="Do not check the files that recipes name"
    )
    add_output_format(parser, "Print recipes and targets as JSON")


@verb(
    "validate",
    Group.BUILD,
    "Check recipes and the files they name",
    _arguments,
    "mobileprep validate recipe.yaml",
    "mobileprep validate --recursive models --no-files",
)
def run(args: argparse.Namespace) -> int:
    """Load every recipe, check its files, and open its models and data."""
    from mobileprep.cli._shared.folders import load_recipes, warn_of_chains
    from mobileprep.cli._shared.telling import warn_all

    recipes = load_recipes(args)
    foreseen: list[str] = []
    if not args.no_files:
        # Slow to import, because models need numpy.
        from mobileprep.building.fit import validate as check

        check(recipes, warn=foreseen.append)
    warn_of_chains(recipes)
    warn_all(foreseen)
    if args.output_format == "json":
        data = [
            {"file": r.file, "name": r.name, "targets": [t.folder for t in r.targets]}
            for r in recipes
        ]
        print(json.dumps(data, indent=1))
        return 0
    for recipe in recipes:
        names = ", ".join(t.folder for t in recipe.targets)
        print(f"{recipe.file}: ok, {len(recipe.targets)} targets: {names}")
    return 0
