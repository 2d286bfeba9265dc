"""Ranges logged by either tool, and frozen by either tool, give the same graph."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from tests.reference.conftest import Original
from tests.reference.native import run_memmapped, write_as_memmapped
from tests.reference.original import differences, known_to_original, run_ours

pytestmark = pytest.mark.reference

NETWORK = "tf2onnx-models/fc-layers/frozen.pb"
X, Y = "X", "output"
LOGGING = 'insert_logging(op=RequantizationRange, show_name=true, message="__requant_min_max:")'
RUNS = 3


def _log_of_mobileprep(graph: Path, digits: list[np.ndarray], folder: Path) -> Path:
    """The log of ``mobileprep run``, one run per digit."""
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


def _log_of_the_original(home: Path, graph: Path, digits: list[np.ndarray], folder: Path) -> Path:
    """The log of TensorFlow 1.15, one run per digit."""
    write_as_memmapped(folder / "model", known_to_original(read_graph(graph)))
    log = folder / "original.log"
    log.write_text("".join(run_memmapped(home, folder / "model", X, Y, d).stderr for d in digits))
    return log


def test_logs_of_both_tools_give_equal_graphs(
    original: Path, theirs: Original, models: Path, tmp_path: Path
) -> None:
    digits = [np.random.default_rng(i).random((1, 784), np.float32) for i in range(RUNS)]
    source = read_graph(models / NETWORK)
    chain = f"strip_unused_nodes quantize_nodes {LOGGING}"
    write_graph(tmp_path / "logged.pb", theirs(source, chain, X, Y))
    plain = theirs(source, "strip_unused_nodes quantize_nodes", X, Y)
    logs = [
        _log_of_mobileprep(tmp_path / "logged.pb", digits, tmp_path),
        _log_of_the_original(original, tmp_path / "logged.pb", digits, tmp_path),
    ]
    frozen: list[Graph] = []
    for log in logs:
        call = f'freeze_requantization_ranges(min_max_log_file="{log}")'
        frozen.append(run_ours(known_to_original(plain), X, Y, call))
        assert not differences(frozen[-1], theirs(plain, call, X, Y))
        assert "RequantizationRange" not in {n.op for n in frozen[-1]}
    assert not differences(*frozen)
