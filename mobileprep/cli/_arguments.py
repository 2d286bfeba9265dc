"""The arguments that the verbs which take recipes share."""

from __future__ import annotations

import argparse
from typing import Final

from mobileprep.cli.verb import comma_list

OUT: Final = "out"
"""The folder for outputs where none is named."""


def recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that takes recipes."""
    parser.add_argument(
        "recipes",
        nargs="+",
        metavar="RECIPE",
        help="a recipe file, or a folder that holds recipe.yaml",
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


def target_argument(parser: argparse.ArgumentParser) -> None:
    """The flag that picks targets."""
    parser.add_argument(
        "--target", action="append", default=[], metavar="T", help="only these targets, a,b"
    )


def targets_of(args: argparse.Namespace) -> list[str]:
    """The targets that a command line picks; none for all."""
    return [name for text in args.target for name in comma_list(text)]


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
