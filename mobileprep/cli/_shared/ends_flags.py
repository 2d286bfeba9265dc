"""The flags that name what is fed and fetched, for verbs that can find both out."""

from __future__ import annotations

import argparse

from mobileprep.cli.verb import comma_list, flag
from mobileprep.errors import UsageError


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


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Add ``--input_shapes``."""
    told = "shapes of the inputs, a colon between two, -1 for a size that stays open"
    flag(parser, "input_shapes", default="", metavar="1,2:3", help=told)


def shapes_of(text: str) -> tuple[tuple[int, ...], ...]:
    """The shapes that ``--input_shapes`` gives, in order.

    Raises:
        UsageError: one is not a shape.
    """
    return tuple(map(_shape, text.split(":"))) if text else ()


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in comma_list(text))
    except ValueError as error:
        message = f"--input_shapes: {text!r} is not a shape"
        raise UsageError(message, "write sizes with commas, such as 1,224,224,3") from error
    if any(size < -1 for size in sizes):
        message = f"--input_shapes: {text!r} is not a shape: a size is below -1"
        raise UsageError(message, "write -1 for a size that stays open")
    return sizes
