"""Recurrent networks in LiteRT match TensorFlow on streams and on sequences of any length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import Mode, converted, to_calibrate
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import Integers
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from tests.reference.golden import assert_close
from tests.reference.recurrent_networks import FEATURES, NETWORKS, keras_network

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("eager")]

BATCH = 3
LONG = 90
# Networks that need the whole sequence, and the node that says so.
WHOLE: Final = {
    "lstm, backwards": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional lstm": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional lstm, sum": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional gru": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional rnn": "ReverseV2 '.*': it reverses the time steps",
    "convolutional lstm, stacked": "ReverseV2 '.*': it reverses the time steps",
    "bidirectional convolutional lstm": "ReverseV2 '.*': it reverses the time steps",
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
    "LSTMCell, one state": lambda cells: cells.BasicLSTMCell(5, state_is_tuple=False),
    "GRUCell": lambda cells: cells.GRUCell(5),
    "MultiRNNCell": lambda cells: cells.MultiRNNCell([cells.LSTMCell(5), cells.GRUCell(4)]),
    "residual": lambda cells: cells.ResidualWrapper(cells.GRUCell(FEATURES)),
}


def dynamic_rnn(
    tf: Any, name: str, sizes: list[int | None], values: list[Array]
) -> tuple[Graph, list[list[Array]]]:
    """Return a network of a cell of TensorFlow 1, and its results ``y`` and ``last``.

    Args:
        name: name of the cell.
        sizes: sizes of the time steps and the batch, in this order if the second is ``BATCH``.
        values: the inputs.
    """
    rnn = pytest.importorskip("tensorflow.python.ops.rnn")
    cells = pytest.importorskip("tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl")
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    time_major = sizes[1] == BATCH
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
            results = [session.run(["y:0", "last:0"], {x: array}) for array in values]
            frozen = v1.graph_util.convert_variables_to_constants(
                session, graph.as_graph_def(), ["y", "last"]
            )
    return graph_from_bytes(frozen.SerializeToString(), "recurrent"), results


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("time_major", [False, True], ids=["batch first", "time first"])
@pytest.mark.parametrize("length", [LONG, None], ids=["fixed", "open"])
@pytest.mark.parametrize("name", CELLS)
def test_cells_of_tensorflow_1(
    name: str, length: int | None, time_major: bool, tf: ModuleType
) -> None:
    sizes = [length, BATCH] if time_major else [BATCH, length]
    values = normal([LONG if size is None else size for size in sizes])
    graph, (results,) = dynamic_rnn(tf, name, sizes, [values])
    for steps in (1, 5):
        check(graph, {"x": values}, dict(zip(("y", "last"), results, strict=True)), steps)


def normal(sizes: list[int], step: Sequence[int] = (FEATURES,)) -> Array:
    values: Array = np.random.default_rng(2).normal(size=(*sizes, *step)).astype(np.float32)
    return values


# Sizes of the batch and of the time steps, one after the other in the same interpreter.
SIZES = [(1, 7), (3, 12), (1, 50), (2, 1), (3, 12)]
OPEN = [name for name, (shape, _) in NETWORKS.items() if shape[0] is None]


def ranges_of(graph: Graph, fed: str, fetched: list[str], values: list[Array]) -> Integers:
    """Return the settings for int8 with the ranges on all values."""
    model = to_calibrate(graph, [CutInput(fed)], fetched)
    names = [str(Ref(*tensor)) for tensor in model.tensors]
    engine = NumpyEngine(model.graph, "test")
    runs = [engine.run(names, {model.inputs[0]: array}) for array in values]
    columns = zip(names, zip(*runs, strict=True), strict=True)
    ends = {
        name: (min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays))
        for name, arrays in columns
    }
    return Integers(DType.INT8, ends)


def check_lengths(
    graph: Graph,
    fed: str,
    fetched: list[str],
    values: list[Array],
    expected: list[list[Array]],
    mode: Mode,
) -> None:
    """Compare one file at several sizes with TensorFlow."""
    integers = ranges_of(graph, fed, fetched, values) if mode == "int8" else None
    record = converted(graph, [CutInput(fed)], fetched, mode=mode, integers=integers)
    content = bytes(model_bytes(record))
    engine = LiteRtModel(Path("m.tflite"), content)
    # Scales are those of the values of all sizes.
    peak = max(float(np.abs(array).max()) for results in expected for array in results)
    for array, results in zip(values, expected, strict=True):
        found = engine.run(fetched, {fed: array})
        fresh = LiteRtModel(Path("m.tflite"), content).run(fetched, {fed: array})
        assert all(np.array_equal(*pair) for pair in zip(found, fresh, strict=True))
        if mode == "float":
            assert_close(found, results, 1e-5)
        else:
            assert_close(found, results, 0.1, min_peak=peak)


@pytest.mark.parametrize("mode", ["float", "int8"])
@pytest.mark.parametrize("batch", [1, None], ids=["fixed batch", "open batch"])
@pytest.mark.parametrize("name", OPEN)
def test_lengths_of_keras_networks(
    name: str, batch: int | None, mode: Mode, tf: ModuleType
) -> None:
    function, graph, fed, fetched = keras_network(tf, name, batch)
    sizes = [(n, t) for n, t in SIZES if n == (batch or n) and (t > 3 or "convolution" not in name)]
    values = [normal(list(pair), NETWORKS[name][0][1:]) for pair in sizes]
    expected = [[function(tf.constant(array)).numpy()] for array in values]
    check_lengths(graph, fed, [fetched], values, expected, mode)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["float", "int8"])
@pytest.mark.parametrize("name", CELLS)
def test_lengths_of_cells_of_tensorflow_1(name: str, mode: Mode, tf: ModuleType) -> None:
    values = [normal(list(pair)) for pair in SIZES]
    graph, expected = dynamic_rnn(tf, name, [None, None], values)
    check_lengths(graph, "x", ["y", "last"], values, expected, mode)
