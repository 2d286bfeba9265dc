"""The verb ``lock``: pins the inputs of recipes for ``build --locked``."""

from __future__ import annotations

import argparse
import sys

from mobileprep.cli._shared.arguments import recipe_arguments
from mobileprep.cli.verb import Group, verb


@verb(
    "lock",
    Group.MAINTENANCE,
    "Pin the inputs of recipes in mobileprep.lock",
    recipe_arguments,
    "mobileprep lock recipe.yaml",
)
def run(args: argparse.Namespace) -> int:
    """Write every lock file that is not up to date."""
    from mobileprep.building.lock import write_locks
    from mobileprep.cli._shared.folders import load_recipes

    for lock in write_locks(load_recipes(args)):
        print(f"{lock.path}: {'written' if lock.is_changed else 'up to date'}", file=sys.stderr)
    return 0
