"""The verb ``summarize``: a drop-in for the original ``summarize_graph``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from mobileprep.building.report.layout import number_text
from mobileprep.cli._shared.arguments import (
    add_ends,
    add_freezing_flags,
    add_shapes,
    shapes_of,
    tensorflow_argument,
)
from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, bool_flag, comma_list, file_name, flag, verb, whole_number
from mobileprep.core.printable import plain, shortened
from mobileprep.errors import InvalidGraphError, UsageError

if TYPE_CHECKING:
    from mobileprep.inspection.costs import LoopCount, ModelCosts, Share
    from mobileprep.inspection.summarizing import LikelyTensor, StoredConstants, Summary
    from mobileprep.targets.targets import Memory

_ROWS: Final = 10
# Long names are cut in the middle; the numbers next to them take 60 columns.
_WIDTH: Final = 40


def _arguments(parser: argparse.ArgumentParser) -> None:
    model = "GraphDef, MetaGraph (.meta), SavedModel directory, .tflite file, or checkpoint"
    parser.add_argument("model", nargs="?", type=file_name, metavar="MODEL", help=model)
    flag(parser, "in_graph", type=file_name, metavar="FILE", help="Model, as a flag")
    structure = "Print each node with its inputs, too"
    bool_flag(parser, "print_structure", default=False, help_line=structure)
    text = "Print only the graph as text, one line per node"
    bool_flag(parser, "text", default=False, help_line=text)
    add_freezing_flags(parser)
    details = "Print more than the original: interface, costs, unsupported ops"
    bool_flag(parser, "details", default=True, help_line=details)
    add_ends(parser)
    add_shapes(parser)
    device = "Device or profile to estimate the shortest latency for"
    flag(parser, "device", default="", metavar="NAME", help=device)
    depth = "Number of name parts in a scope"
    flag(parser, "scope_depth", type=whole_number, default=1, metavar="N", help=depth)
    batch = "Size assumed for unknown dimensions of inputs"
    flag(parser, "batch", type=whole_number, default=1, metavar="N", help=batch)
    rows = "Rows of each table, 0 for all"
    flag(parser, "rows", type=whole_number, default=_ROWS, metavar="N", help=rows)
    tensorflow_argument(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")


@verb(
    "summarize",
    Group.TENSORFLOW,
    "Print the inputs, outputs, ops, and costs of a model (summarize_graph)",
    _arguments,
    "mobileprep summarize model.pb",
    "mobileprep summarize model.pb --text > model.txt",
)
def run(args: argparse.Namespace) -> int:
    """Print the lines of the original tool, then the details.

    Raises:
        InvalidGraphError: an input of a node is missing; the summary is printed before.
    """
    from mobileprep.freezing.loading import find_source
    from mobileprep.graph.text import graph_lines
    from mobileprep.inspection.original_lines import structure_lines, summary_lines
    from mobileprep.inspection.summarizing import SummaryOptions, named_device, summary_of
    from mobileprep.targets.headers import release_of

    checkpoint = Path(args.checkpoint) if args.checkpoint else None
    tags, model = comma_list(args.saved_model_tags), _model(args)
    options = SummaryOptions(
        args.signature,
        comma_list(args.inputs),
        comma_list(args.outputs),
        shapes_of(args.input_shapes),
        args.scope_depth,
        args.batch,
        named_device(args.device),
        release_of(args.tensorflow),
    )
    opened = find_source(Path(model), checkpoint=checkpoint, tags=tags)
    if args.text:
        show(graph_lines(opened.source.graph))
        return 0
    summary = summary_of(opened, model, options, details=args.details or args.json)
    for name in summary.graph.undecoded:
        warn(f"{plain(name)!r} has no value")
    if args.json:
        print(json.dumps(to_builtins(summary), indent=1))
        return 0
    # The suggested command uses the file that was read.
    file = opened.source.where if opened.notes else model
    show(summary_lines(summary.graph, file))
    if summary.graph.missing:
        message = "inputs of nodes are missing from the graph"
        raise InvalidGraphError(message, "export the graph again", model)
    if args.print_structure:
        show(structure_lines(opened.source.graph))
    if args.details:
        show(_details(summary, args.rows))
    return 0


def _model(args: argparse.Namespace) -> str:
    models = [name for name in (args.model, args.in_graph) if name is not None]
    if len(models) != 1:
        message = "two models are named" if models else "no model is named"
        raise UsageError(message, "name one: mobileprep summarize MODEL")
    return str(models[0])


def _details(summary: Summary, rows: int) -> Iterator[str]:
    yield ""
    yield from (f"Note: {note}" for note in summary.notes)
    if summary.variables.count:
        count = summary.variables
        unknown = f", and {count.unknown} of unknown shape" if count.unknown else ""
        size = f"{count.parameters:,} parameters, {count.bytes:,} bytes{unknown}"
        yield f"Variables of all kinds: {count.count}, with {size}"
    if summary.functions:
        yield f"Functions in the library: {summary.functions}"
    yield from _interface("Likely inputs", summary.inputs)
    yield from _interface("Likely outputs", summary.outputs)
    yield from (f"  {reason}" for reason in summary.reasons)
    if summary.costs is not None:
        yield from _costs(summary.costs, rows)
    if summary.constants:
        yield f"Constants: {', '.join(map(_stored, summary.constants))}"
    yield from _memory(summary.memory)
    if summary.device is not None:
        best = f"{number_text(summary.device.latency_ms)} ms on {plain(summary.device.device)}"
        yield f"{summary.device.bound.capitalize()} {best} ({plain(summary.device.basis)})"
    if summary.diagnosis is not None:
        yield "Diagnosis:"
        yield from (f"  {line}" for line in summary.diagnosis.lines())
    yield from _gaps(summary)


def _interface(title: str, tensors: Sequence[LikelyTensor]) -> Iterator[str]:
    if tensors:
        yield f"{title}:"
    for tensor in tensors:
        shape = "unknown shape" if tensor.shape is None else str(list(tensor.shape))
        remark = f"  # {tensor.remark}" if tensor.remark else ""
        yield f"  {tensor.name} ({tensor.dtype} {shape}){remark}"


def _costs(costs: ModelCosts, rows: int) -> Iterator[str]:
    yield (
        f"One run, unknown sizes of inputs as {costs.batch}: {costs.flops:,} FLOPs, "
        f"{costs.parameters:,} parameters of {costs.bytes:,} bytes, {costs.moved:,} bytes moved, "
        f"{costs.peak:,} bytes of tensors at once"
    )
    yield from (f"  {_loop(loop)}" for loop in costs.loops)
    if costs.uncounted:
        yield f"Operations not known of: {', '.join(costs.uncounted)}"
    yield from _table("op", costs.by_op, rows)
    yield from _table("scope", costs.by_scope, rows)


def _stored(constants: StoredConstants) -> str:
    blocks = f" in blocks of {constants.block_size}" if constants.block_size else ""
    return f"{constants.elements:,} {constants.dtype}{blocks}"


def _memory(kinds: Mapping[str, Memory]) -> Iterator[str]:
    if kinds:
        peaks = (f"{kind} {m.load_peak:,} and {m.run_peak:,}" for kind, m in kinds.items())
        yield f"Peak memory in bytes while loading and running: {', '.join(peaks)}"
        unknown = max(len(memory.unknown) for memory in kinds.values())
        if unknown:
            yield f"  without the outputs of {unknown:,} nodes, whose sizes are not known"


def _loop(loop: LoopCount) -> str:
    name = plain(shortened(loop.name, _WIDTH))
    if loop.iterations is None:
        return f"loop {name!r}: counted for 1 iteration, as constants do not give their number"
    plural = "s" * (loop.iterations != 1)
    return f"loop {name!r}: counted for {loop.iterations:,} iteration{plural}"


def _table(title: str, shares: Sequence[Share], rows: int) -> Iterator[str]:
    shown = shares[: rows or None]
    names = [shortened(s.name or "(none)", _WIDTH) for s in shown]
    width = max(map(len, [title, *names]), default=0)
    yield f"{title:{width}} {'nodes':>6} {'parameters':>13} {'bytes':>13} {'FLOPs':>16}"
    for name, share in zip(names, shown, strict=True):
        yield (
            f"{name:{width}} {share.nodes:6} {share.parameters:13,} {share.bytes:13,} "
            f"{share.flops:16,} {share.share:6.1%}"
        )
    if len(shown) < len(shares):
        yield f"... and {len(shares) - len(shown)} more (--rows=0 shows all)"


def _gaps(summary: Summary) -> Iterator[str]:
    build = f"TensorFlow {summary.tensorflow} for {summary.platform}"
    if not summary.tensorflow:
        return
    if not summary.gaps:
        yield f"A default build of {build} lacks nothing"
        return
    yield f"A default build of {build} lacks:"
    for gap in summary.gaps:
        yield f"  {gap.op or 'graph'}: {gap.cause}; {gap.message}"
