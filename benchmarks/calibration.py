"""Compare the speed of calibration with TensorFlow's inference, and check its memory.

    python -m tests.reference.networks FOLDER mobilenet
    python benchmarks/calibration.py FOLDER [--tensorflow PYTHON] [--samples N] [--many N]

The first command requires TensorFlow and creates a frozen MobileNet in FOLDER once. PYTHON is an
interpreter that can import TensorFlow, by default this one. Batch norms of MobileNet are folded as
in a recipe before quantization. Then the same images run through TensorFlow's session, which
computes only the output, and through a calibration, which observes every tensor that int8 nodes may
need. Both run alternately in separate processes on the same two CPUs. The benchmark prints the
median ratio of wall time and of processor time, which other load on the machine affects less, also
for plain inference (method ``none``). Limit: calibration has at least half the speed of TensorFlow.
Peak memory is measured for calibration on 100 and on 10,000 images of 32 by 32 pixels. Limit: 10 %
more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from kept_networks import facts_of
from processor import described

from mobileprep.graph import attrs as attr
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, run_chain

METHODS = ("none", "min_max", "percentile", "entropy")
PROCESSORS = 2

SAMPLES = """
import json, resource, sys, time
import numpy as np
graph, feed, fetch, shape, count, batch, method = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
pool = rng.random((min(count, 64), *shape[1:]), dtype=np.float32)
def pictures(start, stop):
    return pool[np.arange(start, stop) % len(pool)]
def report(once):
    once(min(count, 2 * batch))
    started, used = time.perf_counter(), time.process_time()
    once(count)
    took, used = time.perf_counter() - started, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([took, used, peak * 1024]))
"""
OURS = (
    SAMPLES
    + """
from msgspec.structs import replace
from pathlib import Path
from mobileprep.data.calibration.methods import Method
from mobileprep.data.calibration.observation import Subject
from mobileprep.data.calibration.observation import ranges_of
from mobileprep.data.calibration.shards import observed
from mobileprep.data.source import Batch
from mobileprep.data.source import data_inputs
from mobileprep.graph.files import read_graph
from mobileprep.transforms.quantize_nodes.layers import ranged_tensors
loaded = read_graph(Path(graph))
way = Method(method, 99.99, 0.99)
inputs = tuple(data_inputs(loaded, [feed], {}))
subject = Subject(loaded, (fetch,), ranged_tensors(loaded), way, inputs, batch)
class Images:
    name = "pictures"
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def batches(self, size, start=0, stop=None, unread=None):
        stop = self.count if stop is None else stop
        for at in range(start, stop, size):
            found = pictures(at, min(at + size, stop))
            yield Batch({feed: found}, None, ("",) * len(found))
if method == "none":
    subject = replace(subject, tensors=())
report(lambda count: ranges_of(observed(subject, Images(count)), way))
"""
)
THEIRS = (
    SAMPLES
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
        def once(count):
            for at in range(0, count, batch):
                found = pictures(at, min(at + batch, count))
                session.run(fetch + ":0", {feed + ":0": found})
        report(once)
"""
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensorflow", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:PROCESSORS])
    print("\n".join(described()), flush=True)
    facts = facts_of(args.folder, "mobilenet")
    with tempfile.TemporaryDirectory() as work:
        graph = folded(args.folder / "mobilenet.pb", facts, Path(work))
        for method in args.methods:
            compare(graph, facts, method, args)
        memory(small(graph, Path(work)), facts, args)


def small(network: Path, work: Path) -> Path:
    """Write the network with a variable image size."""
    graph = read_graph(network)
    any_size = attr.shape((-1, -1, -1, 3))
    nodes = [n.with_attrs(shape=any_size) if n.op == "Placeholder" else n for n in graph]
    made = work / "small.pb"
    write_graph(made, graph.with_nodes(nodes))
    return made


def folded(network: Path, facts: dict, work: Path) -> Path:
    """Write the network after the transforms of a recipe that precede quantization."""
    steps = [ChainStep(name, {}) for name in ("strip_unused_nodes", "optimize")]
    context = Context((facts["input"],), (facts["output"],))
    graph, _ = run_chain(read_graph(network), steps, context)
    made = work / "mobilenet.pb"
    write_graph(made, graph)
    return made


def compare(graph: Path, facts: dict, method: str, args: argparse.Namespace) -> None:
    ours, theirs = [], []
    for _ in range(args.turns):
        theirs.append(run(args.tensorflow, THEIRS, graph, facts, args.samples, args.batch, method))
        ours.append(run(sys.executable, OURS, graph, facts, args.samples, args.batch, method))
    rate = [args.samples / statistics.median(r[0] for r in found) for found in (ours, theirs)]
    ratio, work = (
        statistics.median(y[at] / x[at] for x, y in zip(ours, theirs, strict=True)) for at in (0, 1)
    )
    print(
        f"{method:12} {rate[0]:6.1f} pictures a second, TensorFlow {rate[1]:6.1f}: "
        f"{ratio:.2f} of its speed (bound 0.5: {'holds' if ratio >= 0.5 else 'MISSED'}), "
        f"{work:.2f} by processor time",
        flush=True,
    )


def memory(graph: Path, facts: dict, args: argparse.Namespace) -> None:
    peaks = [
        run(sys.executable, OURS, graph, facts, count, args.batch, "percentile", size=32)[2]
        for count in (100, args.many)
    ]
    ratio = peaks[1] / peaks[0]
    print(
        f"peak memory  {peaks[0] / 1e6:.0f} MB for 100 samples, {peaks[1] / 1e6:.0f} MB for "
        f"{args.many}: {ratio:.2f} (bound 1.1: {'holds' if ratio <= 1.1 else 'MISSED'})"
    )


def run(
    python: str,
    script: str,
    graph: Path,
    facts: dict,
    count: int,
    batch: int,
    method: str,
    size: int = 0,
) -> tuple[float, float, float]:
    shape = facts["shape"] if not size else [1, size, size, 3]
    given = [str(graph), facts["input"], facts["output"], shape, count, batch, method]
    done = subprocess.run(
        [python, "-c", script, json.dumps(given)], capture_output=True, check=True, text=True
    )
    took, used, peak = json.loads(done.stdout.splitlines()[-1])
    return took, used, peak


if __name__ == "__main__":
    main()
