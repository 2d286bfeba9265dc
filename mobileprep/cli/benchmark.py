"""The verb ``benchmark``: a drop-in for the original ``benchmark_model``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli._shared.arguments import add_limit_flags, add_model_flags, model_flags
from mobileprep.cli._shared.telling import print_note
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, bool_flag, comma_list, flag, verb, whole_number

if TYPE_CHECKING:
    from mobileprep.inspection.benchmark import Benchmark
    from mobileprep.inspection.benchmark_runs import TimedGraph, Timings
    from mobileprep.runtime.accounting.costs import GraphCosts
    from mobileprep.runtime.accounting.step_stats import StepStats
    from mobileprep.targets.targets import Device

_SHOWN = (
    ("show_run_order", True, "List the nodes in run order"),
    ("show_time", True, "List the slowest nodes"),
    ("show_memory", True, "List the nodes with the largest outputs"),
    ("show_type", True, "List times by op type"),
    ("show_summary", True, "Print times and memory of the runs"),
    ("show_sizes", False, "List the shapes of all tensors"),
    ("show_flops", False, "Count operations, parameters, memory, and bytes moved, and diagnose"),
)
_LIMITS = (("run_order_limit", 0), ("time_limit", 10), ("memory_limit", 10))


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    add_limit_flags(parser)
    help_text = "Input tensors [default: placeholders with consumers]"
    flag(parser, "input_layer", default="", metavar="A,B", help=help_text)
    flag(parser, "input_layer_shape", default="", metavar="1,2:3", help="Shapes of the inputs")
    flag(parser, "input_layer_type", default="", metavar="T,U", help="Dtypes of the inputs")
    flag(
        parser,
        "input_layer_values",
        default="",
        metavar="1,2:3",
        help="First elements of the inputs",
    )
    flag(
        parser,
        "output_layer",
        default="",
        metavar="A,B",
        help="Output tensors [default: all without consumers]",
    )
    flag(parser, "target_layer", default="", metavar="A,B", help="Additional nodes to run")
    flag(
        parser,
        "init_ops",
        default="",
        metavar="A,B",
        help="Accepted and ignored: tables are initialized automatically",
    )
    _both(parser, "max_num_runs", "num_runs", int, 1000, "Largest number of runs")
    flag(
        parser,
        "max_time",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="Longest total time of the runs in seconds",
    )
    flag(parser, "warmup_runs", type=int, default=1, metavar="N", help="Number of warmup runs")
    _both(
        parser,
        "inference_delay",
        "run_delay",
        float,
        -1.0,
        "Seconds to sleep after each run [default: none]",
    )
    flag(
        parser,
        "inter_benchmark_delay",
        type=float,
        metavar="SECONDS",
        default=-1.0,
        help="Seconds to sleep after all runs [default: none]",
    )
    flag(
        parser,
        "num_threads",
        type=int,
        default=-1,
        metavar="N",
        help="Number of threads [default: CPU count]",
    )
    unwritten = "Accepted and ignored: --json prints the times of nodes"
    flag(parser, "step_stats_name", default="", metavar="FILE", help=unwritten)
    flag(parser, "benchmark_name", default="", help="Name in the files under --output_prefix")
    flag(parser, "output_prefix", default="", metavar="PATH", help="Path prefix of result files")
    for name, default, help_line in _SHOWN:
        bool_flag(parser, name, default=default, help_line=help_line)
    for name, limit in _LIMITS:
        flag(
            parser, name, type=int, default=limit, metavar="N", help="Rows of that table, 0 for all"
        )
    depth = "Number of name parts in a scope of the table with times and costs"
    flag(parser, "scope_depth", type=whole_number, default=1, metavar="N", help=depth)
    flag(
        parser,
        "engine",
        default="numpy",
        help="Engine: numpy, openvino, litert, tensorflow, or auto",
    )
    seed = "Seed for random ops of the graph"
    flag(parser, "seed", type=whole_number, default=None, metavar="N", help=seed)
    bool_flag(
        parser, "combine", default=True, help_line="Evaluate constant nodes once, before the runs"
    )
    flag(
        parser,
        "device",
        default="",
        metavar="NAME",
        help="Device or profile to estimate the latency for",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


def _both(
    parser: argparse.ArgumentParser, name: str, older: str, kind: type, default: float, line: str
) -> None:
    """Add a flag that has another name in older releases."""
    names = [f"--{n}" for n in (name, name.replace("_", "-"), older, older.replace("_", "-"))]
    metavar = "N" if kind is int else "SECONDS"
    parser.add_argument(*names, dest=name, type=kind, default=default, metavar=metavar, help=line)


@verb(
    "benchmark",
    Group.TENSORFLOW,
    "Time a graph and estimate its costs (benchmark_model)",
    _arguments,
    "mobileprep benchmark --graph=model.pb --max_num_runs=20",
    "mobileprep benchmark --graph=model.pb --engine=auto --device=pixel-3 --show_flops",
)
def run(args: argparse.Namespace) -> int:
    """Time the graph without and with statistics of nodes, and print the results."""
    from mobileprep.cli._shared.benchmark_inputs import InputFlags, make_feeds
    from mobileprep.freezing.loading import load_model
    from mobileprep.inspection.benchmark import Benchmark, benchmarked
    from mobileprep.inspection.benchmark_runs import (
        Pace,
        TimedGraph,
        output_layers,
        time_graph,
    )
    from mobileprep.recipe.data import device_named

    device = device_named(args.device) if args.device else None
    named = (*comma_list(args.output_layer), *comma_list(args.target_layer))
    began = time.perf_counter()
    model = load_model(Path(args.graph), model_flags(args, named), print_note)
    loading = time.perf_counter() - began
    flags = InputFlags(
        args.input_layer, args.input_layer_shape, args.input_layer_type, args.input_layer_values
    )
    layers = model.tensors(comma_list(args.output_layer)) or model.outputs
    layers = layers or output_layers(model.graph)
    fetches = (*layers, *comma_list(args.target_layer))
    feeds = make_feeds(model.graph, flags)
    subject = TimedGraph(model.graph, model.path, feeds, fetches, args.seed)
    timings = time_graph(
        subject,
        Pace(args.max_num_runs, args.max_time, args.inference_delay),
        engine=args.engine,
        warmup=args.warmup_runs,
        pause=args.inter_benchmark_delay,
        combine=args.combine,
        threads=args.num_threads,
        tell=print_note,
    )
    needs_costs = args.show_flops or device is not None or args.json
    result = benchmarked(subject, timings, device) if needs_costs else Benchmark(timings)
    if args.json:
        print(json.dumps(result.as_data(), indent=1))
    else:
        table = _lines(args, result)
        show((line for part in table for line in part.split("\n")), keep="\t")
    if args.step_stats_name:
        print_note("--step_stats_name is ignored: use --json for the times of nodes")
    if args.benchmark_name and args.output_prefix:
        _report(args, subject, timings, loading)
    return 0


def _lines(args: argparse.Namespace, result: Benchmark) -> Iterator[str]:
    """Yield the output lines in the order of the original tool."""
    from mobileprep.inspection import benchmark_runs as tables

    timings, costs = result.timings, result.costs
    detailed = f", with stats: {timings.detailed.mean:.0f}" if timings.detailed else ""
    yield (
        f"Average inference timings in us: Warmup: {timings.warmup.mean:.0f}, "
        f"no stats: {timings.plain.mean:.0f}{detailed}"
    )
    if timings.stats is not None:
        yield from _stat_lines(args, timings.stats)
    if costs is not None and args.show_flops:
        yield from tables.cost_table(costs)
        titles = ("Time and cost by node type", "Time and cost by scope")
        for title, shares in zip(titles, result.times(args.scope_depth), strict=True):
            yield from tables.time_table(title, shares) if shares else ()
    if costs is not None:
        yield from _cost_lines(costs, timings)
    if costs is not None and result.device is not None:
        yield from _device_lines(costs, result.device)
    if result.diagnosis is not None and args.show_flops:
        yield "Diagnosis:"
        yield from (f"  {line}" for line in result.diagnosis.lines())


def _stat_lines(args: argparse.Namespace, stats: StepStats) -> Iterator[str]:
    from mobileprep.inspection import benchmark_runs as tables

    if args.show_run_order:
        limit = args.run_order_limit
        yield from tables.node_table("Run Order", stats, tables.by_run_order, limit)
    if args.show_time:
        title = "Top by Computation Time"
        yield from tables.node_table(title, stats, tables.by_time, args.time_limit)
    if args.show_memory:
        title = "Top by Memory Use"
        yield from tables.node_table(title, stats, tables.by_memory, args.memory_limit)
    if args.show_type:
        yield from tables.kind_table(stats)
    if args.show_summary:
        yield from tables.short_summary(stats)
    if args.show_sizes:
        yield from tables.output_sizes(stats)


def _cost_lines(costs: GraphCosts, timings: Timings) -> Iterator[str]:
    from mobileprep.inspection.benchmark_runs import readable

    a_second = round(costs.flops / max(timings.plain.mean / 1e6, 1e-9))
    yield f"FLOPs estimate: {readable(costs.flops)}"
    yield f"FLOPs/second: {readable(a_second)}"
    if costs.uncounted:
        yield f"Not counted: {', '.join(costs.uncounted)}"
    yield f"Parameters: {costs.parameters} ({costs.parameter_bytes} bytes)"
    yield f"Activation memory at its peak (bytes): {costs.peak_bytes}"
    yield f"Moved (bytes): {costs.moved}"


def _device_lines(costs: GraphCosts, device: Device) -> Iterator[str]:
    from mobileprep.targets.op_classes import class_costs

    seconds = device.seconds(class_costs(costs.nodes))
    yield f"Device: {device.title}, {device.rate}"
    yield f"  source: {', '.join(filter(None, (device.source, device.url)))}"
    often = f", {_rounded(1 / seconds)} a second" if seconds else ""
    title = "Estimate" if device.rates else "At best"
    yield f"{title}: {seconds * 1e3:.3g} ms for each inference{often}"


def _rounded(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def _report(
    args: argparse.Namespace, subject: TimedGraph, timings: Timings, loading: float
) -> None:
    """Write the result files of the original tool."""
    from mobileprep.inspection.benchmark_runs import write_entry
    from mobileprep.runtime.accounting.step_stats import by_kind

    plain, warm, name = timings.plain, timings.warmup, args.benchmark_name
    seconds, warming = plain.total / 1e6, warm.total / 1e6
    fed = next(iter(subject.feeds.values()), None)
    size = fed.nbytes if fed is not None and fed.dtype != object else 0
    throughput = size * plain.count / max(seconds, 1e-9) / (1 << 20)
    first = warming / max(warm.count, 1)
    write_entry(args.output_prefix, name, plain.count, seconds, throughput)
    write_entry(args.output_prefix, f"{name}_meta-init", 1, loading)
    write_entry(args.output_prefix, f"{name}_meta-first-inference", warm.count, warming)
    write_entry(args.output_prefix, f"{name}_meta-init-plus-first-inference", 1, loading + first)
    if timings.stats is not None:
        for kind in by_kind(timings.stats):
            runs = timings.stats.runs
            spent = kind.micros * runs / 1e6
            write_entry(args.output_prefix, f"{name}_{kind.kind}", runs, spent)
