"""The verb ``report``: prints or compares the reports of built recipes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobileprep.cli._shared.arguments import (
    out_argument,
    recipe_arguments,
    target_argument,
    targets_of,
)
from mobileprep.cli._shared.folders import RECIPE
from mobileprep.cli.verb import Group, verb
from mobileprep.core.paths import is_stdout
from mobileprep.errors import CorruptFileError, UsageError

if TYPE_CHECKING:
    from mobileprep.building.pipeline.state import State
    from mobileprep.building.report.collect import Report
    from mobileprep.building.report.comparison.model import Comparison
    from mobileprep.building.report_files import StoredReport
    from mobileprep.recipe.model import Recipe


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(
        parser,
        "Recipe file, directory with recipe.yaml, report.json, report.html, or output directory",
    )
    target_argument(parser)
    parser.add_argument(
        "--compare",
        metavar="OLD",
        help="Compare with this report.json, output of build --json, or output directory; "
        "with --html, with this report.html or a directory that contains it",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="Print JSON")
    form.add_argument(
        "--format",
        choices=("text", "markdown"),
        default="text",
        help="Text for a terminal, or Markdown for a pull request comment",
    )
    form.add_argument("--html", metavar="FILE", help="Write the report page to this file")
    parser.add_argument("--open", action="store_true", help="Open the report page in the browser")
    out_argument(parser)


@verb(
    "report",
    Group.BUILD,
    "Print or compare the reports of built recipes",
    _arguments,
    "mobileprep report recipe.yaml",
    "mobileprep report recipe.yaml --compare old/report.json --format markdown",
    "mobileprep report recipe.yaml --open",
)
def run(args: argparse.Namespace) -> int:
    """Print reports, or their differences from earlier ones.

    Raises:
        UsageError: a recipe is stale, so its report would be outdated.
    """
    from mobileprep.building.pipeline.runner import collect
    from mobileprep.building.targets import build_report

    if args.html is not None or args.open:
        return _page(args)
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
    """Return the reports that the arguments name; None if they name recipes."""
    are_reports = {_is_report(Path(name)) for name in args.recipes}
    if True not in are_reports or args.recursive:
        return None
    if len(are_reports) > 1:
        message = "some of the arguments are recipes, and others are reports"
        raise UsageError(message, "name recipes alone, or reports alone")
    from mobileprep.building.report_files import only, stored_reports

    reports = [one for name in args.recipes for one in stored_reports(Path(name))]
    chosen = only(reports, targets_of(args))
    if not chosen:
        targets = ", ".join(one.report.target for one in reports)
        message = "no report is of such a target"
        raise UsageError(message, f"there are {targets}")
    return chosen


def _is_report(path: Path) -> bool:
    from mobileprep.building.pipeline.publish import MANIFEST

    if not path.is_dir():
        return path.suffix == ".json"
    return not (path / RECIPE).is_file() and any(path.rglob(MANIFEST))


def _fresh(args: argparse.Namespace) -> tuple[list[Recipe], State]:
    """Return the recipes and their plan; fail if a stage is stale."""
    from mobileprep.building.pipeline.runner import stale_stages
    from mobileprep.building.targets import plan_state
    from mobileprep.cli._shared.folders import load_recipes

    recipes = load_recipes(args)
    state = plan_state(recipes, targets_of(args))
    stale = stale_stages(state)
    if stale:
        message = f"{len(stale)} stages are stale, the first is {stale[0][0].task}"
        words = ["mobileprep build", *["-r"] * args.recursive, *args.recipes]
        raise UsageError(message, f"run '{' '.join(words)}' first")
    return recipes, state


def _compared(args: argparse.Namespace, stored: list[StoredReport] | None) -> list[Comparison]:
    from mobileprep.building.comparing_reports import compare_built, compare_stored

    earlier = Path(args.compare)
    if stored is not None:
        return compare_stored(stored, earlier)
    return compare_built(*_fresh(args), earlier)


def _print_reports(args: argparse.Namespace, reports: list[Report]) -> None:
    from mobileprep.cli._shared.folders import print_reports

    if args.format == "markdown":
        from mobileprep.building.report.markdown import reports_markdown

        print(reports_markdown(reports), end="")
    else:
        print_reports(reports, as_json=args.json, beside=reports)


def _print_comparisons(args: argparse.Namespace, comparisons: list[Comparison]) -> None:
    if args.json:
        from mobileprep.building.report.collect import comparison_data

        print(json.dumps([comparison_data(c) for c in comparisons], sort_keys=True, indent=1))
    elif args.format == "markdown":
        from mobileprep.building.report.comparison.model import comparisons_markdown

        print(comparisons_markdown(comparisons), end="")
    else:
        from mobileprep.cli._shared.folders import print_comparisons

        print_comparisons(comparisons)


def _page(args: argparse.Namespace) -> int:
    """Write the report page to the path of ``--html``, and open it with ``--open``."""
    _check(args)
    page = _there(args) if args.html is None else _written(args)
    if args.open:
        open_page(page)
    return 0


def open_page(page: Path) -> None:
    """Open a page in the browser, or print its path if there is no browser."""
    import webbrowser

    try:
        is_open = webbrowser.open(page.absolute().as_uri())
    except webbrowser.Error:
        is_open = False
    if not is_open:
        print(f"No browser found to open {page.absolute()} in.")


def _check(args: argparse.Namespace) -> None:
    if len(args.recipes) > 1 or args.recursive:
        message = "a page is of one recipe, and several are named"
        raise UsageError(message, "name one of them")
    if args.open and args.html is None and (args.compare is not None or targets_of(args)):
        message = "--open opens the page that the build left, which is of that build alone"
        raise UsageError(message, "name a file for another one: --html page.html --open")
    if args.open and (args.json or args.format != "text"):
        message = "--open opens a page, and prints nothing"
        raise UsageError(message, "leave --json and --format out")
    if args.open and args.html is not None and is_stdout(Path(args.html)):
        message = "--open takes a page in a file, and --html names the standard output"
        raise UsageError(message, "name a file: --html page.html")


def _written(args: argparse.Namespace) -> Path:
    from mobileprep.building.report_files import find_page, read_page, write_page

    data = _page_data(args)
    earlier = None
    if args.compare is not None:
        earlier = read_page(find_page(Path(args.compare), data["recipe"]))
    path = Path(args.html)
    write_page(path, data, targets_of(args), earlier)
    print(f"Created {path}.", file=sys.stderr if is_stdout(path) else sys.stdout)
    return path


def _page_data(args: argparse.Namespace) -> dict[str, Any]:
    from mobileprep.building.pages import built_pages
    from mobileprep.building.report_files import find_page, read_page

    path = Path(args.recipes[0])
    if _is_recipe(path):
        (data,) = built_pages(_fresh(args)[1])
        return data
    return read_page(find_page(path))


def _there(args: argparse.Namespace) -> Path:
    from mobileprep.building.pages import page_of_recipe
    from mobileprep.building.report_files import find_page
    from mobileprep.cli._shared.folders import load_recipes

    path = Path(args.recipes[0])
    if not _is_recipe(path):
        return find_page(path)
    (recipe,) = load_recipes(args)
    page = page_of_recipe(recipe.name, Path(args.out))
    if not page.is_file():
        message = "the report page does not exist"
        hint = f"'mobileprep build {path}' makes it; --out names another folder for outputs"
        raise CorruptFileError(message, hint, str(page))
    return page


def _is_recipe(path: Path) -> bool:
    if path.is_dir():
        return (path / RECIPE).is_file()
    return path.suffix.lower() not in (".json", ".html", ".htm")
