"""Arguments that several verbs share."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from mobileprep.cli.verb import comma_list, file_name, flag
from mobileprep.core.limits import (
    DEFAULT_FLOPS,
    DEFAULT_ITERATIONS,
    FLOPS_VARIABLE,
    ITERATIONS_VARIABLE,
    MEMORY_VARIABLE,
    set_limits,
)
from mobileprep.core.parallel import cores
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.freezing.loading import ModelOptions

OUT: Final = "out"
"""The default output directory."""


def recipe_arguments(
    parser: argparse.ArgumentParser,
    help_line: str = "Recipe file, or directory with recipe.yaml",
) -> None:
    """Add the arguments that select recipes and set their variables."""
    parser.add_argument(
        "recipes",
        nargs="+",
        metavar="RECIPE",
        help=help_line,
    )
    parser.add_argument(
        "-r",
        "--recursive",
        action="store_true",
        help="Include every recipe.yaml below the directories",
    )
    settings_argument(parser)


def settings_argument(parser: argparse._ActionsContainer) -> None:
    """Add ``--set``, which sets variables of recipes."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="Value of ${NAME} in the recipes; overrides the environment",
    )


def settings_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the variables that the command line sets."""
    return dict(_setting(text) for text in args.settings)


def tensorflow_argument(parser: argparse.ArgumentParser, first: str = "") -> None:
    """Add ``--tensorflow``, the TensorFlow release that the app is built with."""
    from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE, RELEASES

    flag(
        parser,
        "tensorflow",
        default=None if first else DEFAULT_RELEASE,
        metavar="RELEASE",
        help=f"TensorFlow release of the app, {' or '.join(RELEASES)} "
        f"[default: {first}{DEFAULT_RELEASE}]",
    )


def target_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--target``."""
    parser.add_argument(
        "--target", action="append", default=[], metavar="T", help="Limit to these targets, a,b"
    )


def targets_of(args: argparse.Namespace) -> list[str]:
    """Return the targets that the command line selects; empty for all."""
    return [name for text in args.target for name in comma_list(text)]


def jobs_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--jobs``."""
    parser.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="Number of parallel jobs [default: CPU count]"
    )


def jobs_of(args: argparse.Namespace) -> int:
    """Return the number of stages to run in parallel."""
    if args.jobs is not None and args.jobs < 1:
        message = f"invalid number of jobs {args.jobs}: expected at least 1"
        raise UsageError(message)
    return args.jobs or cores()


def out_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--out``."""
    parser.add_argument("--out", default=OUT, metavar="DIR", help="Output directory")


def exit_code_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag that sets the exit code to 1 if work is pending."""
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="Exit with code 1 if a stage would run or a file would be published",
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        message = f"invalid --set {text!r}: expected NAME=VALUE"
        raise UsageError(message)
    return name, value


def add_ends(parser: argparse.ArgumentParser) -> None:
    """Add ``--inputs`` and ``--outputs``."""
    help_text = "Input tensors [default: placeholders with consumers]"
    flag(parser, "inputs", default="", metavar="A,B", help=help_text)
    flag(
        parser,
        "outputs",
        default="",
        metavar="A,B",
        help="Output tensors [default: outputs of the signature, or tensors without consumers]",
    )


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Add ``--input_shapes``."""
    help_text = "Shapes of the inputs, separated by colons; -1 keeps a dimension open"
    flag(parser, "input_shapes", default="", metavar="1,2:3", help=help_text)


def shapes_of(text: str) -> tuple[tuple[int, ...], ...]:
    """Parse the shapes of ``--input_shapes``, in order."""
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


# Numbers have fewer digits than this, so that they fit in a 64-bit integer.
_DIGITS = 16


def add_limit_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--memory``, ``--max_iterations``, and ``--max_flops``."""
    line = f"Memory limit for tensors [env: {MEMORY_VARIABLE}] [default: half of the memory]"
    flag(parser, "memory", default=None, metavar="SIZE", help=line)
    line = (
        f"Limit of loop iterations [env: {ITERATIONS_VARIABLE}] [default: {DEFAULT_ITERATIONS:,}]"
    )
    flag(parser, "max_iterations", default=None, metavar="N", help=line)
    line = f"FLOP limit [env: {FLOPS_VARIABLE}] [default: {DEFAULT_FLOPS // 10**12} TFLOP]"
    flag(parser, "max_flops", default=None, metavar="N", help=line)


def _bytes(text: str) -> int | None:
    from mobileprep.recipe.units import parse_bytes  # slow to import

    return parse_bytes(text)


def _flops(text: str) -> int | None:
    from mobileprep.recipe.units import parse_flops  # slow to import

    return parse_flops(text)


@contextlib.contextmanager
def limits_of(args: argparse.Namespace) -> Iterator[None]:
    """Apply the limits of the command line and the environment inside the block."""
    memory = _limit(args, "memory", MEMORY_VARIABLE, _bytes, "with MB or GB, such as 4GB")
    iterations = _limit(args, "max_iterations", ITERATIONS_VARIABLE, _number, "above 0")
    flops = _limit(
        args, "max_flops", FLOPS_VARIABLE, _flops, "with GFLOP or TFLOP, such as 40TFLOP"
    )
    set_limits(
        memory=memory,
        iterations=DEFAULT_ITERATIONS if iterations is None else iterations,
        flops=DEFAULT_FLOPS if flops is None else flops,
    )
    try:
        yield
    finally:
        set_limits()


def _limit(
    args: argparse.Namespace,
    name: str,
    variable: str,
    parse: Callable[[str], int | None],
    units: str,
) -> int | None:
    """Return a limit from the flag, or from the environment; None if neither is set."""
    value = getattr(args, name, None)
    text = value or os.environ.get(variable, "").strip()
    limit = parse(text) if text else None
    if text and not limit:
        message = f"invalid limit {text!r}"
        raise UsageError(message, f"write a number {units}", f"--{name}" if value else variable)
    return limit


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--graph`` and the flags for freezing other models."""
    graph = "Frozen graph, SavedModel directory, or MetaGraph (.meta)"
    flag(parser, "graph", required=True, type=file_name, metavar="FILE", help=graph)
    add_freezing_flags(parser)


def add_freezing_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--checkpoint``, ``--signature``, and ``--saved_model_tags``."""
    checkpoint = "Checkpoint with the variables, if it is not next to the model"
    flag(parser, "checkpoint", default="", metavar="PREFIX", help=checkpoint)
    flag(
        parser,
        "signature",
        default="",
        metavar="NAME",
        help="Signature that names inputs and outputs",
    )
    flag(
        parser,
        "saved_model_tags",
        default="",
        metavar="TAGS",
        help="Tags of the SavedModel's MetaGraph, a,b",
    )


def model_flags(args: argparse.Namespace, fetches: tuple[str, ...]) -> ModelOptions:
    """Return the options for freezing the model of a command line."""
    from mobileprep.freezing.loading import ModelOptions

    return ModelOptions(fetches, args.signature, comma_list(args.saved_model_tags), args.checkpoint)


def size_text(count: int) -> str:
    """Format a number of bytes in powers of 1,000, such as ``1.2 MB``."""
    size, unit = float(count), "bytes"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
