"""The verb ``device``: benchmarks models on devices, and fits device profiles to the results."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.cli._shared.arguments import OUT, settings_argument, settings_of
from mobileprep.cli.verb import Group, file_name, verb
from mobileprep.errors import UsageError


class _Action(Struct, frozen=True):
    """An action of the verb.

    Args:
        summary: one line for the help.
        run: function that returns the exit code.
        arguments: function that adds the action's options to their group.
    """

    summary: str
    run: Callable[[argparse.Namespace], int]
    arguments: Callable[[argparse._ArgumentGroup], None]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=sorted(_ACTIONS),
        help="; ".join(f"{name}: {action.summary}" for name, action in sorted(_ACTIONS.items())),
    )
    parser.add_argument(
        "files", nargs="+", type=file_name, metavar="FILE", help="Files that the action reads"
    )
    for name, action in sorted(_ACTIONS.items()):
        action.arguments(parser.add_argument_group(f"options of {name}"))


@verb(
    "device",
    Group.INSPECT,
    "Benchmark models on devices, import the results, and fit device profiles",
    _arguments,
    "mobileprep device script recipe.yaml --target phone",
    "mobileprep device import benchmark.log --recipe recipe.yaml",
    "mobileprep device fit measurements/*.json --out phone.yaml",
)
def run(args: argparse.Namespace) -> int:
    """Run an action."""
    for name, action in _ACTIONS.items():
        if name != args.action:
            _check_unused(args, name, action)
    return _ACTIONS[args.action].run(args)


def _check_unused(args: argparse.Namespace, name: str, action: _Action) -> None:
    """Raise an error for an option of another action."""
    parser = argparse.ArgumentParser(add_help=False)
    action.arguments(parser.add_argument_group())
    for option in parser._actions:
        if getattr(args, option.dest) != option.default:
            message = f"{option.option_strings[0]} needs the action {name}, not {args.action}"
            raise UsageError(message)


def _import_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--recipe", metavar="RECIPE", help="Recipe file, or directory with recipe.yaml"
    )


def _import(args: argparse.Namespace) -> int:
    raise NotImplementedError


def _fit_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--profile", metavar="FILE", help="Device profile to write")


def _fit(args: argparse.Namespace) -> int:
    raise NotImplementedError


def _script_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--target", default="", metavar="T", help="Target with the model")
    group.add_argument("--out", default=OUT, metavar="DIR", help="Output directory of the build")
    group.add_argument(
        "--script", metavar="DIR", help="Directory to write [default: device-TARGET]"
    )
    settings_argument(group)


def _script(args: argparse.Namespace) -> int:
    from mobileprep.building.device_scripts import device_script, device_target
    from mobileprep.cli._shared.folders import recipe_files
    from mobileprep.recipe.load import load_recipe

    paths = recipe_files(args.files, recursive=False, out=args.out)
    if len(paths) > 1:
        message = f"script reads one recipe, not {len(paths)}"
        raise UsageError(message, "run it for each recipe")
    recipe = load_recipe(paths[0], settings=settings_of(args), environ=os.environ)
    target = device_target(recipe, args.target)
    name = args.script or f"device-{target.folder.replace('/', '-')}"
    for written in device_script(recipe, Path(name), target=target.folder, out=args.out):
        print(f"Created {written}.")
    return 0


_ACTIONS: Final = {
    "fit": _Action("fit a device profile to measurements", _fit, _fit_arguments),
    "import": _Action("store the measurement in a log", _import, _import_arguments),
    "script": _Action("write a script that benchmarks a target", _script, _script_arguments),
}
