"""Compare the time and memory of inference with TensorFlow's session.

    python -m tests.reference.networks FOLDER inceptionv3 resnet50 mobilenet
    python benchmarks/inference.py FOLDER [--tensorflow PYTHON] [--openvino PYTHON]

The first command requires TensorFlow and creates the frozen networks in FOLDER once. PYTHON is an
interpreter that can import TensorFlow, by default this one, or one that can import mobileprep and
OpenVINO. Rows for OpenVINO and LiteRT are printed only if they are available.

Each network runs with fused and with decomposed batch norms, on the same two CPUs. The engines run
alternately in separate processes, which warm up and then run several batches. The result is the
median of the ratios of adjacent runs. Processor time is more reliable than wall time on a busy
machine, but includes threads that spin. If the environment selects the kernels of OpenBLAS, a
second row shows the result with its own selection. Limits: 3 times TensorFlow's time for numpy, 1.3
times for OpenVINO and LiteRT, and 1.5 times its peak memory for numpy.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batch_norms import with_fused, with_parts
from kept_networks import facts_of
from processor import described, without_coretype

from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.reachability import reachable

NETWORKS = ("inceptionv3", "resnet50", "mobilenet")
FORMS = {"parts": with_parts, "fused": with_fused}
PROCESSORS = 2

COMMON = """
import json, resource, statistics, sys, time
import numpy as np
graph, feed, fetch, shape, batch, runs = json.loads(sys.argv[1])
x = np.random.default_rng(0).random((batch, *shape[1:]), dtype=np.float32)
def report(once):
    once()
    once()
    wall, processor = [], []
    for _ in range(runs):
        started, used = time.perf_counter(), time.process_time()
        once()
        processor.append(time.process_time() - used)
        wall.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([statistics.median(wall), statistics.median(processor), peak]))
"""
OURS = (
    COMMON
    + """
from pathlib import Path
from mobileprep.graph.files import read_graph
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.runtime.engines.choose import open_engine
engine = open_engine("{engine}", read_graph(Path(graph)), Path(graph), convert=tflite_in_memory)
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
    """An engine of mobileprep to measure, by default in the environment of this process."""

    name: str
    engine: str
    python: str
    env: dict[str, str] | None = None

    @property
    def bound(self) -> float:
        """Maximum ratio to TensorFlow's time."""
        return 1.3 if self.engine in ("litert", "openvino") else 3.0


@dataclass(frozen=True)
class Result:
    """Wall time and processor time of a batch in seconds, and peak memory in bytes."""

    wall: float
    processor: float
    peak: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensorflow", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--openvino", default="", metavar="PYTHON")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--forms", nargs="*", default=tuple(FORMS), choices=tuple(FORMS))
    parser.add_argument("--batches", nargs="*", type=int, default=(1, 8))
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    _keep_to(PROCESSORS)
    print("\n".join(described()), flush=True)
    with tempfile.TemporaryDirectory() as work:
        for name in args.networks:
            for form in args.forms:
                facts = facts_of(args.folder, name)
                graph = in_form(args.folder / f"{name}.pb", facts["output"], form, Path(work))
                for batch in args.batches:
                    print(f"{name}, batch norms {form}, batch {batch}", flush=True)
                    compare(graph, facts, batch, args)


def in_form(network: Path, output: str, form: str, work: Path) -> Path:
    """Write a network with its batch norms in another form."""
    graph = FORMS[form](read_graph(network))
    needed = reachable(graph, [output])
    made = work / f"{network.stem}-{form}.pb"
    write_graph(made, graph.with_nodes(n for n in graph if n.name in needed))
    return made


def rows(args: argparse.Namespace) -> list[Row]:
    found = [Row("numpy", "numpy", sys.executable)]
    own = without_coretype()
    if own is not None:
        found.append(Row("numpy, kernels as OpenBLAS chooses", "numpy", sys.executable, own))
    if importlib.util.find_spec("ai_edge_litert") is not None:
        found.append(Row("litert", "litert", sys.executable))
    if args.openvino:
        found.append(Row("openvino", "openvino", args.openvino))
    return found


def compare(graph: Path, facts: dict[str, object], batch: int, args: argparse.Namespace) -> None:
    runs = 10 if batch == 1 else 3
    told = [str(graph), facts["input"], facts["output"], facts["shape"], batch, runs]
    ways = rows(args)
    theirs: list[Result] = []
    ours: list[list[Result]] = [[] for _ in ways]
    for _ in range(args.turns):
        theirs.append(measure(args.tensorflow, THEIRS, told, None))
        for row, results in zip(ways, ours, strict=True):
            code = OURS.replace("{engine}", row.engine)
            results.append(measure(row.python, code, told, row.env))
    print(f"  {shown(theirs, batch)}  tensorflow")
    for row, results in zip(ways, ours, strict=True):
        ratios = _ratios(results, theirs)
        print(f"  {shown(results, batch)}  {row.name}: {ratios} (bound {row.bound})")
    sys.stdout.flush()


def shown(results: Sequence[Result], batch: int) -> str:
    wall = statistics.median(r.wall for r in results) / batch * 1e3
    used = statistics.median(r.processor for r in results) / batch * 1e3
    peak = max(r.peak for r in results) / 1e6
    return f"{wall:6.1f} ms an image, {used:6.1f} ms of processors, {peak:5.0f} MB"


def _ratios(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    pairs = list(zip(ours, theirs, strict=True))
    wall = statistics.median(a.wall / b.wall for a, b in pairs)
    used = statistics.median(a.processor / b.processor for a, b in pairs)
    memory = max(a.peak for a in ours) / max(b.peak for b in theirs)
    return f"time {wall:.2f}, of processors {used:.2f}, memory {memory:.2f}"


def _keep_to(count: int) -> None:
    """Limit this process and its children to ``count`` CPUs."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def measure(python: str, code: str, told: list[object], env: dict[str, str] | None) -> Result:
    command = [python, "-c", code, json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        sys.exit(done.stderr)
    return Result(*json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
