"""The chain that ``init`` writes leaves no batch norm of Keras' networks and of real models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions
from mobileprep.freezing.source import load_source
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.recipe.first import DEFAULT_CHAIN
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, norms_left, run_chain
from tests.reference.leftover_norms import Leftovers
from tests.reference.small_networks import SIZES, small_network

pytestmark = pytest.mark.reference

# How many normalizations stand before an activation, where no layer can take them in.
PAIRS = {"DenseNet121": 62, "ResNet50V2": 17, "NASNetMobile": 4}
LARGEST = 1e-5


def _steps() -> list[ChainStep]:
    entries = yaml.safe_load(DEFAULT_CHAIN)["transforms"]
    named = [{e: {}} if isinstance(e, str) else e for e in entries]
    return [ChainStep(name, options) for e in named for name, options in e.items()]


def _chained(graph: Graph, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
    return run_chain(graph, _steps(), Context(inputs, outputs))[0]


def _leftovers(tf: Any, graph: Graph, outputs: tuple[str, ...]) -> Leftovers:
    parsed = tf.compat.v1.GraphDef.FromString(graph_to_bytes(graph))
    return Leftovers(parsed, {o.partition(":")[0] for o in outputs})


def _check(tf: Any, graph: Graph, outputs: tuple[str, ...]) -> None:
    left = _leftovers(tf, graph, outputs)
    assert left.norms() == []
    assert left.behind_layers() == []
    assert norms_left(graph, Context((), outputs)) == ""


def _by_tensorflow(tf: Any, graph: Graph, output: str, feeds: dict[str, Any]) -> np.ndarray:
    parsed = tf.compat.v1.GraphDef.FromString(graph_to_bytes(graph))
    # As it stands: TensorFlow's optimizer makes fused convolutions in groups, which it cannot run.
    config = tf.compat.v1.ConfigProto(
        graph_options={"rewrite_options": {"disable_meta_optimizer": True}}
    )
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(parsed, name="")
        with tf.compat.v1.Session(graph=loaded, config=config) as session:
            tensors = {n if ":" in n else f"{n}:0": v for n, v in feeds.items()}
            found: np.ndarray = session.run(output if ":" in output else f"{output}:0", tensors)
    return found


def _assert_equal(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(found - expected).max() <= LARGEST * np.abs(expected).max()


@pytest.mark.parametrize("form", ["frozen", "saved"])
@pytest.mark.parametrize("name", SIZES)
def test_a_network_of_keras_keeps_its_answers_and_no_batch_norm(tf, name, form):
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
    left = _leftovers(tf, after, outputs)
    if name in PAIRS:
        assert left.pairs() == PAIRS[name]
        assert left.long_runs() == []
    found = _by_tensorflow(tf, after, outputs[0], {inputs[0]: network.image})
    _assert_equal(found, network.expected)


MODELS = {
    "arm-kws/CNN_S.pb": "golden_CNN_S",
    "arm-kws/DS_CNN_S.pb": "golden_DS_CNN_S",
    "made-qat-mnist-tf115/frozen_eval_graph.pb": "golden_frozen_eval_graph",
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb": "golden_frozen_float_fusedbn",
    "basic-pitch-savedmodel": "golden",
    "musicnn/MTT_musicnn/model.meta": "golden_MTT_musicnn_model",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_real_model_keeps_its_answers_and_no_batch_norm(tf, models: Path, name: str):
    path = models / name
    folder = models / name.partition("/")[0]
    with np.load(next(folder.glob(f"{MODELS[name]}*.npz"))) as golden:
        feeds = {_named(k): golden[k] for k in golden if k.startswith("in:")}
        outputs = tuple(_named(k) for k in golden if k.startswith("out:"))
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
    # Beside the graph before, not the golden outputs: what differs from those is the freezing's.
    found, wanted = (Interpreter(g).run(list(outputs), feeds) for g in (after, graph))
    for value, expected in zip(found, wanted, strict=True):
        _assert_equal(value, expected)


def _named(key: str) -> str:
    return key.partition(":")[2].replace("|", "/")
