"""Whole networks: what the interpreter gives, and what TensorFlow gave."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from tests.reference.conftest import SHARED
from tests.reference.networks import NETWORKS, kept_network

pytestmark = pytest.mark.reference

# Relative to the largest element of an output.
TOLERANCE = 1e-4


def goldens() -> list[tuple[str, str]]:
    """Frozen graphs among the real models, each with its file of inputs and outputs."""
    found = []
    for info in sorted((SHARED / "models").glob("*/INFO.json")):
        for part in json.loads(info.read_text()).get("parts", []):
            name = part.get("file", "")
            if part.get("golden") and name.endswith(".pb"):
                folder = info.parent.name
                found.append((f"{folder}/{name}", f"{folder}/{part['golden']}"))
    return found


def named(golden: Any, prefix: str) -> dict[str, np.ndarray]:
    keys = [k for k in golden.files if k.startswith(prefix)]
    return {k.removeprefix(prefix).replace("|", "/"): golden[k] for k in keys}


@pytest.mark.parametrize("combine", [True, False], ids=["combined", "plain"])
@pytest.mark.parametrize(("graph", "golden"), goldens(), ids=lambda x: x)
def test_a_real_model_gives_what_tensorflow_gave(
    graph: str, golden: str, combine: bool, models: Path
) -> None:
    with np.load(models / golden) as arrays:
        feeds, outputs = named(arrays, "in:"), named(arrays, "out:")
    if not feeds:
        pytest.skip("the inputs of this model were not kept")
    # The dropout of two models keeps everything, whatever the random numbers.
    runner = Interpreter(read_graph(models / graph), combine=combine, seed=1)
    for name, ours in zip(outputs, runner.run(list(outputs), feeds), strict=True):
        compare(ours, outputs[name])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_keras_network_gives_what_tensorflow_gives(name: str, batch: int, tf: ModuleType) -> None:
    network = kept_network(name)
    graph = read_graph(network.path)
    # A softmax of large numbers hides what came before it.
    fetched = [network.output, *before_softmax(graph)]
    shape = (batch, *network.shape[1:])
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    ours = Interpreter(graph).run(fetched, {network.input: x})
    for mine, theirs in zip(
        ours, run_tensorflow(tf, network.path, fetched, network.input, x), strict=True
    ):
        compare(mine, theirs)


def before_softmax(graph: Graph) -> list[str]:
    """What the softmax takes, and the last sums: of residual networks those of two branches."""
    softmax = next(n for n in graph if n.op == "Softmax")
    sums = [n.name for n in graph if n.op == "AddV2" and len(n.data_inputs) == 2]
    return [str(softmax.inputs[0]), *sums[-3:]]


def run_tensorflow(
    tf: ModuleType, path: Path, fetches: list[str], feed: str, x: np.ndarray
) -> list[np.ndarray]:
    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(path.read_bytes())
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(definition, name="")
        with tf.compat.v1.Session(graph=imported) as session:
            found: list[np.ndarray] = session.run([f"{n}:0" for n in fetches], {f"{feed}:0": x})
    return found


def compare(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    if theirs.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs)
        return
    bound = TOLERANCE * np.abs(theirs).max(initial=1e-30)
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=bound)
