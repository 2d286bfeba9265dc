"""The verb ``header``: a drop-in for the original ``print_selective_registration_header``."""

from __future__ import annotations

import argparse
from pathlib import Path

from mobileprep.cli._shared.arguments import tensorflow_argument
from mobileprep.cli._shared.telling import warn
from mobileprep.cli.verb import Group, comma_list, flag, verb
from mobileprep.core.paths import STDOUT
from mobileprep.errors import UsageError


def _arguments(parser: argparse.ArgumentParser) -> None:
    flag(
        parser,
        "graphs",
        required=True,
        type=comma_list,
        metavar="FILE,FILE",
        help="Frozen graphs that the app loads",
    )
    flag(
        parser,
        "proto_fileformat",
        choices=("rawproto", "textproto", "ops_list"),
        default="rawproto",
        help="Format of the files: graphs, binary or text, or JSON lists of [op, kernel class]",
    )
    flag(
        parser,
        "default_ops",
        default="NoOp:NoOp,_Recv:RecvOp,_Send:SendOp",
        metavar="OP:KERNEL,...",
        help="Ops and kernels to register in any case; 'all' registers everything",
    )
    tensorflow_argument(parser)


@verb(
    "header",
    Group.TENSORFLOW,
    "Print ops_to_register.h (print_selective_registration_header)",
    _arguments,
    "mobileprep header --graphs=model.pb > ops_to_register.h",
)
def run(args: argparse.Namespace) -> int:
    """Print the registration header of the graphs; warnings go to standard error."""
    from mobileprep.core.files import write_text
    from mobileprep.graph.files import read_shipped_graph
    from mobileprep.targets.headers import default_pairs, graphs_header, pairs_header, release_of
    from mobileprep.targets.op_lists import read_ops_list

    release, files = release_of(args.tensorflow), args.graphs
    if not files:
        message = "no graphs are named"
        raise UsageError(message, "give --graphs=a.pb,b.pb")
    defaults = default_pairs(args.default_ops)
    if args.proto_fileformat == "ops_list":
        listed = [pair for file in files for pair in read_ops_list(Path(file))]
        text = pairs_header(listed, files, release, defaults)
    else:
        graphs = [read_shipped_graph(Path(file)) for file in files]
        text = graphs_header(graphs, files, release, defaults, warn)
    write_text(STDOUT, text)
    return 0
