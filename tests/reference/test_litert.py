"""LiteRT matches TensorFlow on real models and networks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.freezing.loading import ModelOptions, load_model
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.engines.graph_engines import TensorFlowEngine
from tests.litert.graphs import answered
from tests.reference.conftest import HOME
from tests.reference.golden import assert_close, read_golden
from tests.reference.networks import ALL_NETWORKS, network
from tests.reference.newest import from_tensorflow
from tests.reference.saved_models import v1_control_flow

pytestmark = pytest.mark.reference

# Share of the peak of an output.
TOLERANCE = 1e-4

GOLDEN = {
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb": "golden_nsfwjs-mobilenet-v2.npz",
    "tfjs-posenet/posenet.pb": "golden_posenet.npz",
    "tfjs-facemesh/facemesh.pb": "golden_facemesh.npz",
    "tf2onnx-models/fc-layers/frozen.pb": "golden_fc-layers_frozen.npz",
    "tf2onnx-models/gru/frozen.pb": "golden_gru_frozen.npz",
    "tf2onnx-models/lstm/frozen.pb": "golden_lstm_frozen.npz",
    "made-qat-mnist-tf115/frozen_eval_graph.pb": "golden_frozen_eval_graph.npz",
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb": "golden_frozen_float_fusedbn.npz",
    "basic-pitch-savedmodel": "golden_savedmodel_.npz",
    "mtcnn/mtcnn.pb": "golden_mtcnn.npz",
    "android-wakeword-streaming-rnn/graph.pb": "golden_graph.npz",
    "musicnn/MTT_musicnn/model.meta": "golden_MTT_musicnn_model.npz",
}
# Outputs that the graph does not define.
OUTPUTS = {"musicnn/MTT_musicnn/model.meta": ("model/Sigmoid",)}
SHAPED = {"android-wakeword-streaming-rnn/graph.pb"}
# Its Fourier transform subtracts nearly equal sums; our own kernels differ as much.
ROUNDED = {"basic-pitch-savedmodel": 3e-3}

# LiteRT cannot decode audio.
REFUSED = {
    "arm-kws/Basic_LSTM_S.pb": "DecodeWav",
    "arm-kws/CNN_S.pb": "DecodeWav",
}


def lite(
    graph: Graph, feeds: Mapping[str, Array], outputs: list[str], *, shaped: bool = False
) -> list[Array]:
    inputs = [CutInput(name, array.shape if shaped else None) for name, array in feeds.items()]
    content = model_bytes(converted(graph, inputs, outputs))
    return answered(content, list(feeds.values()))


@pytest.mark.parametrize("path", sorted(GOLDEN))
def test_real_models(path: str, models: Path) -> None:
    loaded = load_model(models / path, ModelOptions(OUTPUTS.get(path, ())), lambda _: None)
    feeds, expected = read_golden(models / path.split("/")[0] / GOLDEN[path], loaded.tensor)
    outputs = lite(loaded.graph, feeds, list(expected), shaped=path in SHAPED)
    assert_close(outputs, expected.values(), ROUNDED.get(path, TOLERANCE))


@pytest.mark.parametrize("path", sorted(REFUSED))
def test_unsupported_op_is_named(path: str, models: Path) -> None:
    folder = models / path.split("/")[0]
    info = json.loads((folder / "INFO.json").read_text())
    outputs = [output["name"] for output in info["outputs"]]
    inputs = [CutInput(declared["name"]) for declared in info["inputs"]]
    with pytest.raises(UnsupportedError, match=REFUSED[path]):
        converted(read_graph(models / path), inputs, outputs)


@pytest.mark.parametrize("name", ["DS_CNN_S", "CNN_S", "Basic_LSTM_S"])
def test_speech_model_without_its_decoder(name: str, models: Path, tf: ModuleType) -> None:
    graph = read_graph(models / f"arm-kws/{name}.pb")
    decoder = next(node.name for node in graph if node.op == "DecodeWav")
    audio = np.random.default_rng(0).normal(0, 0.1, (16000, 1)).astype(np.float32)
    feeds = {decoder: audio, f"{decoder}:1": np.array(16000, np.int32)}
    expected = TensorFlowEngine(graph, name).run(["labels_softmax"], feeds)
    inputs = [CutInput(decoder, (16000, 1)), CutInput(f"{decoder}:1", ())]
    content = model_bytes(converted(graph, inputs, ["labels_softmax"]))
    assert_close(answered(content, list(feeds.values())), expected, TOLERANCE)


@pytest.mark.parametrize("name", sorted(ALL_NETWORKS))
def test_keras_networks(name: str, tf: ModuleType) -> None:
    keras = network(tf, HOME / "networks", name)
    graph = read_graph(keras.path)
    scale = 255 if name in ("efficientnetb0", "mobilenetv3") else 1
    image = np.random.default_rng(1).random(keras.shape, np.float32) * scale
    softmax = next(n for n in reversed(graph.nodes) if n.op == "Softmax")
    # With random weights, the probabilities are 0 and 1, so compare the logits, too.
    outputs = [keras.output, str(softmax.inputs[0])]
    expected = TensorFlowEngine(graph, name).run(outputs, {keras.input: image})
    assert_close(lite(graph, {keras.input: image}, outputs), expected, TOLERANCE)


def print_in_a_branch(tf: Any, x: Any) -> Any:
    v1 = tf.compat.v1
    return v1.cond(x[0, 0, 0, 0] > 0, lambda: v1.Print(x, [x]) + 1, lambda: x - 1)


X = np.random.default_rng(2).normal(size=(2, 4, 6, 3)).astype(np.float32)
# Calls of TensorFlow functions.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "space_to_batch": lambda tf, x: tf.compat.v1.space_to_batch(x, [[0, 0], [0, 2]], 2),
    "batch_to_space": lambda tf, x: tf.compat.v1.batch_to_space(
        tf.tile(x, [2, 2, 1, 1]), [[0, 1], [0, 0]], 2
    ),
    "paddings of int64": lambda tf, x: tf.raw_ops.SpaceToBatchND(
        input=x, block_shape=[2, 2], paddings=tf.constant([[0, 0], [0, 2]], tf.int64)
    ),
    "blocks of rows": lambda tf, x: tf.space_to_batch(x, [2], [[1, 1]]),
    "a shape of int64": lambda tf, x: tf.reshape(x, [tf.shape(x, out_type=tf.int64)[0], -1]),
    "segments with gaps": lambda tf, x: tf.math.segment_sum(x[0], [0, 0, 1, 3]),
    "segments from 1 on": lambda tf, x: tf.math.segment_sum(x[0], tf.constant([1, 1, 2, 3])),
    "segments of int64": lambda tf, x: tf.math.unsorted_segment_sum(
        x[0], tf.constant([0, 2, 1, 0], tf.int64), tf.constant(3, tf.int64)
    ),
    "Print": lambda tf, x: tf.nn.relu(tf.compat.v1.Print(x, [tf.math.lgamma(x)], "now")),
    "Print in a branch": print_in_a_branch,
    "Print in a function": print_in_a_branch,
    "ensure_shape": lambda tf, x: tf.nn.relu(tf.ensure_shape(x, [2, None, 6, 3])),
}


@pytest.mark.parametrize("open_batch", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tensorflow_functions(name: str, open_batch: bool, tf: ModuleType) -> None:
    functional = name.endswith("function")
    with tf.Graph().as_default() as built, v1_control_flow(tf, functional=functional):
        x = tf.compat.v1.placeholder(tf.float32, [None if open_batch else 2, 4, 6, 3], "x")
        tf.identity(FUNCTIONS[name](tf, x), "out")
    graph = from_tensorflow(built)
    expected = TensorFlowEngine(graph, name).run(["out"], {"x": X})
    assert_close(lite(graph, {"x": X}, ["out"]), expected, TOLERANCE)
