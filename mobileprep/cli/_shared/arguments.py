"""The arguments that the verbs which take recipes share."""

from __future__ import annotations

import argparse
from typing import Final

from mobileprep.cli.verb import comma_list, flag
from mobileprep.core.parallel import cores
from mobileprep.errors import UsageError

OUT: Final = "out"
"""The folder for outputs where none is named."""


def recipe_arguments(
    parser: argparse.ArgumentParser,
    help_line: str = "a recipe file, or a folder that holds recipe.yaml",
) -> None:
    """The arguments of every verb that takes recipes."""
    parser.add_argument(
        "recipes",
        nargs="+",
        metavar="RECIPE",
        help=help_line,
    )
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="every recipe.yaml below the folders"
    )
    settings_argument(parser)


def settings_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that gives variables of recipes their values."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="what ${NAME} means in the recipes, before the environment",
    )


def settings_of(args: argparse.Namespace) -> dict[str, str]:
    """What a command line says that variables mean.

    Raises:
        UsageError: a --set without ``=``.
    """
    return dict(_setting(text) for text in args.settings)


def tensorflow_argument(parser: argparse.ArgumentParser, first: str = "") -> None:
    """Add ``--tensorflow``, the TensorFlow release that the app is built with.

    Args:
        parser: where to.
        first: what is tried before the default; then the flag is None without a value.
    """
    from mobileprep.opdefs.definitions import DEFAULT_RELEASE, RELEASES

    flag(
        parser,
        "tensorflow",
        default=None if first else DEFAULT_RELEASE,
        metavar="RELEASE",
        help=f"the TensorFlow release of the app, {' or '.join(RELEASES)} "
        f"[default: {first}{DEFAULT_RELEASE}]",
    )


def target_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that picks targets."""
    parser.add_argument(
        "--target", action="append", default=[], metavar="T", help="only these targets, a,b"
    )


def targets_of(args: argparse.Namespace) -> list[str]:
    """The targets that a command line picks; none for all."""
    return [name for text in args.target for name in comma_list(text)]


def jobs_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that says how many stages run at once."""
    parser.add_argument(
        "-j", dest="jobs", type=int, metavar="N", help="stages at once, by default the processors"
    )


def jobs_of(args: argparse.Namespace) -> int:
    """How many stages run at once.

    Raises:
        UsageError: the number is below 1.
    """
    if args.jobs is not None and args.jobs < 1:
        message = f"-j takes a number from 1 on, and got {args.jobs}"
        raise UsageError(message)
    return args.jobs or cores()


def out_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that names the output folder."""
    parser.add_argument("--out", default=OUT, metavar="DIR", help="the folder for outputs")


def exit_code_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that makes the exit code tell whether anything would be done."""
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit with 1 where a stage would run or a file be published, else with 0",
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        message = f"--set takes NAME=VALUE, and got {text!r}"
        raise UsageError(message)
    return name, value
