"""How long does inference take, and how much memory, against TensorFlow's own session?

    python benchmarks/inference.py FOLDER [--tensorflow PYTHON]

FOLDER holds frozen networks as NAME.pb with NAME.json (``tests/reference/networks.py`` makes
them); PYTHON is an interpreter that can import TensorFlow, by default this one. Processes take
turns, each warms up and then runs some batches; the smallest median of all turns counts.
The bounds, on two cores: at most 2.0 times TensorFlow's time and 1.5 times its peak memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NETWORKS = ("inceptionv3", "resnet50", "mobilenet")
BATCHES = (1, 8)

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
from mobileprep.ops.interpreter import Interpreter
interpreter = Interpreter(read_graph(Path(graph)))
report(lambda: interpreter.run([fetch], {feed: x}))
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
class Result:
    """Seconds a batch takes, and peak memory in bytes."""

    seconds: float
    peak: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensorflow", default=sys.executable)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    for name in args.networks:
        for batch in BATCHES:
            compare(name, batch, args)


def compare(name: str, batch: int, args: argparse.Namespace) -> None:
    facts = json.loads((args.folder / f"{name}.json").read_text())
    graph = str((args.folder / f"{name}.pb").resolve())
    runs = 10 if batch == 1 else 3
    told = [graph, facts["input"], facts["output"], facts["shape"], batch, runs]
    ours, theirs = [], []
    for _ in range(args.turns):
        ours.append(measure(sys.executable, OURS, told))
        theirs.append(measure(args.tensorflow, THEIRS, told))
    mine, reference = min(r.seconds for r in ours), min(r.seconds for r in theirs)
    peak, reference_peak = max(r.peak for r in ours), max(r.peak for r in theirs)
    print(f"{name}, batch {batch}:")
    print(f"  ours   {mine * 1e3:.1f} ms, {peak / 1e6:.0f} MB")
    print(f"  theirs {reference * 1e3:.1f} ms, {reference_peak / 1e6:.0f} MB")
    print(f"  time ratio   {mine / reference:.2f} (bound 2.0)")
    print(f"  memory ratio {peak / reference_peak:.2f} (bound 1.5)", flush=True)


def measure(python: str, code: str, told: list[object]) -> Result:
    command = [python, "-c", code, json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return Result(*json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
