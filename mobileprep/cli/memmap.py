"""The verb ``memmap``: a drop-in for the original ``convert_graphdef_memmapped_format``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from mobileprep.cli._shared.telling import warn_all
from mobileprep.cli.verb import Group, bool_flag, file_name, flag, verb
from mobileprep.core.paths import output_path

# Same as MINIMUM_SIZE of targets.memmapped, which imports numpy; a test compares the two.
_MINIMUM_SIZE: Final = 10_000


def _arguments(parser: argparse.ArgumentParser) -> None:
    flag(
        parser,
        "in_graph",
        required=True,
        type=file_name,
        metavar="FILE",
        help="Frozen graph to read",
    )
    flag(
        parser,
        "out_graph",
        required=True,
        metavar="FILE",
        help="Model to write, or - for standard output",
    )
    flag(
        parser,
        "min_conversion_size_in_bytes",
        "min_conversion_tensor_size",
        type=_positive,
        default=_MINIMUM_SIZE,
        metavar="BYTES",
        help="Smallest constant to map",
    )
    bool_flag(
        parser,
        "quantized",
        default=False,
        help_line="Map constants of quantized dtypes, too, unlike the original tool",
    )
    bool_flag(
        parser,
        "safe",
        default=False,
        help_line="Keep constants that an op may overwrite in the graph, unlike the original tool",
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        message = f"invalid size {text!r}: expected a positive number of bytes"
        raise argparse.ArgumentTypeError(message)
    return int(text)


@verb(
    "memmap",
    Group.TENSORFLOW,
    "Write a memory-mapped model (convert_graphdef_memmapped_format)",
    _arguments,
    "mobileprep memmap --in_graph=frozen.pb --out_graph=mapped.pb",
)
def run(args: argparse.Namespace) -> int:
    """Move large constants to memory-mapped regions and write the model."""
    from mobileprep.targets.memmapped import memmap

    sentences: list[str] = []
    done = memmap(
        args.in_graph,
        output_path(args.out_graph),
        min_size=args.min_conversion_size_in_bytes,
        quantized=args.quantized,
        safe=args.safe,
        warn=sentences.append,
    )
    regions = done.model.regions
    moved = sum(tensor.nbytes for _, tensor in regions)
    print(f"{args.out_graph}: {len(regions)} constants mapped, {moved:,} bytes", file=sys.stderr)
    warn_all(sentences)
    return 0
