"""The verb ``plan``: prints the stages of recipes, and which of them would run."""

from __future__ import annotations

import argparse
import json

from mobileprep.cli._arguments import recipe_arguments, target_argument
from mobileprep.cli.verb import verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    target_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the stages as JSON")


@verb("plan", "print the stages of recipes, and why each would run", _arguments)
def run(args: argparse.Namespace) -> int:
    """Plan, judge, print."""
    from mobileprep.cli._load import load_recipes, warn_of_chains
    from mobileprep.cli._targets import plan_state
    from mobileprep.pipeline.state import Stale

    recipes = load_recipes(args)
    state = plan_state(recipes, args.target)
    warn_of_chains(recipes)
    verdicts = [(spec, state.verdict(spec.task)) for spec in state.plan.stages]
    if args.json:
        data = [
            {
                "task": spec.task,
                "stage": spec.stage,
                "needs": sorted({up.task for up in spec.upstream.values()}),
                "fresh": not isinstance(verdict, Stale),
                "reasons": list(verdict.reasons) if isinstance(verdict, Stale) else [],
            }
            for spec, verdict in verdicts
        ]
        print(json.dumps(data, indent=1))
        return 0
    for spec, verdict in verdicts:
        told = "; ".join(verdict.reasons) if isinstance(verdict, Stale) else "fresh"
        print(f"{spec.task}: {told}")
    return 0
