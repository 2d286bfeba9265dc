"""The guide's route to fixed ranges: logged by a run of either tool, frozen by either tool."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.wire import delimited, encode_varint
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.transforms.base import Context, make_transform
from tests.reference.original import differences, known_to_original, run_original

pytestmark = pytest.mark.reference

NETWORK = "tf2onnx-models/fc-layers/frozen.pb"
X, Y = "X", "output"
LOGGING = 'insert_logging(op=RequantizationRange, show_name=true, message="__requant_min_max:")'
RUNS = 3


def _logged_here(graph: Path, digits: list[np.ndarray], folder: Path) -> Path:
    """The log of ``mobileprep run``, one run a digit."""
    code = "import sys; from mobileprep.cli.main import main; sys.exit(main(sys.argv[1:]))"
    log = folder / "here.log"
    with log.open("wb") as lines:
        for number, digit in enumerate(digits):
            np.save(folder / f"{number}.npy", digit)
            flags = [f"--graph={graph}", f"--feed={X}={folder / f'{number}.npy'}", f"--fetch={Y}"]
            flags.append(f"--out={folder / 'out.npz'}")
            command = [sys.executable, "-c", code, "run", *flags]
            subprocess.run(command, stderr=lines, check=True, timeout=300)
    return log


def _logged_by_the_original(
    home: Path, graph: Path, digits: list[np.ndarray], folder: Path
) -> Path:
    """The log of TensorFlow 1.15, whose loader takes memory-mapped models."""
    body = graph_to_bytes(known_to_original(read_graph(graph)))
    entry = b"\x08\x00" + delimited(2, b"memmapped_package://.") + b"\x18"
    directory = delimited(1, entry + encode_varint(len(body)))
    (folder / "model").write_bytes(body + directory + struct.pack("<Q", len(body)))
    log = folder / "original.log"
    with log.open("wb") as lines:
        for digit in digits:
            (folder / "in").write_bytes(digit.tobytes())
            shape = ",".join(map(str, digit.shape))
            command = [str(home / "run_memmapped"), "model", X, Y, shape, "in", "out"]
            subprocess.run(command, cwd=folder, stderr=lines, check=True, timeout=300)
    return log


def test_logs_of_both_tools_give_the_same_graphs_in_both(
    original: Path, models: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def theirs(graph: Graph, chain: str) -> Graph:
        # A folder of its own: what was read before stays mapped.
        return run_original(original, graph, X, Y, chain, tmp_path_factory.mktemp("original"))

    digits = [np.random.default_rng(i).random((1, 784), np.float32) for i in range(RUNS)]
    source = read_graph(models / NETWORK)
    chain = f"strip_unused_nodes quantize_nodes {LOGGING}"
    write_graph(tmp_path / "logged.pb", theirs(source, chain))
    plain = theirs(source, "strip_unused_nodes quantize_nodes")
    logs = [
        _logged_here(tmp_path / "logged.pb", digits, tmp_path),
        _logged_by_the_original(original, tmp_path / "logged.pb", digits, tmp_path),
    ]
    frozen: list[Graph] = []
    for log in logs:
        options = {"min_max_log_file": str(log)}
        step = make_transform("freeze_requantization_ranges", options)
        frozen.append(step.apply(known_to_original(plain), Context((X,), (Y,), tf115=True)).graph)
        call = f'freeze_requantization_ranges(min_max_log_file="{log}")'
        assert not differences(frozen[-1], theirs(plain, call))
        assert "RequantizationRange" not in {n.op for n in frozen[-1]}
    assert not differences(*frozen)
