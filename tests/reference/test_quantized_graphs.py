"""TensorFlow runs real networks in 8 bits, and each 8-bit node computes the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep import freeze
from mobileprep.formats.range_file import RangeFile, TensorRange, range_file_text
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import output_count
from mobileprep.graph.reachability import conditional_nodes
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context, make_transform
from mobileprep.transforms.quantize_nodes.layers import ranged_tensors
from tests.litert.graphs import answered, model
from tests.litert.one_op import numbers
from tests.litert.test_quantized_graphs import IMAGE
from tests.litert.test_quantized_graphs import network as network_in_floats
from tests.reference.golden import read_golden
from tests.reference.newest import run_newest, tensor_name
from tests.reference.original import run_original
from tests.reference.tensorflow_worker import TensorFlow, unquantized

pytestmark = pytest.mark.reference

KWS, TF2ONNX, QAT = "arm-kws", "tf2onnx-models", "made-qat-mnist-tf115"
SUGYAN = "sugyan-mnist-v1ckpt"
NETWORKS = {
    "android-wakeword-streaming-rnn/graph.pb": "golden_graph",
    f"{KWS}/Basic_LSTM_S.pb": "golden_Basic_LSTM_S",
    f"{KWS}/CNN_S.pb": "golden_CNN_S",
    f"{KWS}/DS_CNN_S.pb": "golden_DS_CNN_S",
    f"{QAT}/frozen_eval_graph.pb": "golden_frozen_eval_graph",
    f"{QAT}/frozen_float_fusedbn.pb": "golden_frozen_float_fusedbn",
    "mtcnn/mtcnn.pb": "golden_mtcnn",
    f"{TF2ONNX}/fc-layers/frozen.pb": "../golden_fc-layers_frozen",
    f"{TF2ONNX}/gru/frozen.pb": "../golden_gru_frozen",
    f"{TF2ONNX}/lstm/frozen.pb": "../golden_lstm_frozen",
    "tfjs-facemesh/facemesh.pb": "golden_facemesh",
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb": "golden_nsfwjs-mobilenet-v2",
    "tfjs-posenet/posenet.pb": "golden_posenet",
    "musicnn/MTT_musicnn/model.meta": "../golden_MTT_musicnn_model",
    "basic-pitch-savedmodel/saved_model.pb": "golden_savedmodel_",
    f"{SUGYAN}/graph.pb": "golden_softmax-1000",
}
# Omitted: sugyan's other checkpoints, which have the same graph, and tf-serving-testdata, which has
# nothing to quantize.
PREPARING = ("strip_unused_nodes", "remove_dropout", "fold_constants", "fold_batch_norms")
SOURCES: dict[str, dict[str, Any]] = {
    "original": {},
    "dynamic": {"ranges": "dynamic"},
    "observed": {"ranges": "observed"},
    "trained": {"ranges": "trained"},
    "newer": {"ranges": "dynamic", "tensorflow": "2.21"},
    "tensor": {"ranges": "dynamic", "rule": ("granularity=tensor",)},
    "weights": {"ranges": "dynamic", "rule": ("mode=weights",)},
}
EIGHTBIT = ("Quantize", "Dequantize", "Requantize", "Requantization")
# Rounding in a transcendental function or a Fourier transform changes a measured range, and with it
# whole quantization steps, which the original's chain amplifies in each iteration.
SENSITIVE = {
    "android-wakeword-streaming-rnn/graph.pb",
    "basic-pitch-savedmodel/saved_model.pb",
    f"{TF2ONNX}/gru/frozen.pb",
    f"{TF2ONNX}/lstm/frozen.pb",
}


class Network:
    """A real network, prepared as by a recipe, with its feeds and fetches."""

    def __init__(self, models: Path, name: str) -> None:
        self.name = name
        path = models / name
        golden = read_golden(path.parent / f"{NETWORKS[name]}.npz")
        self.fetches = list(golden.outputs)
        clip = (models / "data/speech_commands/tflite-micro/yes.wav").read_bytes()
        self.feeds = {
            key: np.array(clip, object) if value.dtype.kind == "O" else value
            for key, value in golden.feeds.items()
        }
        graph = _frozen(path, self.fetches)
        self.feeds = {key: value for key, value in self.feeds.items() if key.split(":")[0] in graph}
        self.context = Context(tuple(self.feeds), tuple(self.fetches))
        for transform in PREPARING:
            graph = make_transform(transform, {}).apply(graph, self.context).graph
        self.feeds = {key: value for key, value in self.feeds.items() if key.split(":")[0] in graph}
        self.graph = graph

    def quantized(self, folder: Path, options: dict[str, Any]) -> Graph:
        if options.get("ranges") == "observed":
            options = {**options, "range_file": str(self._observed(folder))}
        return make_transform("quantize_nodes", options).apply(self.graph, self.context).graph

    def _observed(self, folder: Path) -> Path:
        inside = conditional_nodes(self.graph)
        names = [f"{n}:{i}" if i else n for n, i in ranged_tensors(self.graph) if n not in inside]
        values = Interpreter(self.graph).run(names, self.feeds) if names else []
        ranges = {
            name: TensorRange(float(value.min()), float(value.max()))
            for name, value in zip(names, values, strict=True)
        }
        path = folder / "ranges.yaml"
        path.write_text(range_file_text(RangeFile(ranges)))
        return path


def _frozen(path: Path, fetches: list[str]) -> Graph:
    if path.suffix == ".meta":
        return freeze(path, fetches, checkpoint=path.with_suffix("")).graph
    if path.name == "saved_model.pb":
        return freeze(path.parent).graph
    if path.parent.name == SUGYAN:
        return freeze(path, fetches, checkpoint=path.with_name("softmax-1000.ckpt")).graph
    return read_graph(path)


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest, models: Path) -> Network:
    return Network(models, request.param)


def _eightbit_nodes(graph: Graph) -> list[Node]:
    inside = conditional_nodes(graph)
    return [n for n in graph if n.op.startswith(EIGHTBIT) and n.name not in inside]


@pytest.mark.parametrize("source", SOURCES)
def test_8_bit_nodes_match_tensorflow(
    network: Network, source: str, tf: ModuleType, tmp_path: Path
) -> None:
    """Each 8-bit node gets its inputs from TensorFlow, since floats in between may differ."""
    graph = network.quantized(tmp_path, SOURCES[source])
    nodes = _eightbit_nodes(graph)
    inputs = {str(r) for n in nodes for r in n.data_inputs}
    outputs = {f"{n.name}:{i}" for n in nodes for i in range(output_count(n, graph.library) or 0)}
    names = sorted({tensor_name(name) for name in inputs | outputs})
    fetches = [*names, *network.fetches]
    results = run_newest(tf, graph, fetches, network.feeds, optimize=False)
    values = {n: unquantized(v) for n, v in zip(names, results, strict=False)}
    for node in nodes:
        feeds = {tensor_name(str(r)): values[tensor_name(str(r))] for r in node.data_inputs}
        own = sorted(n for n in outputs if n.rpartition(":")[0] == node.name)
        for name, ours in zip(own, Interpreter(graph).run(own, feeds), strict=True):
            np.testing.assert_array_equal(ours, values[name], err_msg=name)
    if network.name in SENSITIVE and source == "original":
        return
    ours = Interpreter(graph).run(network.fetches, network.feeds)
    for mine, theirs in zip(ours, results[len(names) :], strict=True):
        assert mine.shape == theirs.shape
        if theirs.size:
            # Float rounding between 8-bit nodes can move a value by one quantization step.
            assert np.abs(mine - theirs).max() <= 0.02 * np.abs(theirs).max()


@pytest.fixture(scope="module")
def with_onednn(tf: ModuleType) -> Iterator[TensorFlow]:
    """TensorFlow with oneDNN and Grappler, the default on servers."""
    process = TensorFlow(onednn=True, optimizing=True)
    yield process
    process.close()


@pytest.mark.parametrize("source", SOURCES)
def test_tensorflow_runs_with_grappler_and_onednn(
    network: Network, source: str, with_onednn: TensorFlow, tmp_path: Path
) -> None:
    """Check shapes only, since oneDNN kernels round differently."""
    graph = network.quantized(tmp_path, SOURCES[source])
    names = [tensor_name(name) for name in network.fetches]
    feeds = {tensor_name(name): value for name, value in network.feeds.items()}
    results = with_onednn.run(graph_to_bytes(graph), names, feeds)
    assert not isinstance(results, str), results
    ours = Interpreter(graph).run(network.fetches, network.feeds)
    assert [value.shape for value in results] == [value.shape for value in ours]


@pytest.mark.parametrize("chain", ["quantize_nodes", "quantize_weights quantize_nodes"])
def test_litert_runs_graphs_quantized_by_the_original(
    chain: str, original: Path, tmp_path: Path
) -> None:
    """In floats, so the difference is the rounding of the graph."""
    graph = run_original(original, network_in_floats(), "x", "y", chain, tmp_path)
    x = numbers(*IMAGE, seed=9)
    assert sum(node.op == "QuantizedConv2D" for node in graph) == 2
    (output,) = answered(model_bytes(model(graph, ["x"], ["y"])), [x])
    (expected,) = Interpreter(graph).run(["y"], {"x": x})
    assert float(np.abs(output - expected).mean()) < 0.03 * float(np.ptp(expected))
