"""The verb ``device``: imports measurements from devices, and fits device profiles to them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from msgspec import Struct

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
    "Import measurements from devices, and fit device profiles",
    _arguments,
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


_ACTIONS: Final = {
    "fit": _Action("fit a device profile to measurements", _fit, _fit_arguments),
    "import": _Action("store the measurement in a log", _import, _import_arguments),
}
