"""The page of a report: written beside another build's, or opened in the browser."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobileprep.cli._shared.arguments import targets_of
from mobileprep.cli._shared.folders import RECIPE
from mobileprep.core.paths import is_stdout
from mobileprep.errors import CorruptFileError, UsageError

if TYPE_CHECKING:
    from mobileprep.pipeline.state import State


def report_page(args: argparse.Namespace, planned: Callable[[], State]) -> int:
    """Write the page of what is built where ``--html`` says, and open it where ``--open`` does.

    Args:
        args: the arguments of the verb ``report``.
        planned: gives the plan of the recipes that they name, nothing of which has to run.

    Raises:
        UsageError: they do not go together.
        CorruptFileError: there is no page.
    """
    _check(args)
    page = _there(args) if args.html is None else _written(args, planned)
    if args.open:
        open_page(page)
    return 0


def open_page(page: Path) -> None:
    """Open a page in the browser; without one, tell where it is."""
    import webbrowser

    try:
        is_open = webbrowser.open(page.absolute().as_uri())
    except webbrowser.Error:
        is_open = False
    if not is_open:
        print(f"There is no browser to open {page.absolute()} in.")


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


def _written(args: argparse.Namespace, planned: Callable[[], State]) -> Path:
    from mobileprep.api.stored_pages import find_page, read_page, write_page

    data = _told(args, planned)
    earlier = None
    if args.compare is not None:
        earlier = read_page(find_page(Path(args.compare), data["recipe"]))
    path = Path(args.html)
    write_page(path, data, targets_of(args), earlier)
    print(f"Created {path}.", file=sys.stderr if is_stdout(path) else sys.stdout)
    return path


def _told(args: argparse.Namespace, planned: Callable[[], State]) -> dict[str, Any]:
    from mobileprep.api.pages import built_pages
    from mobileprep.api.stored_pages import find_page, read_page

    path = Path(args.recipes[0])
    if _is_recipe(path):
        (data,) = built_pages(planned())
        return data
    return read_page(find_page(path))


def _there(args: argparse.Namespace) -> Path:
    from mobileprep.api.pages import page_of_recipe
    from mobileprep.api.stored_pages import find_page
    from mobileprep.cli._shared.load import load_recipes

    path = Path(args.recipes[0])
    if not _is_recipe(path):
        return find_page(path)
    (recipe,) = load_recipes(args)
    page = page_of_recipe(recipe.name, Path(args.out))
    if not page.is_file():
        message = "there is no page there"
        hint = f"'mobileprep build {path}' makes it; --out names another folder for outputs"
        raise CorruptFileError(message, hint, str(page))
    return page


def _is_recipe(path: Path) -> bool:
    if path.is_dir():
        return (path / RECIPE).is_file()
    return path.suffix.lower() not in (".json", ".html", ".htm")
