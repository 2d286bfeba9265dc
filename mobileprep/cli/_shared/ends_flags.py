"""The flags that name what is fed and fetched, for verbs that can find both out."""

from __future__ import annotations

import argparse

from mobileprep.cli.verb import flag


def add_ends(parser: argparse.ArgumentParser) -> None:
    """Add ``--inputs`` and ``--outputs``."""
    told = "what is fed; the placeholders that something reads, if unset"
    flag(parser, "inputs", default="", metavar="A,B", help=told)
    flag(
        parser,
        "outputs",
        default="",
        metavar="A,B",
        help="what is fetched; the signature's outputs, or the graph's ends, if unset",
    )
