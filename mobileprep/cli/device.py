"""The verb ``device``: benchmarks models on devices, and fits device profiles to the results."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mobileprep.cli._shared.arguments import OUT, settings_argument, settings_of
from mobileprep.cli._shared.telling import warn
from mobileprep.cli.verb import Group, file_name, verb
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.recipe.model import Recipe

# Facts that replace those in the log.
_FACTS: Final = {
    "device": "Name of the device",
    "build": "Build fingerprint of its system",
    "threads": "Number of threads",
    "governor": "Clock state, such as the frequency governor",
    "date": "Date of the measurement",
    "tool": "Benchmark tool and its version",
}


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
    parser.add_argument("--target", default="", metavar="T", help="Target with the model")
    parser.add_argument(
        "--out",
        metavar="PATH",
        help="script and import: output directory of the build [default: out]; fit: profile to "
        "write",
    )
    settings_argument(parser)
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


def _recipe(args: argparse.Namespace, names: list[str], out: str) -> Recipe:
    """Load the recipe of an action."""
    from mobileprep.cli._shared.folders import recipe_files
    from mobileprep.recipe.load import load_recipe

    paths = recipe_files(names, recursive=False, out=out)
    if len(paths) > 1:
        message = f"{args.action} reads one recipe, not {len(paths)}"
        raise UsageError(message, "run it for each recipe")
    return load_recipe(paths[0], settings=settings_of(args), environ=os.environ)


def _import_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--recipe", metavar="RECIPE", help="Recipe of the model [default: recipe.yaml]"
    )
    for name, text in _FACTS.items():
        group.add_argument(
            f"--{name}", metavar=name.upper(), help=f"{text} [default: from the log]"
        )


def _import(args: argparse.Namespace) -> int:
    from mobileprep.building.device_measurements import import_measurement

    facts = {name: value for name in _FACTS if (value := getattr(args, name)) is not None}
    if args.target:
        facts["target"] = args.target
    out = args.out or OUT
    recipe = _recipe(args, [args.recipe or "recipe.yaml"], out)
    for log in args.files:
        done = import_measurement(log, recipe, out=out, facts=facts, warn=warn)
        measured = done.measurement
        matched = sum(op.cost is not None for op in measured.ops)
        print(f"{done.path}: {measured.mean_ms:.4g} ms on {measured.device} ({measured.basis})")
        if measured.ops:
            print(f"  {len(measured.ops)} ops, {matched} of them matched to nodes")
        print(f"  use it with 'measurement: {done.path.parent.name}/{done.path.name}'")
    return 0


def _fit_arguments(_group: argparse._ArgumentGroup) -> None:
    """Add nothing: the action has no options of its own."""


def _fit(args: argparse.Namespace) -> int:
    from mobileprep.building.device_measurements import fit_profile

    if args.out is None:
        message = "the file of the profile is missing"
        raise UsageError(message, "name it with --out phone.yaml")
    device = fit_profile(args.files, args.out)
    print(f"{args.out}: {device.title}, {device.basis}")
    return 0


def _script_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--script", metavar="DIR", help="Directory to write [default: device-TARGET]"
    )


def _script(args: argparse.Namespace) -> int:
    from mobileprep.building.device_measurements import device_script, device_target

    out = args.out or OUT
    recipe = _recipe(args, args.files, out)
    target = device_target(recipe, args.target)
    name = args.script or f"device-{target.folder.replace('/', '-')}"
    for written in device_script(recipe, Path(name), target=target.folder, out=out):
        print(f"Created {written}.")
    return 0


_ACTIONS: Final = {
    "fit": _Action("fit a device profile to measurements", _fit, _fit_arguments),
    "import": _Action("store the measurement in a log", _import, _import_arguments),
    "script": _Action("write a script that benchmarks a target", _script, _script_arguments),
}
