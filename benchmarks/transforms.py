"""Compare transforms with the original tool, and measure how their time grows with the graph.

    python benchmarks/transforms.py GRAPH ORIGINAL INPUT OUTPUT
    python benchmarks/transforms.py --against ORIGINAL
    python benchmarks/transforms.py --transform quantize_nodes

GRAPH is a frozen InceptionV3 (96 MB, 2,200 nodes) without attributes that TensorFlow 1.15 does not
support. ORIGINAL is the original ``transform_graph`` binary. Both tools run the documented chains
alternately, as whole processes. Limits: 0.7 times the wall time and 0.8 times the peak memory of
the original.

With ``--against``, transforms that change few nodes run on chains of 100,000 small nodes, also
alternately as whole processes. The time limits are in ``AGAINST``, the limit for peak memory is 0.6
times that of the original.

Otherwise, all transforms, or those of ``--transform``, run on chains of 10,000 and 100,000 nodes
that consist of their patterns, in the modes of ``mobileprep transform`` and of a recipe. The
processor times of the whole processes are compared, including start-up, reading, and writing.
Limit: 12 times the time. The ratios in brackets are without start-up, and for the transform alone.
The latter is largest for transforms that do little per node, because 10,000 nodes fit in the CPU
cache.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from measure import alternate, measure_output, mobileprep
from synthetic import CASES, INPUT, OUTPUT, chain_of, options_of

from mobileprep.graph.files import write_graph
from mobileprep.transforms.base import transform_names

DEPLOYMENT = (
    "strip_unused_nodes fold_constants(ignore_errors=true) "
    "fold_batch_norms(ignore_errors=true) fold_old_batch_norms"
)
EIGHT_BIT = (
    'add_default_attributes strip_unused_nodes(type=float, shape="1,299,299,3") '
    "remove_nodes(op=CheckNumerics) fold_constants(ignore_errors=true) "
    "fold_batch_norms(ignore_errors=true) fold_old_batch_norms quantize_weights quantize_nodes "
    "strip_unused_nodes sort_by_execution_order"
)
CHAINS = {
    "deployment": DEPLOYMENT,
    "deployment, 8-bit weights": f"{DEPLOYMENT} quantize_weights",
    "eight-bit": EIGHT_BIT,
}
AGAINST = {
    "strip_unused_nodes": 1.5,
    "fold_batch_norms": 1.0,
    "merge_duplicate_nodes": 1.0,
    "fold_constants": 0.8,
}
SHORT, LONG = 10_000, 100_000
STEP = Path(__file__).with_name("transform_step.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("paths", nargs="*", metavar="GRAPH ORIGINAL INPUT OUTPUT")
    parser.add_argument("--against", metavar="ORIGINAL", help="compare on 100,000 small nodes")
    parser.add_argument("--transform", action="append", default=[], choices=sorted(CASES))
    parser.add_argument("--no-growth", action="store_true", help="compare the chains alone")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    if len(args.paths) not in (0, 4):
        parser.error("give GRAPH, ORIGINAL, INPUT and OUTPUT, or none of them")
    if args.against:
        with tempfile.TemporaryDirectory() as folder:
            for name in args.transform or AGAINST:
                small_nodes(name, args, Path(folder))
        return
    if args.paths:
        with tempfile.TemporaryDirectory() as folder:
            for label, chain in CHAINS.items():
                compare(label, chain, args, Path(folder))
    if not args.no_growth:
        print(f"processor time for {LONG} nodes over that for {SHORT} (bound 12)")
        for name in args.transform or sorted(CASES):
            grow(name, args.runs)
        if not args.transform:
            print(f"  without a chain: {', '.join(sorted({*transform_names()} - {*CASES}))}")


def compare(label: str, chain: str, args: argparse.Namespace, folder: Path) -> None:
    """Compare a chain with the original."""
    graph, original, source, output = args.paths
    ends = [f"--inputs={source}", f"--outputs={output}"]
    run_both(label, chain, original, [f"--in_graph={graph}", *ends], args.runs, folder)
    print("  bounds: time 0.7, memory 0.8", flush=True)


def small_nodes(name: str, args: argparse.Namespace, folder: Path) -> None:
    """Compare a transform with the original on small nodes."""
    path = folder / "graph.pb"
    case = CASES[name]
    graph, units = chain_of(case, LONG)
    write_graph(path, graph)
    options = options_of(case, units, folder)
    if options:
        sys.exit(f"{name} has options here, which the original would take as text")
    flags = [f"--in_graph={path}", f"--inputs={INPUT}", f"--outputs={OUTPUT}"]
    run_both(f"{name}, {len(graph)} nodes", name, args.against, flags, args.runs, folder)
    print(f"  bounds: time {AGAINST.get(name, 1.0)}, memory 0.6", flush=True)


def run_both(
    label: str, chain: str, original: str, flags: list[str], runs: int, folder: Path
) -> None:
    """Run both tools alternately, and print their times and memory."""
    flags = [*flags, f"--transforms={chain}"]
    ours, theirs = alternate(
        [mobileprep(), "transform", *flags, f"--out_graph={folder / 'ours.pb'}"],
        [original, *flags, f"--out_graph={folder / 'theirs.pb'}"],
        runs=runs,
    )
    print(f"{label}:")
    print(f"  ours   {ours.median:.2f} s (best {ours.best:.2f}), {ours.peak / 1e6:.0f} MB")
    print(f"  theirs {theirs.median:.2f} s (best {theirs.best:.2f}), {theirs.peak / 1e6:.0f} MB")
    print(f"  wall time ratio {ours.median / theirs.median:.2f}")
    print(f"  memory ratio    {ours.peak / theirs.peak:.2f}")


def grow(name: str, runs: int) -> None:
    """Print how the time of a transform grows, in both modes."""
    shown = []
    for mode in ("tf115", "recipe"):
        seconds: dict[int, list[list[float]]] = {SHORT: [], LONG: []}
        for _ in range(runs):
            for size, found in seconds.items():
                printed = measure_output(step_command(name, size, mode)).split()
                found.append([float(text) for text in printed])
        short, long = (
            [statistics.median(times) for times in zip(*found, strict=True)]
            for found in seconds.values()
        )
        whole, work, alone = (b / a for a, b in zip(short, long, strict=True))
        times = f"{short[0]:.2f} s, {long[0]:.2f} s"
        shown.append(f"{mode} {whole:4.1f} ({times}) [{work:.1f}, {alone:.1f}]")
    print(f"  {name:<30} {'   '.join(shown)}", flush=True)


def step_command(name: str, size: int, mode: str) -> list[str]:
    """Return the command that times one step in a new process."""
    return [sys.executable, str(STEP), name, str(size), mode]


if __name__ == "__main__":
    main()
