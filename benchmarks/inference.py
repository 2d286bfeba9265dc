"""How long does inference take, and how much memory, against TensorFlow's own session?

    python benchmarks/inference.py FOLDER [--tensorflow PYTHON] [--openvino PYTHON]

FOLDER holds frozen networks as NAME.pb with NAME.json (``tests/reference/networks.py`` makes
them); PYTHON is an interpreter that can import TensorFlow, by default this one, and one that can
import mobileprep with OpenVINO, without which there is no row for it. All run on the same two
processors. Processes take turns, each warms up and then runs some batches; the smallest median of
all turns counts. The bounds: numpy takes at most 2.0 times TensorFlow's time and 1.5 times its peak
memory, OpenVINO 1.3 times its time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NETWORKS = ("inceptionv3", "resnet50", "mobilenet")
BATCHES = (1, 8)
PROCESSORS = 2

COMMON = """
import json, resource, statistics, sys, time
import numpy as np
graph, feed, fetch, shape, batch, runs = json.loads(sys.argv[1])
x = np.random.default_rng(0).random((batch, *shape[1:]), dtype=np.float32)
def report(once):
    once()
    once()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([statistics.median(seconds), peak]))
"""
OURS = (
    COMMON
    + """
from pathlib import Path
from mobileprep.ir.files import read_graph
from mobileprep.runtime.engines.choose import open_engine
engine = open_engine("{engine}", read_graph(Path(graph)), Path(graph))
report(lambda: engine.run([fetch], {feed: x}))
"""
)
THEIRS = (
    COMMON
    + """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf
definition = tf.GraphDef()
with open(graph, "rb") as stream:
    definition.ParseFromString(stream.read())
with tf.Graph().as_default():
    tf.import_graph_def(definition, name="")
    config = tf.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=2)
    with tf.Session(config=config) as session:
        report(lambda: session.run(fetch + ":0", {feed + ":0": x}))
"""
)


@dataclass(frozen=True)
class Row:
    """One engine, and the bounds of its time and memory as multiples of TensorFlow's."""

    engine: str
    python: str
    time_bound: float
    memory_bound: float | None


@dataclass(frozen=True)
class Result:
    """Seconds a batch takes, and peak memory in bytes."""

    seconds: float
    peak: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensorflow", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--openvino", default="", metavar="PYTHON")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    _keep_to(PROCESSORS)
    rows = [Row("numpy", sys.executable, 2.0, 1.5)]
    if args.openvino:
        rows.append(Row("openvino", args.openvino, 1.3, None))
    for name in args.networks:
        for batch in BATCHES:
            compare(name, batch, rows, args)


def compare(name: str, batch: int, rows: list[Row], args: argparse.Namespace) -> None:
    facts = json.loads((args.folder / f"{name}.json").read_text())
    graph = str((args.folder / f"{name}.pb").resolve())
    runs = 10 if batch == 1 else 3
    told = [graph, facts["input"], facts["output"], facts["shape"], batch, runs]
    theirs: list[Result] = []
    ours: list[list[Result]] = [[] for _ in rows]
    for _ in range(args.turns):
        theirs.append(measure(args.tensorflow, THEIRS, told))
        for row, results in zip(rows, ours, strict=True):
            results.append(measure(row.python, OURS.replace("{engine}", row.engine), told))
    reference = best(theirs)
    print(f"{name}, batch {batch}: tensorflow {shown(reference, batch)}")
    for row, results in zip(rows, ours, strict=True):
        print(f"  {row.engine} {shown(best(results), batch)}")
        _print_ratios(row, best(results), reference)


def best(results: list[Result]) -> Result:
    return Result(min(r.seconds for r in results), max(r.peak for r in results))


def shown(result: Result, batch: int) -> str:
    return f"{result.seconds / batch * 1e3:.1f} ms an image, {result.peak / 1e6:.0f} MB"


def _print_ratios(row: Row, mine: Result, reference: Result) -> None:
    time_ratio, memory_ratio = mine.seconds / reference.seconds, mine.peak / reference.peak
    print(f"    time ratio   {time_ratio:.2f} (bound {row.time_bound})")
    bound = f" (bound {row.memory_bound})" if row.memory_bound else ""
    print(f"    memory ratio {memory_ratio:.2f}{bound}", flush=True)


def _keep_to(count: int) -> None:
    """Let this process, and those that it starts, run on so many processors."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def measure(python: str, code: str, told: list[object]) -> Result:
    command = [python, "-c", code, json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return Result(*json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
