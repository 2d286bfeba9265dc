"""The verb ``report``: prints the reports of what is built, without building."""

from __future__ import annotations

import argparse

from mobileprep.cli._shared.arguments import recipe_arguments, target_argument, targets_of
from mobileprep.cli.verb import verb
from mobileprep.errors import UsageError


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    target_argument(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--format",
        choices=("text", "markdown"),
        default="text",
        help="for a terminal, or for a comment on a pull request",
    )


@verb("report", "print the reports of recipes that are built", _arguments)
def run(args: argparse.Namespace) -> int:
    """Collect and print; a stale recipe is an error, for its report would be of something else."""
    from mobileprep.api.targets import build_report, plan_state
    from mobileprep.cli._shared.load import load_recipes
    from mobileprep.cli._shared.reports import print_reports
    from mobileprep.pipeline.runner import collect, stale_stages

    state = plan_state(load_recipes(args), targets_of(args))
    stale = stale_stages(state)
    if stale:
        message = f"{len(stale)} stages are stale, the first is {stale[0][0].task}"
        words = ["mobileprep build", *["-r"] * args.recursive, *args.recipes]
        raise UsageError(message, f"run '{' '.join(words)}' first")
    reports = [build_report(built) for built in collect(state)]
    if args.format == "markdown":
        from mobileprep.report.markdown import reports_markdown

        print(reports_markdown(reports), end="")
    else:
        print_reports(reports, as_json=args.json, beside=reports)
    return 0
