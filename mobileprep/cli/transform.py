"""The verb ``transform``: a drop-in for the original ``transform_graph``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli._shared.arguments import add_limit_flags
from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, bool_flag, comma_list, file_name, flag, verb
from mobileprep.core.paths import output_path
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.ops.numerics.differences import Difference
    from mobileprep.transforms.chains.chain import StepRecord


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_limit_flags(parser)
    flag(
        parser,
        "in_graph",
        required=True,
        type=file_name,
        metavar="FILE",
        help="GraphDef or MetaGraph to read",
    )
    flag(
        parser,
        "out_graph",
        required=True,
        metavar="FILE",
        help="Graph to write, of the same kind, or - for standard output",
    )
    flag(parser, "inputs", default="", help="Names of the input tensors, a,b")
    flag(parser, "outputs", default="", help="Names of the output tensors, a,b")
    flag(
        parser,
        "transforms",
        default="",
        help="Chain of transforms: 'name(key=value, ...) name ...'",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="Run the graph on sample inputs after each step and print the largest difference",
    )
    flag(parser, "plugins", default="", help="Python files with custom transforms, a,b")
    bool_flag(parser, "output_as_text", default=False, help_line="Write protobuf text")


@verb(
    "transform",
    Group.TENSORFLOW,
    "Run a chain of graph transforms (transform_graph)",
    _arguments,
    "mobileprep transform --in_graph=frozen.pb --out_graph=small.pb --inputs=image "
    "--outputs=probabilities --transforms='strip_unused_nodes fold_constants quantize_weights'",
)
def run(args: argparse.Namespace) -> int:
    """Run the chain of transforms and write the graph."""
    from mobileprep.building.transforming import (
        comparison,
        plugin_schemas,
        run_steps,
        runnable,
        tell_beforehand,
    )
    from mobileprep.formats.kinds import file_kind
    from mobileprep.formats.saved_model import read_meta_graph
    from mobileprep.graph.files import read_graph, write_graph
    from mobileprep.graph.meta_graph import graph_of, write_meta_graph
    from mobileprep.recipe.steps import parse_transforms_flag
    from mobileprep.transforms.base import Context

    schemas = plugin_schemas(comma_list(args.plugins))
    parsed, warnings = parse_transforms_flag(args.transforms, schemas)
    for warning in warnings:
        warn(warning)
    if not parsed:
        msg = "--transforms is empty"
        raise UsageError(
            msg, "name at least one transform, such as --transforms='strip_unused_nodes'"
        )

    source, target = Path(args.in_graph), output_path(args.out_graph)
    # Measured first, because the output may overwrite the input.
    size = _size(source)
    meta = None
    if source.is_file() and file_kind(source) == "MetaGraphDef":
        if args.output_as_text:
            msg = "a MetaGraph cannot be written as text"
            raise UsageError(msg, "leave out --output_as_text", args.in_graph)
        meta = read_meta_graph(source)
    graph = before = read_graph(source) if meta is None else graph_of(meta)
    context = Context(comma_list(args.inputs), comma_list(args.outputs), tf115=True)
    steps = runnable(parsed)
    tell_beforehand(graph, steps, context, warn)
    compare = comparison(graph, source, context, warn) if args.check else None
    graph, _ = run_steps(graph, steps, context, compare=compare, watch=_print_step, warn=warn)
    if meta is None:
        write_graph(target, graph, as_text=args.output_as_text)
    else:
        write_meta_graph(target, meta, before, graph)
    written = _size(target)
    if size is not None and written is not None:
        print(f"{args.out_graph}: {written:,} bytes, {size:,} before", file=sys.stderr)
    return 0


def _print_step(record: StepRecord, gap: Difference | None) -> None:
    checked = f", largest difference {_share(gap)}" if gap else ""
    lines = [f"  {count} left as they were: {reason}" for reason, count in record.skipped.items()]
    show([f"{_step_line(record)}{checked}", *lines], file=sys.stderr)


def _size(path: Path) -> int | None:
    """Return the size of a file in bytes; None for a device or a pipe."""
    return path.stat().st_size if path.is_file() else None


def _step_line(record: StepRecord) -> str:
    changes = f"{record.added} added, {record.removed} removed, {record.changed} changed"
    return f"{record.name}: {record.nodes_after} nodes ({changes}), {record.matched} matched"


def _share(gap: Difference) -> str:
    if not gap.share:
        return "0"
    of = "of the elements" if gap.is_counted else "of the peak"
    return f"{gap.absolute:.3g}, {gap.share:.2g} {of} of {gap.name!r}"
