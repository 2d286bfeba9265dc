"""The verb ``transform``: a drop-in for the original ``transform_graph``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mobileprep.cli.verb import bool_flag, comma_list, flag, verb
from mobileprep.errors import UsageError


def _arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "in_graph", required=True, metavar="FILE", help="the graph to read")
    flag(parser, "out_graph", required=True, metavar="FILE", help="the graph to write")
    flag(parser, "inputs", default="", help="names of the tensors that are fed, a,b")
    flag(parser, "outputs", default="", help="names of the tensors that are fetched, a,b")
    flag(parser, "transforms", default="", help="the chain: 'name(key=value, ...) name ...'")
    bool_flag(parser, "output_as_text", default=False, help_line="write protobuf text")


@verb("transform", "run a chain of graph transforms, as transform_graph does", _arguments)
def run(args: argparse.Namespace) -> int:
    """Read, transform, write."""
    from mobileprep.ir.files import read_graph, write_graph
    from mobileprep.recipe import parse_transforms_flag
    from mobileprep.transforms.base import Context
    from mobileprep.transforms.chain import Step, StepRecord, run_chain

    parsed, warnings = parse_transforms_flag(args.transforms)
    for warning in warnings:
        print(f"mobileprep: warning: {warning}", file=sys.stderr)
    steps = [Step(step.name, step.options, step.ignore_errors) for step in parsed]
    if not steps:
        msg = "no transforms are named"
        raise UsageError(msg, "give --transforms='strip_unused_nodes ...'")

    def tell(record: StepRecord, _graph: object) -> None:
        changes = f"{record.added} added, {record.removed} removed, {record.changed} changed"
        print(f"{record.name}: {record.nodes_after} nodes ({changes})", file=sys.stderr)

    graph = read_graph(Path(args.in_graph))
    context = Context(comma_list(args.inputs), comma_list(args.outputs), faithful=True)
    graph, _ = run_chain(graph, steps, context, watch=tell)
    write_graph(Path(args.out_graph), graph, as_text=args.output_as_text)
    return 0
