"""The flags that say what a run of a graph may take."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator

from mobileprep.cli.verb import flag
from mobileprep.core.limits import (
    DEFAULT_FLOPS,
    DEFAULT_ITERATIONS,
    FLOPS_VARIABLE,
    ITERATIONS_VARIABLE,
    MEMORY_VARIABLE,
    set_limits,
)
from mobileprep.errors import UsageError

# Of a number: what fits any counter.
_DIGITS = 16


def add_limit_flags(parser: argparse.ArgumentParser) -> None:
    """``--memory``, ``--max_iterations`` and ``--max_flops``."""
    line = f"what a run's tensors may take, by default half of the memory; {MEMORY_VARIABLE}"
    flag(parser, "memory", default=None, metavar="SIZE", help=line)
    line = (
        "how many iterations the loops of a run may make together, by default "
        f"{DEFAULT_ITERATIONS:,}; {ITERATIONS_VARIABLE}"
    )
    flag(parser, "max_iterations", default=None, metavar="N", help=line)
    line = (
        f"how much a run may compute, by default {DEFAULT_FLOPS // 10**12} TFLOP; {FLOPS_VARIABLE}"
    )
    flag(parser, "max_flops", default=None, metavar="N", help=line)


def _bytes(text: str) -> int | None:
    from mobileprep.recipe.units import parse_bytes  # reading recipes is slow to import

    return parse_bytes(text)


def _flops(text: str) -> int | None:
    from mobileprep.recipe.units import parse_flops  # the same

    return parse_flops(text)


@contextlib.contextmanager
def limits_of(args: argparse.Namespace) -> Iterator[None]:
    """What runs may take until the command ends, as its line and the environment say.

    Raises:
        UsageError: a size or a number that is none.
    """
    memory = _said(args, "memory", MEMORY_VARIABLE, _bytes, "with MB or GB, such as 4GB")
    iterations = _said(args, "max_iterations", ITERATIONS_VARIABLE, _number, "above 0")
    flops = _said(args, "max_flops", FLOPS_VARIABLE, _flops, "with GFLOP or TFLOP, such as 40TFLOP")
    set_limits(
        memory=memory,
        iterations=DEFAULT_ITERATIONS if iterations is None else iterations,
        flops=DEFAULT_FLOPS if flops is None else flops,
    )
    try:
        yield
    finally:
        set_limits()


def _said(
    args: argparse.Namespace,
    name: str,
    variable: str,
    parse: Callable[[str], int | None],
    units: str,
) -> int | None:
    """A limit as the flag says, or else the environment; None where neither does."""
    given = getattr(args, name, None)
    text = given or os.environ.get(variable, "").strip()
    found = parse(text) if text else None
    if text and not found:
        message = f"{text!r} is no size"
        raise UsageError(message, f"write a number {units}", f"--{name}" if given else variable)
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None
