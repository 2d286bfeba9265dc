"""The flags that say what a run of a graph may take."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator

from mobileprep.cli.verb import flag
from mobileprep.errors import UsageError
from mobileprep.limits import DEFAULT_ITERATIONS, MEMORY_VARIABLE, set_limits


def add_memory_flag(parser: argparse.ArgumentParser) -> None:
    """``--memory``."""
    line = f"what a run's tensors may take, by default half of the memory; {MEMORY_VARIABLE}"
    flag(parser, "memory", default=None, metavar="SIZE", help=line)


def add_iterations_flag(parser: argparse.ArgumentParser) -> None:
    """``--max_iterations``."""
    line = "how many iterations the loops of a run may make together"
    flag(parser, "max_iterations", type=int, default=DEFAULT_ITERATIONS, metavar="N", help=line)


def _bytes(text: str) -> int | None:
    from mobileprep.recipe.units import parse_bytes  # reading recipes is slow to import

    return parse_bytes(text)


@contextlib.contextmanager
def limits_of(args: argparse.Namespace) -> Iterator[None]:
    """What runs may take until the command ends, as its line and the environment say.

    Raises:
        UsageError: a size that is none.
    """
    given = getattr(args, "memory", None)
    text = given or os.environ.get(MEMORY_VARIABLE, "").strip()
    memory = _bytes(text) if text else None
    if text and not memory:
        where = "--memory" if given else MEMORY_VARIABLE
        message = f"{text!r} is no size"
        raise UsageError(message, "write a number with MB or GB, such as 4GB", where)
    iterations = getattr(args, "max_iterations", DEFAULT_ITERATIONS)
    set_limits(memory=memory, iterations=iterations)
    try:
        yield
    finally:
        set_limits()
