"""Decoders of tf.contrib.seq2seq in the interpreter and in LiteRT match TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.files import read_graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.interpreter import Interpreter
from tests.litert.graphs import answered
from tests.reference.golden import assert_close
from tests.reference.native import PROGRAMS

pytestmark = pytest.mark.reference

NAMES = (
    *("training", "training, luong", "greedy", "greedy, normalized", "greedy, luong"),
    *("greedy, monotonic", "greedy, lengths", "greedy, two layers", "beams"),
    *("beams, one sequence", "beams, open batch", "beams, lengths", "beams, no attention"),
)


@pytest.fixture(scope="module")
def decoders(original: Path, tf: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the graphs, inputs, and outputs of all decoders."""
    folder = tmp_path_factory.mktemp("decoders")
    # In a process of its own, because contrib's code needs changes in TensorFlow's modules.
    command = [sys.executable, PROGRAMS / "contrib_decoders.py", original / "tensorflow_core"]
    done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def arrays(folder: Path, name: str, kind: str) -> dict[str, Array]:
    with np.load(folder / f"{name}.npz") as stored:
        return {
            key.removeprefix(kind).replace("|", "/"): stored[key]
            for key in stored
            if key.startswith(kind)
        }


@pytest.mark.parametrize("name", NAMES)
def test_decoders(name: str, decoders: Path) -> None:
    graph = read_graph(decoders / f"{name}.pb")
    feeds, expected = (arrays(decoders, name, kind) for kind in ("in:", "out:"))
    outputs = list(expected)
    assert any(node.op == "GatherTree" for node in graph) is name.startswith("beams")
    assert_close(Interpreter(graph).run(outputs, feeds), list(expected.values()), 1e-5)
    content = model_bytes(converted(graph, [CutInput(fed) for fed in feeds], outputs))
    for _ in range(2):
        assert_close(answered(content, list(feeds.values())), list(expected.values()), 1e-5)
