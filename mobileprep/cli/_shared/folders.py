"""Find and load the recipes of a command line, and print their warnings and reports."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from mobileprep.building.report.collect import Report
from mobileprep.building.report.comparison.model import Comparison
from mobileprep.cli._shared.arguments import OUT, settings_of
from mobileprep.cli._shared.telling import print_note, warn_all
from mobileprep.cli._shared.terminal import columns, is_terminal, show
from mobileprep.core.files import unreadable
from mobileprep.core.printable import plain
from mobileprep.errors import RecipeError, UsageError
from mobileprep.recipe.load import check_names, load_recipe
from mobileprep.recipe.model import Recipe, Step
from mobileprep.recipe.tree import InvalidRecipeError, render

RECIPE = "recipe.yaml"


# Maximum number of names in a hint.
_TOLD = 5


def recipe_files(names: Iterable[str], *, recursive: bool, out: str) -> list[Path]:
    """Return the recipe files of a command line, in order and without duplicates.

    Args:
        names: recipe files, or directories.
        recursive: find every recipe below a directory, not only its own.
        out: output directory, which is not searched.

    Raises:
        UsageError: a name is empty, or a directory does not contain a recipe.
    """
    paths: dict[str, Path] = {}
    for name in names:
        if not name:
            message = "an empty name is not a recipe"
            raise UsageError(message, "name a file or a folder; '.' is the current one")
        for path in _below(Path(name), out) if recursive else [_named(Path(name))]:
            paths.setdefault(os.path.realpath(path), path)
    return list(paths.values())


def _named(path: Path) -> Path:
    """Return the file itself, or the recipe of a directory."""
    if not path.is_dir():
        return path
    if not (path / RECIPE).is_file():
        message = f"the folder has no {RECIPE}"
        raise UsageError(message, _missing_recipe_hint(path), str(path))
    return path / RECIPE


def _below(path: Path, out: str) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(_walk(path, os.path.realpath(out)))
    if not files:
        message = f"neither the folder nor any below it has a {RECIPE}"
        raise UsageError(message, "write one with 'mobileprep init'", str(path))
    return files


def _walk(top: Path, out: str) -> Iterator[Path]:
    """Yield the recipes below a directory; skip hidden directories, symlinks, and outputs."""
    for folder, below, files in os.walk(top, onerror=_refuse):
        below[:] = [
            name
            for name in below
            if not name.startswith(".") and os.path.realpath(Path(folder) / name) != out
        ]
        if RECIPE in files:
            yield Path(folder) / RECIPE


def _refuse(error: OSError) -> None:
    raise unreadable(Path(error.filename), error) from error


def _missing_recipe_hint(folder: Path) -> str:
    """Return a hint for a directory without ``recipe.yaml``."""
    beside = sorted(str(p) for end in ("yaml", "yml") for p in folder.glob(f"*.{end}"))
    if beside:
        return f"name the file: {', '.join(beside[:_TOLD])}"
    below = sorted(str(p) for p in folder.glob(f"*/{RECIPE}"))
    if below:
        return f"'-r' takes those below it, such as {', '.join(below[:_TOLD])}"
    return "write one with 'mobileprep init'"


def load_recipes(args: argparse.Namespace) -> list[Recipe]:
    """Load all recipes of a command line.

    Raises:
        RecipeError: recipes are invalid; the message lists the problems of all of them.
    """
    settings = settings_of(args)
    recipes: list[Recipe] = []
    problems: list[str] = []
    hints: list[str] = []
    seen: set[str] = set()
    out = getattr(args, "out", OUT)
    for path in recipe_files(args.recipes, recursive=args.recursive, out=out):
        try:
            recipes.append(load_recipe(path, settings=settings, environ=os.environ))
        except RecipeError as error:
            problems += _new_problems(error, seen)
            hints.append(error.hint)
    if problems:
        raise RecipeError("\n".join(problems), next((h for h in hints if h), ""))
    check_names(recipes)
    return recipes


def _new_problems(error: RecipeError, seen: set[str]) -> list[str]:
    """Return the problems of a recipe that were not reported for one that it extends."""
    if not isinstance(error, InvalidRecipeError):
        return [str(error)]
    problems = [problem for problem in error.problems if str(problem) not in seen]
    seen.update(map(str, problems))
    return [render(problems)] if problems else []


def warn_of_chains(recipes: Iterable[Recipe]) -> None:
    """Warn about problems that are visible from the chains alone."""
    for recipe in recipes:
        warn_all(recipe_cautions(recipe))


def no_wait_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-wait``."""
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="Fail instead of waiting if another build uses an output directory",
    )


def holding(args: argparse.Namespace, folders: Iterable[Path]) -> AbstractContextManager[bool]:
    """Lock output directories; the context's value is whether it waited for another build."""
    from mobileprep.building.pipeline.locks import folder_locks

    return folder_locks(folders, wait=not args.no_wait, tell=print_note)


def print_reports(
    reports: Iterable[Report], *, as_json: bool, beside: Sequence[Report] = ()
) -> None:
    """Print reports and a summary of ``beside``, or print the reports as a JSON list."""
    if as_json:
        from mobileprep.building.report.collect import report_data

        print(json.dumps([report_data(r) for r in reports], sort_keys=True, indent=1))
        return
    from mobileprep.building.report.summary import summary_text
    from mobileprep.building.report.text import USUAL_WIDTH, report_text

    width, color = _terminal()
    for report in reports:
        print(report_text(report, color=color, width=width), end="")
    print(summary_text(beside, width or USUAL_WIDTH), end="")


def print_comparisons(comparisons: Iterable[Comparison]) -> None:
    """Print the differences of targets, with control characters escaped."""
    from mobileprep.building.report.comparison.model import comparison_lines, comparison_title
    from mobileprep.building.report.text import BOLD, PLAIN

    width, color = _terminal()
    for one in comparisons:
        title = plain(comparison_title(one))
        print(f"{BOLD}{title}{PLAIN}" if color else title)
        show(comparison_lines(one, width))


def _terminal() -> tuple[int | None, bool]:
    """Return the width of the terminal, None if there is none, and whether to use colors."""
    terminal = is_terminal(sys.stdout)
    return columns(sys.stdout) if terminal else None, terminal and not os.environ.get("NO_COLOR")


_FOLDS: Final = frozenset(
    {"fold_batch_norms", "fold_old_batch_norms", "fuse_batch_norms", "optimize"}
)


_QUANTIZES: Final = ("quantize_nodes", "quantize_weights")


def recipe_cautions(recipe: Recipe) -> tuple[str, ...]:
    """Return each warning about the chains of a recipe's targets once, with its location."""
    cautions = (caution for target in recipe.targets for caution in _of_chain(target.transforms))
    return tuple(dict.fromkeys(cautions))


def _of_chain(steps: Iterable[Step]) -> Iterator[str]:
    earlier: set[str] = set()
    for step in steps:
        if step.note:
            yield f"{step.place}: {step.note}"
        before = next((name for name in _QUANTIZES if name in earlier), None)
        if step.name in _FOLDS and before is not None:
            yield (
                f"{step.place}: {step.name} after {before}: quantized layers take no batch "
                f"norm in; put it before {before}"
            )
        if step.name == "quantize_weights" and step.name in earlier:
            yield (
                f"{step.place}: quantize_weights a second time: weights that are stored in 8 bits "
                "stay so; leave one of the two out"
            )
        earlier.add(step.name)
