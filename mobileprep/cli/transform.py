"""The verb ``transform``: a drop-in for the original ``transform_graph``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli.verb import bool_flag, comma_list, flag, verb
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mobileprep.ir.graph import Graph
    from mobileprep.transforms.base import Context


def _arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "in_graph", required=True, metavar="FILE", help="the graph to read")
    flag(parser, "out_graph", required=True, metavar="FILE", help="the graph to write")
    flag(parser, "inputs", default="", help="names of the tensors that are fed, a,b")
    flag(parser, "outputs", default="", help="names of the tensors that are fetched, a,b")
    flag(parser, "transforms", default="", help="the chain: 'name(key=value, ...) name ...'")
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the graph on sample inputs after each step, and tell the largest difference",
    )
    flag(parser, "plugins", default="", help="Python files with transforms of your own, a,b")
    bool_flag(parser, "output_as_text", default=False, help_line="write protobuf text")


@verb("transform", "run a chain of graph transforms, as transform_graph does", _arguments)
def run(args: argparse.Namespace) -> int:
    """Read, transform, write."""
    from mobileprep.ir.files import read_graph, write_graph
    from mobileprep.recipe import InputFile, parse_transforms_flag
    from mobileprep.recipe.plugins import named_plugin
    from mobileprep.recipe.schemas import TransformSchemas
    from mobileprep.transforms._cautions import cautions
    from mobileprep.transforms.base import Context
    from mobileprep.transforms.chain import Step, StepRecord, run_chain

    plugins = [named_plugin(InputFile(n, Path(n), n)) for n in comma_list(args.plugins)]
    parsed, warnings = parse_transforms_flag(args.transforms, TransformSchemas(plugins=plugins))
    for warning in warnings:
        print(f"mobileprep: warning: {warning}", file=sys.stderr)
    steps = [
        Step(s.name, s.options, s.ignore_errors, s.plugin.file.path if s.plugin else None)
        for s in parsed
    ]
    if not steps:
        msg = "no transforms are named"
        raise UsageError(msg, "give --transforms='strip_unused_nodes ...'")

    graph = read_graph(Path(args.in_graph))
    context = Context(comma_list(args.inputs), comma_list(args.outputs), faithful=True)
    for i, step in enumerate(steps):
        for caution in cautions(graph, [s.name for s in steps[:i]], step.name, step.options):
            print(f"mobileprep: warning: {caution}", file=sys.stderr)
    difference = _differences(graph, context) if args.check else None

    def tell(record: StepRecord, after: Graph) -> None:
        changes = f"{record.added} added, {record.removed} removed, {record.changed} changed"
        checked = f", largest difference {difference(after):.3g}" if difference else ""
        print(f"{record.name}: {record.nodes_after} nodes ({changes}){checked}", file=sys.stderr)
        for warning in record.warnings:
            print(f"mobileprep: warning: {warning}", file=sys.stderr)

    graph, _ = run_chain(graph, steps, context, watch=tell)
    write_graph(Path(args.out_graph), graph, as_text=args.output_as_text)
    return 0


def _differences(source: Graph, context: Context) -> Callable[[Graph], float]:
    """Tells how far a graph's outputs are from the source's on sample inputs."""
    from mobileprep.ops.differences import largest_difference
    from mobileprep.ops.interpreter import Interpreter
    from mobileprep.ops.samples import sample_feeds

    feeds = sample_feeds(source, context.inputs)
    expected = Interpreter(source, where="the source").run(context.outputs, feeds)

    def difference(graph: Graph) -> float:
        found = Interpreter(graph, where="the transformed graph").run(context.outputs, feeds)
        pairs = zip(context.outputs, expected, found, strict=True)
        return max((largest_difference(x, y, name) for name, x, y in pairs), default=0.0)

    return difference
