"""Estimates of memory compared with the memory that TensorFlow and LiteRT allocate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.inspection.memory import memory_of
from mobileprep.targets.memmapped import memmap
from tests.litert.graphs import const, feed, op
from tests.reference.native import program, run_program
from tests.reference.networks import cached_network

pytestmark = pytest.mark.reference

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.parametrize("name", ["mobilenetv2", "inceptionv3", "efficientnetb0", "densenet121"])
def test_arena_and_allocations_are_within_a_tenth(name: str) -> None:
    pytest.importorskip("tensorflow")
    pytest.importorskip("ai_edge_litert")
    folder = cached_network(name).path.parent
    command = [sys.executable, BENCHMARK, folder, "--only", f"{name}.pb", "--limit", "10"]
    process = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=600, check=False
    )
    assert process.returncode == 0, process.stderr
    *_, row = process.stdout.splitlines()
    assert row.startswith(f"| {name} |")
    assert "-" not in row


def loaded(home: Path, file: Path, kind: str) -> dict[str, int]:
    """Anonymous memory after each phase of loading and running in TensorFlow 1.15, in bytes."""
    command = (program(home, "load_memory"), file, kind, "x", "y", "1,1000")
    lines = run_program(*command).splitlines()
    return {phase: int(memory) for phase, memory, _ in map(str.split, lines)}


def network(*, folded: bool) -> Graph:
    """Four products with 4 MB of weights each, which the graph transposes if ``folded``."""
    nodes = [feed("x", (1, 1000)), const("order", np.int32([1, 0]))]
    previous = "x"
    for i in range(4):
        weights = np.random.default_rng(i).normal(size=(1000, 1000)).astype(np.float32)
        nodes.append(const(f"w{i}", weights))
        if folded:
            types = {"T": DType.FLOAT, "Tperm": DType.INT32}
            nodes.append(op(f"n{i}", "Transpose", [f"w{i}", "order"], **types))
        name = "y" if i == 3 else f"y{i}"
        nodes.append(op(name, "MatMul", [previous, f"n{i}" if folded else f"w{i}"], T=DType.FLOAT))
        previous = name
    return Graph(nodes)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("kind", ["frozen", "memmapped"])
def test_memory_of_constants_is_that_of_tensorflow(
    original: Path, tmp_path: Path, kind: str, folded: bool
) -> None:
    graph, file = network(folded=folded), tmp_path / "model"
    if kind == "memmapped":
        memmap(graph, file, warn=lambda _: None)
    else:
        write_graph(file, graph)
    estimate = memory_of(graph, {"x": (1, 1000)}, ["y"], kind=kind, file_bytes=file.stat().st_size)
    parse, _, run = estimate.phases
    measured = loaded(original, file, kind)
    # The runtime's own objects take up to 3 MB.
    assert measured["parse"] == pytest.approx(parse.constants, abs=3e6)
    resident = run.constants + run.weights
    assert measured["first"] == pytest.approx(resident, rel=0.1, abs=3e6)
