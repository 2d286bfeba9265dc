"""The verb ``report``: prints the reports of what is built, without building."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli._shared.arguments import (
    out_argument,
    recipe_arguments,
    target_argument,
    targets_of,
)
from mobileprep.cli._shared.folders import RECIPE
from mobileprep.cli._shared.report_page import report_page
from mobileprep.cli.verb import verb
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.api.report_files import StoredReport
    from mobileprep.pipeline.state import State
    from mobileprep.recipe.model import Recipe
    from mobileprep.report.collect import Report
    from mobileprep.report.comparison.model import Comparison


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(
        parser,
        "a recipe file, a folder with recipe.yaml, or a report.json, report.html or folder of "
        "outputs",
    )
    target_argument(parser)
    parser.add_argument(
        "--compare",
        metavar="OLD",
        help="tell what differs from this report.json, output of build --json, or output folder; "
        "for a page this report.html, or a folder that has it",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--format",
        choices=("text", "markdown"),
        default="text",
        help="for a terminal, or for a comment on a pull request",
    )
    form.add_argument("--html", metavar="FILE", help="write the page there, beside OLD's if named")
    parser.add_argument(
        "--open", action="store_true", help="open the page in the browser: --html's, or the build's"
    )
    out_argument(parser)


@verb("report", "print the reports of recipes that are built", _arguments)
def run(args: argparse.Namespace) -> int:
    """Print reports, or what they differ in from earlier ones.

    A stale recipe is an error, for its report would be of something else.
    """
    from mobileprep.api.targets import build_report
    from mobileprep.pipeline.runner import collect

    if args.html is not None or args.open:
        return report_page(args, lambda: _fresh(args)[1])
    stored = _stored(args)
    if args.compare is not None:
        _print_comparisons(args, _compared(args, stored))
    elif stored is not None:
        _print_reports(args, [one.report for one in stored])
    else:
        _, state = _fresh(args)
        _print_reports(args, [build_report(built) for built in collect(state)])
    return 0


def _stored(args: argparse.Namespace) -> list[StoredReport] | None:
    """The reports that the arguments name themselves; None where they name recipes.

    Raises:
        UsageError: some are recipes, and others reports.
        CorruptFileError: one is no report.
    """
    are_reports = {_is_report(Path(name)) for name in args.recipes}
    if True not in are_reports or args.recursive:
        return None
    if len(are_reports) > 1:
        message = "some of the arguments are recipes, and others are reports"
        raise UsageError(message, "name recipes alone, or reports alone")
    from mobileprep.api.report_files import only, stored_reports

    found = [one for name in args.recipes for one in stored_reports(Path(name))]
    chosen = only(found, targets_of(args))
    if not chosen:
        known = ", ".join(one.report.target for one in found)
        message = "no report is of such a target"
        raise UsageError(message, f"there are {known}")
    return chosen


def _is_report(path: Path) -> bool:
    from mobileprep.pipeline.published import MANIFEST

    if not path.is_dir():
        return path.suffix == ".json"
    return not (path / RECIPE).is_file() and any(path.rglob(MANIFEST))


def _fresh(args: argparse.Namespace) -> tuple[list[Recipe], State]:
    """The recipes with their plan, nothing of which has to run."""
    from mobileprep.api.targets import plan_state
    from mobileprep.cli._shared.load import load_recipes
    from mobileprep.pipeline.runner import stale_stages

    recipes = load_recipes(args)
    state = plan_state(recipes, targets_of(args))
    stale = stale_stages(state)
    if stale:
        message = f"{len(stale)} stages are stale, the first is {stale[0][0].task}"
        words = ["mobileprep build", *["-r"] * args.recursive, *args.recipes]
        raise UsageError(message, f"run '{' '.join(words)}' first")
    return recipes, state


def _compared(args: argparse.Namespace, stored: list[StoredReport] | None) -> list[Comparison]:
    from mobileprep.api.comparing_reports import compare_built, compare_stored

    earlier = Path(args.compare)
    if stored is not None:
        return compare_stored(stored, earlier)
    return compare_built(*_fresh(args), earlier)


def _print_reports(args: argparse.Namespace, reports: list[Report]) -> None:
    from mobileprep.cli._shared.reports import print_reports

    if args.format == "markdown":
        from mobileprep.report.markdown import reports_markdown

        print(reports_markdown(reports), end="")
    else:
        print_reports(reports, as_json=args.json, beside=reports)


def _print_comparisons(args: argparse.Namespace, comparisons: list[Comparison]) -> None:
    if args.json:
        from mobileprep.report.json import comparison_data

        print(json.dumps([comparison_data(c) for c in comparisons], sort_keys=True, indent=1))
    elif args.format == "markdown":
        from mobileprep.report.comparison.markdown import comparisons_markdown

        print(comparisons_markdown(comparisons), end="")
    else:
        from mobileprep.cli._shared.reports import print_comparisons

        print_comparisons(comparisons)
