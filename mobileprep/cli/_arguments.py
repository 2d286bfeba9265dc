"""The arguments that the verbs which take recipes share."""

from __future__ import annotations

import argparse


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
