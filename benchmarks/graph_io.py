"""Measure loading a 100 MB graph, renaming one node, and writing the graph.

    python benchmarks/graph_io.py

Limits: 0.5 s, and a peak memory of 2.5 times the size of the graph. The reference is the same work
with plain protobuf. Each run is a new process. The time excludes process start-up, the memory is
that of the whole process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor

OURS = """
import resource, sys, time
from msgspec.structs import replace
from pathlib import Path
from mobileprep.graph.files import read_graph, write_graph
started = time.perf_counter()
graph = read_graph(Path(sys.argv[1]))
nodes = [*graph.nodes[:-1], replace(graph.nodes[-1], name="renamed")]
write_graph(Path(sys.argv[2]), graph.with_nodes(nodes))
took = time.perf_counter() - started
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
THEIRS = """
import resource, sys, time
from pathlib import Path
from mobileprep.formats.protos import graph_pb2
started = time.perf_counter()
graph = graph_pb2.GraphDef.FromString(Path(sys.argv[1]).read_bytes())
graph.node[-1].name = "renamed"
Path(sys.argv[2]).write_bytes(graph.SerializeToString())
took = time.perf_counter() - started
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "graph.pb"
        write_graph(source, large_graph(layers=220, width=337))
        size = source.stat().st_size
        ours = [job(OURS, source, folder / "ours.pb") for _ in range(7)]
        theirs = [job(THEIRS, source, folder / "theirs.pb") for _ in range(7)]
        seconds, memory = (sorted(x)[len(x) // 2] for x in zip(*ours, strict=True))
        reference, theirs_memory = (sorted(x)[len(x) // 2] for x in zip(*theirs, strict=True))
        print(f"graph of {size / 1e6:.0f} MB: {seconds:.3f} s (bound 0.5), ", end="")
        print(f"{memory / size:.2f} times its size in memory (bound 2.5)")
        print(f"plain protobuf: {reference:.3f} s, {theirs_memory / size:.2f} times its size")
        print(f"ratio {seconds / reference:.2f}")
        small, large = folder / "small.pb", folder / "large.pb"
        write_graph(small, chain(10_000))
        write_graph(large, chain(100_000))
        times = [min(job(OURS, p, folder / "o.pb")[0] for _ in range(3)) for p in (small, large)]
        print(f"100,000 nodes take {times[1] / times[0]:.1f} times what 10,000 take (bound 12)")


def job(code: str, source: Path, target: Path) -> tuple[float, float]:
    command = [sys.executable, "-c", code, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = done.stdout.split()
    return float(seconds), float(memory)


def large_graph(*, layers: int, width: int) -> Graph:
    """Create a graph with ten nodes per layer, one of them a float matrix of size ``width``."""
    generator = np.random.default_rng(0)
    nodes = [Node("input", "Placeholder")]
    for i in range(layers):
        weights = generator.standard_normal((width, width), np.float32)
        nodes.append(constant(f"layer{i}/weights", Tensor.of(weights)))
        previous = nodes[-2].name if i else "input"
        nodes.append(Node(f"layer{i}/MatMul", "MatMul", (Ref(previous), Ref(f"layer{i}/weights"))))
        for k in range(8):
            attrs = {"T": attr.dtype(DType.FLOAT), "data_format": attr.string("NHWC")}
            nodes.append(Node(f"layer{i}/op{k}", "Identity", (Ref(nodes[-1].name),), attrs=attrs))
    return Graph(nodes)


def chain(length: int) -> Graph:
    nodes = [Node("input", "Placeholder")]
    attrs = {"T": attr.dtype(DType.FLOAT)}
    for i in range(length):
        nodes.append(Node(f"scope/node{i}", "Relu", (Ref(nodes[-1].name),), attrs=attrs))
    return Graph(nodes)


if __name__ == "__main__":
    main()
