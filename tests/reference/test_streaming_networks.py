"""Recurrent networks that run a few time steps at a time match TensorFlow on whole sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from tests.reference.golden import assert_close
from tests.reference.recurrent_networks import FEATURES, NETWORKS, keras_network

pytestmark = pytest.mark.reference

BATCH = 3
LONG = 90
# Networks that need the whole sequence, and the node that says so.
WHOLE: Final = {
    "lstm, backwards": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional lstm": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional lstm, sum": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional gru": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional rnn": "ReverseV2 '.*': it reverses the time steps",
    "lstm, unrolled": "Unpack '.*': it takes single time steps",
    "convolution, lstm": "Conv2D '.*': it convolves over time",
}


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_keras_networks(name: str, tf: ModuleType) -> None:
    function, graph, fed, fetched = keras_network(tf, name, BATCH)
    if name in WHOLE:
        with pytest.raises(UnsupportedError, match=WHOLE[name]):
            converted(graph, [CutInput(fed)], [fetched], streaming=1)
        return
    shape = [BATCH, *(LONG if size is None else size for size in NETWORKS[name][0])]
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    values[:, :1] = values[:, -2:] = 0
    expected = function(tf.constant(values)).numpy()
    for steps in (1, 2) if "convolutional" in name else (1, 3):
        check(graph, {fed: values}, {fetched: expected}, steps)


def check(graph: Graph, feeds: dict[str, Array], expected: dict[str, Array], steps: int) -> None:
    """Compare two sequences in a row, each of which starts from zeros."""
    record = converted(graph, [CutInput(name) for name in feeds], [*expected], streaming=steps)
    engine = LiteRtModel(Path("m.tflite"), bytes(model_bytes(record)))
    for _ in range(2):
        assert_close(engine.run([*expected], feeds), [*expected.values()], 1e-5)


def peepholes(cells: Any) -> Any:
    return cells.LSTMCell(5, use_peepholes=True, num_proj=3, cell_clip=2.0)


CELLS: Mapping[str, Callable[[Any], Any]] = {
    "BasicRNNCell": lambda cells: cells.BasicRNNCell(5),
    "BasicLSTMCell": lambda cells: cells.BasicLSTMCell(5),
    "LSTMCell": lambda cells: cells.LSTMCell(5),
    "LSTMCell, peepholes, projection": peepholes,
    "GRUCell": lambda cells: cells.GRUCell(5),
    "MultiRNNCell": lambda cells: cells.MultiRNNCell([cells.LSTMCell(5), cells.GRUCell(4)]),
    "residual": lambda cells: cells.ResidualWrapper(cells.GRUCell(FEATURES)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("time_major", [False, True], ids=["batch first", "time first"])
@pytest.mark.parametrize("length", [LONG, None], ids=["fixed", "open"])
@pytest.mark.parametrize("name", CELLS)
def test_cells_of_tensorflow_1(
    name: str, length: int | None, time_major: bool, tf: ModuleType
) -> None:
    rnn = pytest.importorskip("tensorflow.python.ops.rnn")
    cells = pytest.importorskip("tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl")
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    sizes = [length, BATCH] if time_major else [BATCH, length]
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        x = v1.placeholder(tf.float32, [*sizes, FEATURES], name="x")
        with v1.variable_scope("net", use_resource=False):
            outputs, _ = rnn.dynamic_rnn(
                CELLS[name](cells), x, dtype=tf.float32, time_major=time_major
            )
            width = int(outputs.shape[-1])
            kernel = v1.get_variable("kernel", [width, 4])
        rows = tf.matmul(tf.reshape(outputs, [-1, width]), kernel)
        tf.reshape(tf.nn.softmax(rows), [*tf.unstack(tf.shape(outputs))[:2], 4], name="y")
        tf.identity(outputs[-1] if time_major else outputs[:, -1], name="last")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            shape = [LONG if size is None else size for size in sizes]
            values = np.random.default_rng(2).normal(size=(*shape, FEATURES)).astype(np.float32)
            results = session.run(["y:0", "last:0"], {x: values})
            frozen = v1.graph_util.convert_variables_to_constants(
                session, graph.as_graph_def(), ["y", "last"]
            )
    whole = graph_from_bytes(frozen.SerializeToString(), "recurrent")
    for steps in (1, 5):
        check(whole, {"x": values}, dict(zip(("y", "last"), results, strict=True)), steps)
