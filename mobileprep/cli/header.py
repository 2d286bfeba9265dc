"""The verb ``header``: a drop-in for the original ``print_selective_registration_header``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli.verb import comma_list, flag, verb
from mobileprep.destinations import STDOUT
from mobileprep.errors import InvalidGraphError, UsageError, nearest_hint

if TYPE_CHECKING:
    from mobileprep.ir.graph import Graph
    from mobileprep.packaging.op_lists import OpKernel

    Ops = tuple[OpKernel, ...]

_ALL = "all"


def _arguments(parser: argparse.ArgumentParser) -> None:
    flag(
        parser,
        "graphs",
        required=True,
        type=comma_list,
        metavar="FILE,FILE",
        help="the graphs that the app loads, frozen",
    )
    flag(
        parser,
        "proto_fileformat",
        choices=("rawproto", "textproto", "ops_list"),
        default="rawproto",
        help="graphs, binary or text (told apart by content), or JSON lists of [op, kernel class]",
    )
    flag(
        parser,
        "default_ops",
        default="NoOp:NoOp,_Recv:RecvOp,_Send:SendOp",
        metavar="OP:KERNEL,...",
        help=f"what to register in any case; '{_ALL}' registers everything",
    )
    flag(
        parser,
        "tensorflow",
        default="2.21",
        metavar="RELEASE",
        help="the TensorFlow release that the app is built with, 1.15 or 2.21",
    )


@verb("header", "print ops_to_register.h, as print_selective_registration_header does", _arguments)
def run(args: argparse.Namespace) -> int:
    """Print the header of what the graphs need; warnings go to the standard error."""
    from mobileprep.fsio import write_text
    from mobileprep.packaging.op_lists import parse_default_ops
    from mobileprep.packaging.selective_registration import registration_header

    release = _release(args.tensorflow)
    if not args.graphs:
        message = "no graphs are named"
        raise UsageError(message, "give --graphs=a.pb,b.pb")
    everything = args.default_ops == _ALL
    defaults = () if everything else parse_default_ops(args.default_ops)
    if args.proto_fileformat == "ops_list":
        ops = (*defaults, *_listed(args.graphs))
    else:
        graphs = _graphs(args.graphs)
        ops = () if everything else _needed(graphs, args.graphs, release, defaults)
    if not ops and not everything:
        message = f"there is nothing to register in {', '.join(args.graphs)}"
        raise InvalidGraphError(message, "name the frozen graphs of the app")
    write_text(STDOUT, registration_header(ops, release, everything=everything))
    return 0


def _listed(files: Sequence[str]) -> Iterator[OpKernel]:
    from mobileprep.packaging.op_lists import read_ops_list

    for file in files:
        yield from read_ops_list(Path(file))


def _graphs(files: Sequence[str]) -> list[Graph]:
    from mobileprep.ir.files import read_graph

    graphs = [read_graph(Path(file)) for file in files]
    for file, graph in zip(files, graphs, strict=True):
        if not graph.nodes:
            message = "holds no nodes"
            raise InvalidGraphError(message, "name the frozen graphs of the app", file)
    return graphs


def _needed(graphs: Sequence[Graph], files: Sequence[str], release: str, defaults: Ops) -> Ops:
    from mobileprep.packaging.selective_registration import ops_and_kernels

    return ops_and_kernels(graphs, release, default_ops=defaults, files=files, warn=_warn)


def _release(text: str) -> str:
    """The release whose tables fit a version such as ``2.21.0``."""
    from mobileprep.opdefs.definitions import RELEASES

    release = ".".join(text.split(".")[:2])
    if release not in RELEASES:
        message = f"there is no table of TensorFlow {text}"
        hint = nearest_hint(text, RELEASES) or f"choose one of {', '.join(RELEASES)}"
        raise UsageError(message, hint)
    return release


def _warn(sentence: str) -> None:
    print(f"mobileprep: warning: {sentence}", file=sys.stderr)
