"""The arguments that the verbs which take recipes share."""

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
    """What a command line says that variables mean."""
    return dict(_setting(text) for text in args.settings)


def tensorflow_argument(parser: argparse.ArgumentParser, first: str = "") -> None:
    """Add ``--tensorflow``, the TensorFlow release that the app is built with."""
    from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE, RELEASES

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
    """How many stages run at once."""
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
    """The shapes that ``--input_shapes`` gives, in order."""
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
    """What runs may take until the command ends, as its line and the environment say."""
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


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """``--graph``, and how a model that is no frozen graph is frozen."""
    graph = "a frozen graph, the folder of a SavedModel, or a MetaGraph (.meta)"
    flag(parser, "graph", required=True, type=file_name, metavar="FILE", help=graph)
    checkpoint = "the values of the variables, where they are not beside the model"
    flag(parser, "checkpoint", default="", metavar="PREFIX", help=checkpoint)
    flag(parser, "signature", default="", metavar="NAME", help="the signature that is meant")
    flag(parser, "saved_model_tags", default="", metavar="TAGS", help="a SavedModel's tags, a,b")


def model_flags(args: argparse.Namespace, fetches: tuple[str, ...]) -> ModelOptions:
    """How to freeze a model, from a command line."""
    from mobileprep.freezing.loading import ModelOptions

    return ModelOptions(fetches, args.signature, comma_list(args.saved_model_tags), args.checkpoint)


def size_text(count: int) -> str:
    """A number of bytes for people, in powers of 1,000."""
    size, unit = float(count), "bytes"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
