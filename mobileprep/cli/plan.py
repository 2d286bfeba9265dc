"""The verb ``plan``: prints the stages of recipes, and which of them would run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mobileprep.cli._shared.arguments import (
    exit_code_argument,
    out_argument,
    recipe_arguments,
    target_argument,
    targets_of,
)
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    target_argument(parser)
    out_argument(parser)
    exit_code_argument(parser)
    parser.add_argument("--json", action="store_true", help="Print the stages as JSON")


@verb(
    "plan",
    Group.BUILD,
    "Print the stages of recipes and why each would run",
    _arguments,
    "mobileprep plan recipe.yaml",
    "mobileprep plan recipe.yaml --exit-code --json",
)
def run(args: argparse.Namespace) -> int:
    """Print the stages; with ``--exit-code``, return 1 if one would run."""
    from mobileprep.building.targets import plan_state, shared_store
    from mobileprep.building.verdicts import verdict_lines, verdicts
    from mobileprep.cli._shared.folders import load_recipes, warn_of_chains

    recipes = load_recipes(args)
    state = plan_state(recipes, targets_of(args), store=shared_store(recipes, Path(args.out)))
    warn_of_chains(recipes)
    judged = verdicts(state, Path(args.out))
    if args.json:
        print(json.dumps([verdict.as_data() for verdict in judged], indent=1))
    else:
        show(verdict_lines(judged, verbose=args.verbose))
    return int(args.exit_code and not all(verdict.fresh for verdict in judged))
