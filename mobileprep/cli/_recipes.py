"""What the verbs that take recipes share: their flags, and from recipes to a plan's state."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from mobileprep.cli.verb import comma_list
from mobileprep.errors import RecipeError, UsageError, nearest_hint
from mobileprep.pipeline.publish import publish
from mobileprep.pipeline.runner import Built, check_pins
from mobileprep.pipeline.state import State
from mobileprep.pipeline.store import Store, default_folder
from mobileprep.plan.planner import plan_recipes
from mobileprep.plan.sources import single_file
from mobileprep.recipe.model import Recipe
from mobileprep.report.collect import Report, collect_report
from mobileprep.report.json import report_json

REPORT = "report.json"


def recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that takes recipes."""
    parser.add_argument("recipes", nargs="+", metavar="RECIPE", help="a recipe file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="what ${NAME} means in the recipes, before the environment",
    )


def target_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that picks targets."""
    parser.add_argument(
        "--target", action="append", default=[], metavar="T", help="only these targets, a,b"
    )


def out_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that names the output folder."""
    parser.add_argument("--out", default="out", metavar="DIR", help="the folder for outputs")


def load_recipes(args: argparse.Namespace) -> list[Recipe]:
    """All recipes of a command line.

    Raises:
        RecipeError: the problems of all recipes together.
        UsageError: a --set without ``=``, or two recipes of one name.
    """
    from mobileprep.recipe import load_recipe

    settings = dict(_setting(text) for text in args.settings)
    recipes: list[Recipe] = []
    problems: list[str] = []
    hints: list[str] = []
    for name in args.recipes:
        try:
            recipes.append(load_recipe(Path(name), settings=settings, environ=os.environ))
        except RecipeError as error:
            problems.append(str(error))
            hints.append(error.hint)
    if problems:
        raise RecipeError("\n".join(problems), next((h for h in hints if h), ""))
    _check_names(recipes)
    return recipes


def plan_state(
    recipes: Sequence[Recipe], targets: Iterable[str] = (), *, force: bool = False
) -> State:
    """The plan of some recipes against the store, pinned digests checked.

    Raises:
        UsageError: a target that no recipe has.
        CorruptFileError: a file is missing, or is not what its pin says.
    """
    wanted = frozenset(name for text in targets for name in comma_list(text))
    known = {name for r in recipes for t in r.targets for name in (t.name, t.folder)}
    for name in sorted(wanted - known):
        message = f"no recipe has a target {name!r}"
        raise UsageError(
            message, nearest_hint(name, known) or f"there are {', '.join(sorted(known))}"
        )
    state = State(plan_recipes(recipes, wanted), Store(default_folder()), force=force)
    _check_pins(recipes, state)
    return state


def build_report(built: Built) -> Report:
    """The report of a built target."""
    sizes = {name: output.size for name, output in built.files.items()}
    return collect_report(built.target.recipe, built.target.target, built.steps, built.facts, sizes)


def publish_target(built: Built, store: Store, out: Path) -> tuple[Report, bool]:
    """Bring a target's folder up to date; its report, and whether anything was written."""
    report = build_report(built)
    done = publish(built, {REPORT: report_json(report)}, store, out)
    return report, bool(done)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        message = f"--set takes NAME=VALUE, and got {text!r}"
        raise UsageError(message)
    return name, value


def _check_names(recipes: Sequence[Recipe]) -> None:
    seen: dict[str, str] = {}
    for recipe in recipes:
        if recipe.name in seen:
            message = f"{recipe.file} and {seen[recipe.name]} are both named {recipe.name!r}"
            raise UsageError(message, "give one of them another name: outputs go by it")
        seen[recipe.name] = recipe.file


def _check_pins(recipes: Sequence[Recipe], state: State) -> None:
    pins = {
        (pin.file.name, pin.file.place, pin.sha256, state.digest(file))
        for recipe in recipes
        for target in recipe.targets
        for pin in target.source.pins
        for file in single_file(pin.file)
    }
    check_pins(sorted(pins))
