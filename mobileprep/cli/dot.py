"""The verb ``dot``: a drop-in for the original ``graph_to_dot``."""

from __future__ import annotations

import argparse
import sys

from mobileprep.cli._shared.telling import warn
from mobileprep.cli.verb import Group, bool_flag, file_name, flag, verb, whole_number
from mobileprep.core.paths import is_stdout, output_path
from mobileprep.errors import UsageError

_FORMATS = ("dot", "svg", "png", "model-explorer", "tensorboard")

_VIEWERS = {
    "model-explorer": "a file: --dot_output=graph.json",
    "tensorboard": "a directory: --dot_output=logs",
}


def _arguments(parser: argparse.ArgumentParser) -> None:
    model = "GraphDef, MetaGraph (.meta), or SavedModel directory"
    flag(parser, "graph", required=True, type=file_name, metavar="FILE", help=model)
    flag(
        parser,
        "dot_output",
        required=True,
        metavar="FILE",
        help="File to write, log directory for tensorboard, or - for standard output",
    )
    help_text = "Accepted and ignored: the format is detected"
    bool_flag(parser, "input_binary", default=True, help_line=help_text)
    flag(
        parser,
        "format",
        default="",
        choices=("", *_FORMATS),
        help="Output format [default: from the file name]",
    )
    collapse = "Name scope depth to show; each deeper scope becomes one box"
    flag(parser, "collapse", type=whole_number, default=0, metavar="DEPTH", help=collapse)
    flag(
        parser, "around", default="", metavar="NODE", help="Draw only the neighborhood of this node"
    )
    radius = "Number of edges from the --around node"
    flag(parser, "radius", type=whole_number, default=2, metavar="N", help=radius)
    bool_flag(parser, "colors", default=False, help_line="Color nodes by op family")
    bool_flag(parser, "shapes", default=False, help_line="Label edges with tensor shapes")
    damage = "Output of debug-quantization --json, to overlay in model-explorer"
    flag(parser, "damage", default="", metavar="FILE", help=damage)


@verb(
    "dot",
    Group.TENSORFLOW,
    "Draw a graph, or write it for Model Explorer or TensorBoard (graph_to_dot)",
    _arguments,
    "mobileprep dot --graph=model.pb --dot_output=model.svg --collapse=1",
)
def run(args: argparse.Namespace) -> int:
    """Draw the graph and print the written files, on stderr if the drawing goes to stdout."""
    from mobileprep.inspection.drawing_files import draw

    target = output_path(args.dot_output)
    if args.format in _VIEWERS and is_stdout(target):
        message = f"the format {args.format} cannot go to stdout"
        raise UsageError(message, f"name {_VIEWERS[args.format]}")
    written = draw(
        args.graph,
        target,
        format=args.format or None,
        collapse=args.collapse,
        around=args.around,
        radius=args.radius,
        colors=args.colors,
        shapes=args.shapes,
        damage=args.damage or None,
        warn=warn,
    )
    results = sys.stderr if is_stdout(target) else sys.stdout
    is_image = not args.format and target.suffix.lower() in (".svg", ".png")
    if args.format in ("", "dot") and not is_image:
        print(f"Created DOT file '{args.dot_output}'.", file=results)
        return 0
    for path in written:
        print(f"Created {path}.", file=results)
    return 0
