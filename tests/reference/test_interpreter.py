"""The interpreter matches TensorFlow on whole networks."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from tests.reference.conftest import SHARED
from tests.reference.golden import read_golden
from tests.reference.networks import NETWORKS, cached_network
from tests.reference.newest import run_newest
from tests.reference.real_graphs import model_parts

pytestmark = pytest.mark.reference

# Relative to the largest element of an output.
TOLERANCE = 1e-4


def goldens() -> list[tuple[str, str]]:
    """Frozen real models, each with its recorded run."""
    return [
        (f"{folder.name}/{part['file']}", f"{folder.name}/{part['golden']}")
        for folder, part in model_parts(SHARED / "models")
        if part.get("golden") and part.get("file", "").endswith(".pb")
    ]


@pytest.mark.parametrize("combine", [True, False], ids=["combined", "plain"])
@pytest.mark.parametrize(("graph", "golden"), goldens(), ids=lambda x: x)
def test_real_models(graph: str, golden: str, combine: bool, models: Path) -> None:
    feeds, outputs = read_golden(models / golden)
    if not feeds:
        pytest.skip("the inputs of this model were not recorded")
    # The dropout of two models keeps all values, whatever the random numbers.
    runner = Interpreter(read_graph(models / graph), combine=combine, seed=1)
    for name, ours in zip(outputs, runner.run(list(outputs), feeds), strict=True):
        compare(ours, outputs[name])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_keras_networks(name: str, batch: int, tf: ModuleType) -> None:
    network = cached_network(name)
    graph = read_graph(network.path)
    # A softmax of large numbers hides differences in its input.
    fetched = [network.output, *before_softmax(graph)]
    shape = (batch, *network.shape[1:])
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    ours = Interpreter(graph).run(fetched, {network.input: x})
    for mine, theirs in zip(
        ours, run_newest(tf, network.path, fetched, {network.input: x}), strict=True
    ):
        compare(mine, theirs)


def before_softmax(graph: Graph) -> list[str]:
    """The input of the softmax, and the last sums of two branches in residual networks."""
    softmax = next(n for n in graph if n.op == "Softmax")
    sums = [n.name for n in graph if n.op == "AddV2" and len(n.data_inputs) == 2]
    return [str(softmax.inputs[0]), *sums[-3:]]


def compare(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    if theirs.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs)
        return
    bound = TOLERANCE * np.abs(theirs).max(initial=1e-30)
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=bound)
