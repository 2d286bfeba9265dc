"""The verb ``transform``: a drop-in for the original ``transform_graph``."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli.verb import bool_flag, comma_list, flag, verb
from mobileprep.destinations import output_path
from mobileprep.errors import AccuracyError, UsageError

_SAMPLES = 8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mobileprep.chains.chain import StepRecord
    from mobileprep.ir.graph import Graph
    from mobileprep.numerics.differences import Difference
    from mobileprep.transforms.base import Context


def _arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "in_graph", required=True, metavar="FILE", help="the graph to read")
    flag(
        parser, "out_graph", required=True, metavar="FILE", help="the graph to write, - for stdout"
    )
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
    from mobileprep.chains.cautions import cautions
    from mobileprep.chains.chain import Step, run_chain
    from mobileprep.ir.files import read_graph, write_graph
    from mobileprep.recipe import InputFile, parse_transforms_flag
    from mobileprep.recipe.plugins import named_plugin
    from mobileprep.recipe.schemas import TransformSchemas
    from mobileprep.tf115.copied_constants import copies_warning
    from mobileprep.transforms.base import Context

    plugins = [named_plugin(InputFile(n, Path(n), n)) for n in comma_list(args.plugins)]
    parsed, warnings = parse_transforms_flag(args.transforms, TransformSchemas(plugins=plugins))
    _warn(warnings)
    steps = [
        Step(s.name, s.options, s.ignore_errors, s.plugin.file.path if s.plugin else None)
        for s in parsed
    ]
    if not steps:
        msg = "no transforms are named"
        raise UsageError(msg, "give --transforms='strip_unused_nodes ...'")

    target = output_path(args.out_graph)
    # The one file may be the other, so this is measured first.
    size = _size(Path(args.in_graph))
    graph = read_graph(Path(args.in_graph))
    context = Context(comma_list(args.inputs), comma_list(args.outputs), tf115=True)
    _warn(_unknown_names(graph, context))
    for i, step in enumerate(steps):
        _warn(cautions(graph, [s.name for s in steps[:i]], step.name, step.options))
    difference = _differences(graph, Path(args.in_graph), context) if args.check else None

    before = graph

    def tell(record: StepRecord, after: Graph) -> None:
        nonlocal before
        gap = difference(after, record.name) if difference else None
        checked = f", largest difference {_share(gap)}" if gap else ""
        print(f"{_told(record)}{checked}", file=sys.stderr)
        for reason, count in record.skipped.items():
            print(f"  {count} left as they were: {reason}", file=sys.stderr)
        copies = copies_warning(record.name, before, after)
        _warn((*record.warnings, copies) if copies else record.warnings)
        before = after

    graph, _ = run_chain(graph, steps, context, watch=tell)
    write_graph(target, graph, as_text=args.output_as_text)
    written = _size(target)
    if size is not None and written is not None:
        print(f"{args.out_graph}: {written:,} bytes, {size:,} before", file=sys.stderr)
    return 0


def _size(path: Path) -> int | None:
    """The bytes of a file; None for a device or a pipe."""
    return path.stat().st_size if path.is_file() else None


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        print(f"mobileprep: warning: {sentence}", file=sys.stderr)


def _told(record: StepRecord) -> str:
    changes = f"{record.added} added, {record.removed} removed, {record.changed} changed"
    return f"{record.name}: {record.nodes_after} nodes ({changes}), {record.matched} matched"


def _share(gap: Difference) -> str:
    if not gap.share:
        return "0"
    of = "of the elements" if gap.is_counted else "of the peak"
    return f"{gap.absolute:.3g}, {gap.share:.2g} {of} of {gap.name!r}"


def _unknown_names(graph: Graph, context: Context) -> Iterator[str]:
    """What is said of inputs and outputs that are not in the graph; the original says nothing."""
    from mobileprep.ir.ends import name_hint
    from mobileprep.ir.refs import parse_ref
    from mobileprep.opdefs.signatures import output_count

    for what, names in (("input", context.inputs), ("output", context.outputs)):
        for name in names:
            ref = parse_ref(name)
            node = graph.get(ref.node)
            if node is None:
                hint = name_hint(graph, ref.node, what)
                yield f"the {what} {name!r} is not in the graph; {hint}"
                continue
            count = output_count(node, graph.library)
            if count is not None and ref.index >= count:
                gives = f"{node.name!r} ({node.op}) gives {count}; count from 0"
                yield f"the {what} {name!r} is not in the graph: {gives}"


def _differences(
    source: Graph, path: Path, context: Context
) -> Callable[[Graph, str], Difference | None]:
    """Tells how far a graph's outputs after a step are from the source's on drawn samples.

    Args:
        source: the graph before the first step.
        path: where it was read from; what it reads itself lies near.
        context: its inputs and outputs.

    Raises:
        AccuracyError: they are NaN or infinite where the source's are not.
    """
    from mobileprep.numerics.differences import differences
    from mobileprep.runtime.engines.choose import open_engine
    from mobileprep.runtime.sampling.draw import draw_samples
    from mobileprep.runtime.sampling.inputs import fed_tensors
    from mobileprep.runtime.sampling.movement import standing_still

    engine = open_engine("numpy", source, path, where="the source")
    samples = draw_samples(
        source,
        fed_tensors(source, context.inputs),
        _SAMPLES,
        lambda feeds: engine.run(context.outputs, feeds),
    )
    _warn(standing_still(context.outputs, samples.outputs))

    def difference(graph: Graph, step: str) -> Difference | None:
        engine = open_engine("numpy", graph, path, where=f"after {step}")
        found = [engine.run(context.outputs, feeds) for feeds in samples.feeds]
        gaps = differences(context.outputs, samples.outputs, found, f"after {step}")
        worst = max(gaps, key=lambda gap: gap.share, default=None)
        if worst is not None and not math.isfinite(worst.share):
            message = f"after {step} the outputs are not numbers where the source's are"
            raise AccuracyError(message, "leave the step out, or look at its parameters")
        return worst

    return difference
