"""The chain that ``init`` writes folds every batch norm of Keras networks and real models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions
from mobileprep.freezing.source import load_source
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.recipe.first import DEFAULT_CHAIN
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, norms_left, run_chain
from tests.reference.golden import assert_close, read_golden
from tests.reference.leftover_norms import Leftovers
from tests.reference.newest import graph_def, run_newest
from tests.reference.small_networks import SIZES, small_network

pytestmark = pytest.mark.reference

# Normalizations directly before an activation, which cannot be folded into a layer.
PAIRS = {"DenseNet121": 62, "ResNet50V2": 17, "NASNetMobile": 4}
TOLERANCE = 1e-5


def _steps() -> list[ChainStep]:
    entries = yaml.safe_load(DEFAULT_CHAIN)["transforms"]
    named = [{e: {}} if isinstance(e, str) else e for e in entries]
    return [ChainStep(name, options) for e in named for name, options in e.items()]


def _chained(graph: Graph, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
    return run_chain(graph, _steps(), Context(inputs, outputs))[0]


def _leftovers(tf: Any, graph: Graph, outputs: tuple[str, ...]) -> Leftovers:
    return Leftovers(graph_def(tf, graph), {o.partition(":")[0] for o in outputs})


def _check(tf: Any, graph: Graph, outputs: tuple[str, ...]) -> None:
    leftovers = _leftovers(tf, graph, outputs)
    assert leftovers.norms() == []
    assert leftovers.behind_layers() == []
    assert norms_left(graph, Context((), outputs)) == ""


@pytest.mark.parametrize("form", ["frozen", "saved"])
@pytest.mark.parametrize("name", SIZES)
def test_all_norms_of_keras_networks_fold(tf, name, form):
    network = small_network(tf, name)
    if form == "frozen":
        graph, inputs = read_graph(network.frozen), (network.input,)
        outputs: tuple[str, ...] = (network.output,)
    else:
        frozen = freeze(
            load_source(saved_model=network.saved), FreezeOptions((), "serving_default")
        )
        graph, inputs, outputs = frozen.graph, frozen.inputs, frozen.outputs
    after = _chained(graph, inputs, outputs)
    _check(tf, after, outputs)
    if name in PAIRS:
        leftovers = _leftovers(tf, after, outputs)
        assert leftovers.pairs() == PAIRS[name]
        assert leftovers.long_runs() == []
    # Grappler would create grouped fused convolutions, which TensorFlow cannot run.
    results = run_newest(tf, after, outputs[:1], {inputs[0]: network.image}, optimize=False)
    assert_close(results, [network.expected], TOLERANCE)


MODELS = {
    "arm-kws/CNN_S.pb": "golden_CNN_S",
    "arm-kws/DS_CNN_S.pb": "golden_DS_CNN_S",
    "made-qat-mnist-tf115/frozen_eval_graph.pb": "golden_frozen_eval_graph",
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb": "golden_frozen_float_fusedbn",
    "basic-pitch-savedmodel": "golden",
    "musicnn/MTT_musicnn/model.meta": "golden_MTT_musicnn_model",
}


@pytest.mark.parametrize("name", MODELS)
def test_all_norms_of_real_models_fold(tf, models: Path, name: str):
    path = models / name
    folder = models / name.partition("/")[0]
    golden = read_golden(next(folder.glob(f"{MODELS[name]}*.npz")))
    feeds, outputs = golden.feeds, tuple(golden.outputs)
    if path.suffix == ".pb":
        graph = read_graph(path)
    elif path.suffix == ".meta":
        source = load_source(meta_graph=path, checkpoint=path.with_suffix(""))
        graph = freeze(source, FreezeOptions(outputs)).graph
    else:
        frozen = freeze(load_source(saved_model=path), FreezeOptions(outputs))
        graph, outputs = frozen.graph, frozen.outputs
    after = _chained(graph, tuple(feeds), outputs)
    _check(tf, after, outputs)
    # Compare with the frozen graph, not the recorded outputs, which freezing may change.
    results, expected = (Interpreter(g).run(list(outputs), feeds) for g in (after, graph))
    assert_close(results, expected, TOLERANCE)
