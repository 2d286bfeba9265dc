"""Compare estimates of memory with the memory that TensorFlow and LiteRT allocate.

    python benchmarks/memory.py FOLDER [--models FOLDER] [--only TEXT] [--limit PERCENT]

FOLDER contains networks of ``python -m tests.reference.networks FOLDER``; those of ``--models`` are
frozen graphs with an INFO.json. Each is run on zeros, as a frozen graph in TensorFlow and as a
float ``.tflite`` file in LiteRT, both in a batch of 1.

- LiteRT: the bytes of all tensors that are not constants in the file, each counted once, after
  ``allocate_tensors`` without delegates.
- TensorFlow: the peak of the allocations that a traced run records, plus the fed tensors, with one
  thread and without Grappler and oneDNN.

Requires tensorflow-cpu and ai-edge-litert. With ``--limit``, exits with 1 if an estimate is off by
more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mobileprep
from mobileprep.graph.tflite import TENSOR, read_tflite
from mobileprep.inspection.memory import memory_of
from mobileprep.litert.convert import Mode

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

Shapes = Mapping[str, tuple[int, ...]]
_GAP = 64  # the alignment of tensors


@dataclass(frozen=True)
class Network:
    """A frozen graph, the shapes of its inputs, and its outputs."""

    path: Path
    shapes: Shapes
    outputs: Sequence[str]


@dataclass(frozen=True)
class Compared:
    """An estimate and a measurement in bytes."""

    estimate: int
    measured: int

    @property
    def ratio(self) -> float:
        """Estimate over measurement."""
        return self.estimate / self.measured


def networks(folder: Path, models: Path | None) -> Iterator[Network]:
    """Yield the networks of both directories."""
    for described in sorted(folder.glob("*.json")):
        record = json.loads(described.read_text())
        shapes = {record["input"]: tuple(record["shape"])}
        yield Network(described.with_suffix(".pb"), shapes, [record["output"]])
    for described in sorted(models.glob("*/INFO.json")) if models else ():
        record = json.loads(described.read_text())
        graph = described.parent / f"{record['name'].removeprefix('tfjs-')}.pb"
        if graph.exists():
            shapes = {one["name"]: tuple(one["shape"]) for one in record["inputs"]}
            yield Network(graph, shapes, [one["name"] for one in record["outputs"]])


def compare_tensorflow(network: Network) -> Compared:
    """Compare the activations of a run in TensorFlow."""
    graph = mobileprep.load_graph(network.path)
    size = network.path.stat().st_size
    estimate = memory_of(graph, network.shapes, network.outputs, kind="frozen", file_bytes=size)
    return Compared(estimate.phases[-1].activations, tensorflow_peak(network))


def tensorflow_peak(network: Network) -> int:
    """Return the peak of the allocations in a run, with the fed tensors, in bytes."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    config = tf1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    trace = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    metadata = tf1.RunMetadata()
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph, config=config) as session:
        definition = tf1.GraphDef.FromString(network.path.read_bytes())
        tf.import_graph_def(definition, name="")
        feeds = {}
        for name, shape in network.shapes.items():
            tensor = graph.get_tensor_by_name(_tensor(name))
            feeds[tensor] = np.zeros(shape, tensor.dtype.as_numpy_dtype)
        fetches = [graph.get_tensor_by_name(_tensor(name)) for name in network.outputs]
        session.run(fetches, feeds)
        session.run(fetches, feeds, options=trace, run_metadata=metadata)
    records = [
        (record.alloc_micros, record.alloc_bytes)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        for memory in node.memory
        for record in memory.allocation_records
    ]
    # In the same microsecond, memory is freed before more is allocated.
    return sum(feed.nbytes for feed in feeds.values()) + _peak(
        change for _, change in sorted(records)
    )


def _peak(changes: Iterator[int]) -> int:
    total = most = 0
    for change in changes:
        total += change
        most = max(most, total)
    return most


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def compare_litert(network: Network, mode: Mode = "float") -> Compared:
    """Compare the arenas of LiteRT's interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.tflite"
        inputs = list(network.shapes)
        mobileprep.to_tflite(
            *(network.path, file),
            inputs=inputs,
            outputs=network.outputs,
            shapes=network.shapes,
            mode=mode,
            warn=lambda _: None,
        )
        lite = read_tflite(file)
        size = file.stat().st_size
        estimate = memory_of(lite.graph, {}, lite.outputs, kind="tflite", file_bytes=size).phases[
            -1
        ]
        return Compared(estimate.activations + estimate.weights, litert_arenas(file))


def litert_arenas(file: Path) -> int:
    """Return the bytes of all tensors outside the file, each counted once."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    nodes = read_tflite(file).graph
    constants = {number for n in nodes if n.op == "Const" for number in n.attr_ints(TENSOR)}
    builtin = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(file), experimental_op_resolver_type=builtin)
    interpreter.allocate_tensors()
    spans = []
    for details in interpreter.get_tensor_details():
        if details["index"] not in constants:
            try:
                array = interpreter.tensor(details["index"])()
            except ValueError:  # not allocated, such as an output of unknown size
                continue
            start = array.__array_interface__["data"][0]
            spans.append((start, start + array.nbytes))
    total = end = 0
    for start, stop in sorted(spans):
        total += max(stop - (end if start <= end + _GAP else start), 0)
        end = max(end, stop)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare estimates of memory with real ones.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float)
    args = parser.parse_args()
    worst = 0.0
    print("| network | TensorFlow | estimate | ratio | LiteRT | estimate | ratio |")
    print("|---|---|---|---|---|---|---|")
    for network in networks(args.folder, args.models):
        if args.only not in network.path.name:
            continue
        cells = [network.path.stem]
        for compare in (compare_tensorflow, compare_litert):
            try:
                compared = compare(network)
            except (mobileprep.MobileprepError, ValueError) as error:
                print(f"{network.path}: {error}", file=sys.stderr)
                cells += ["-"] * 3
                continue
            worst = max(worst, abs(compared.ratio - 1))
            cells += [f"{compared.measured:,}", f"{compared.estimate:,}", f"{compared.ratio:.3f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    if args.limit is not None and worst > args.limit / 100:
        sys.exit(f"an estimate is off by {worst:.1%}")


if __name__ == "__main__":
    main()
