"""The networks of ``recurrent.py``: Keras layers, cells of TensorFlow 1, and real networks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from quantization_networks import NETWORKS

import mobileprep
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes

Array = np.ndarray[Any, Any]
UNITS, STEPS, FEATURES = 64, 49, 40
VOCABULARY, BEAMS, LONGEST, END = 30, 4, 12, 1


@dataclass(frozen=True)
class Case:
    """A network, an input, and TensorFlow's outputs.

    Args:
        name: name in the table.
        graph: the frozen graph.
        feeds: arrays by input.
        outputs: names of the outputs.
        expected: TensorFlow's outputs.
        convert: converts with TensorFlow's converter.
    """

    name: str
    graph: Graph
    feeds: Mapping[str, Array]
    outputs: Sequence[str]
    expected: Sequence[Array]
    convert: Callable[[], bytes]


def _attention(tf: Any, x: Any) -> Any:  # noqa: ANN401 - TensorFlow has no types
    states = tf.keras.layers.LSTM(UNITS, return_sequences=True)(x)
    weighed = tf.keras.layers.Attention()([states, states])
    return tf.keras.layers.GlobalAveragePooling1D()(weighed)


def keras_layers(tf: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """Return lists of layers, or functions from an input to an output."""
    k, n = tf.keras.layers, UNITS
    return {
        "LSTM": [k.LSTM(n)],
        "LSTM, sequences": [k.LSTM(n, return_sequences=True)],
        "LSTM, two layers": [k.LSTM(n, return_sequences=True), k.LSTM(n)],
        "LSTM, backwards": [k.LSTM(n, go_backwards=True)],
        "bidirectional LSTM": [k.Bidirectional(k.LSTM(n, return_sequences=True))],
        "LSTM, relu": [k.LSTM(n, activation="relu")],
        "LSTM, hard sigmoid": [k.LSTM(n, recurrent_activation="hard_sigmoid")],
        "LSTM, masked": [k.Masking(), k.LSTM(n)],
        "LSTM, unrolled": [k.LSTM(n, unroll=True)],
        "GRU": [k.GRU(n)],
        "GRU, reset before": [k.GRU(n, reset_after=False)],
        "bidirectional GRU": [k.Bidirectional(k.GRU(n))],
        "SimpleRNN": [k.SimpleRNN(n)],
        "convolution, LSTM": [k.Conv1D(n, 3, activation="relu"), k.MaxPooling1D(2), k.LSTM(n)],
        "encoder and decoder": [
            k.LSTM(n),
            k.RepeatVector(12),
            k.LSTM(n, return_sequences=True),
            k.Dense(VOCABULARY, activation="softmax"),
        ],
        "LSTM, attention": lambda x: _attention(tf, x),
        "ConvLSTM2D": [k.Reshape((7, 7, 10, 4)), k.ConvLSTM2D(8, 3, padding="same")],
    }


def keras_case(
    tf: Any,  # noqa: ANN401
    name: str,
    layers: Any,  # noqa: ANN401
    shape: tuple[int, int] = (STEPS, FEATURES),
    batch: int = 1,
) -> Case:
    """Return a Keras network with random weights."""
    source = tf.keras.Input(shape)
    result = source
    for layer in layers if isinstance(layers, list) else [layers]:
        result = layer(result)
    model = tf.keras.Model(source, result)
    for number, weights in enumerate(model.weights):
        weights.assign(np.random.default_rng(number).normal(0, 0.2, weights.shape))
    x = np.random.default_rng(0).normal(size=(batch, *shape)).astype(np.float32)
    if "masked" in name:
        x[:, -5:] = 0
    return model_case(tf, name, model, x)


def model_case(tf: Any, name: str, model: Any, x: Array) -> Case:  # noqa: ANN401
    """Return a Keras model, with its weights as constants."""
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    spec = tf.TensorSpec(x.shape, tf.float32, name="x")
    function = tf.function(lambda x: model(x, training=False)).get_concrete_function(spec)
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    return Case(
        name,
        graph_from_bytes(frozen.graph.as_graph_def().SerializeToString(), name),
        {"x": x},
        [frozen.outputs[0].op.name],
        [model(x, training=False).numpy()],
        tf.lite.TFLiteConverter.from_concrete_functions([frozen]).convert,
    )


class Cells:
    """Networks of TensorFlow 1, as functions from ``x`` of shape [1, steps, features].

    Each returns a list of outputs.
    """

    def __init__(self, tf: Any) -> None:  # noqa: ANN401
        from tensorflow.python.keras.layers.legacy_rnn import rnn_cell_impl as cells
        from tensorflow.python.ops import rnn

        self.tf, self.v1, self.cells, self.rnn = tf, tf.compat.v1, cells, rnn

    def networks(self) -> Mapping[str, Callable[[Any], list[Any]]]:
        """Return the networks by name."""
        c, n = self.cells, UNITS
        joined = c.BasicLSTMCell
        return {
            "BasicRNNCell": lambda x: self.over(c.BasicRNNCell(n), x),
            "BasicLSTMCell": lambda x: self.over(joined(n), x),
            "BasicLSTMCell, one state tensor": lambda x: self.over(
                joined(n, state_is_tuple=False), x
            ),
            "BasicLSTMCell, lengths": lambda x: self.over(joined(n), x, sequence_length=[STEPS]),
            "LSTMCell, peepholes": lambda x: self.over(c.LSTMCell(n, use_peepholes=True), x),
            "LSTMCell, projection, clipping": lambda x: self.over(
                c.LSTMCell(n, num_proj=n // 2, cell_clip=2.0), x
            ),
            "two LSTM cells in one loop": lambda x: self.over(
                c.MultiRNNCell([joined(n), joined(n)]), x
            ),
            "bidirectional_dynamic_rnn": self.both_ways,
            "static_rnn": self.static,
            "LSTMBlockCell": lambda x: self.block(x, self.lstm_block),
            "BlockLSTM": self.block_lstm,
            "GRUCell": lambda x: self.over(c.GRUCell(n), x),
            "GRUBlockCell": lambda x: self.block(x, self.gru_block),
            "attention, greedy decoder": self.greedy,
            "attention, beam search": self.beam_search,
        }

    def weights(self, name: str, *shape: int) -> Any:  # noqa: ANN401
        """Return a variable."""
        start = self.v1.random_normal_initializer(stddev=0.3)
        return self.v1.get_variable(name, shape, initializer=start)

    def over(self, cell: Any, x: Any, **options: Any) -> list[Any]:  # noqa: ANN401
        """Return the outputs of a cell."""
        return [self.rnn.dynamic_rnn(cell, x, dtype=self.tf.float32, **options)[0]]

    def both_ways(self, x: Any) -> list[Any]:  # noqa: ANN401
        """Return the outputs of an LSTM in both directions."""
        cells = [self.cells.BasicLSTMCell(UNITS) for _ in range(2)]
        outputs, _ = self.rnn.bidirectional_dynamic_rnn(*cells, x, dtype=self.tf.float32)
        return [self.tf.concat(outputs, 2)]

    def static(self, x: Any) -> list[Any]:  # noqa: ANN401
        """Return the last output of an unrolled LSTM."""
        rows = self.tf.unstack(x, axis=1)
        cell = self.cells.BasicLSTMCell(UNITS)
        return [self.rnn.static_rnn(cell, rows, dtype=self.tf.float32)[0][-1]]

    def block(self, x: Any, step: Callable[..., list[Any]]) -> list[Any]:  # noqa: ANN401
        """Return the state after a loop over a block cell."""
        tf, rows = self.tf, self.tf.transpose(x, [1, 0, 2])
        zeros = [tf.zeros([1, UNITS])] * 2
        loop = self.v1.while_loop(
            lambda t, *_: t < STEPS,
            lambda t, *state: [t + 1, *step(rows[t], *state)],
            [tf.constant(0), *zeros],
        )
        return [loop[-1]]

    def lstm_block(self, row: Any, state: Any, hidden: Any) -> list[Any]:  # noqa: ANN401
        """Return the next state of LSTMBlockCell."""
        nothing = self.tf.zeros([UNITS])
        done = self.tf.raw_ops.LSTMBlockCell(
            x=row,
            cs_prev=state,
            h_prev=hidden,
            w=self.weights("w", FEATURES + UNITS, 4 * UNITS),
            wci=nothing,
            wcf=nothing,
            wco=nothing,
            b=self.weights("b", 4 * UNITS),
            cell_clip=-1.0,
        )
        return [done.cs, done.h]

    def gru_block(self, row: Any, _: Any, hidden: Any) -> list[Any]:  # noqa: ANN401
        """Return the next state of GRUBlockCell, twice."""
        done = self.tf.raw_ops.GRUBlockCell(
            x=row,
            h_prev=hidden,
            w_ru=self.weights("w_ru", FEATURES + UNITS, 2 * UNITS),
            w_c=self.weights("w_c", FEATURES + UNITS, UNITS),
            b_ru=self.weights("b_ru", 2 * UNITS),
            b_c=self.weights("b_c", UNITS),
        )
        return [done.h, done.h]

    def block_lstm(self, x: Any) -> list[Any]:  # noqa: ANN401
        """Return the outputs of BlockLSTM."""
        zeros, nothing = self.tf.zeros([1, UNITS]), self.tf.zeros([UNITS])
        done = self.tf.raw_ops.BlockLSTM(
            seq_len_max=self.tf.constant(STEPS, self.tf.int64),
            x=self.tf.transpose(x, [1, 0, 2]),
            cs_prev=zeros,
            h_prev=zeros,
            w=self.weights("w", FEATURES + UNITS, 4 * UNITS),
            wci=nothing,
            wcf=nothing,
            wco=nothing,
            b=self.weights("b", 4 * UNITS),
            cell_clip=-1.0,
        )
        return [done.h]

    def attended(self, keys: Any, memory: Any, query: Any) -> Any:  # noqa: ANN401
        """Return the context of Bahdanau's attention."""
        tf = self.tf
        wanted = tf.matmul(query, self.weights("query", UNITS, UNITS))[:, None]
        scores = tf.reduce_sum(self.weights("v", UNITS) * tf.tanh(keys + wanted), [2])
        return tf.reduce_sum(tf.nn.softmax(scores)[:, :, None] * memory, [1])

    def decoder(self, x: Any, rows: int) -> tuple[Callable[..., tuple[Any, Any]], Any]:  # noqa: ANN401
        """Return a step from tokens and state to logits and state, and the first state."""
        tf, v1 = self.tf, self.v1
        with v1.variable_scope("encoder"):
            cell = self.cells.BasicLSTMCell(UNITS)
            memory, state = self.rnn.dynamic_rnn(cell, x, dtype=tf.float32)
        memory, *state = (tf.repeat(value, rows, 0) for value in (memory, *state))
        keys = tf.tensordot(memory, self.weights("keys", UNITS, UNITS), 1)
        words = self.weights("words", VOCABULARY, UNITS)
        cell = self.cells.BasicLSTMCell(UNITS, reuse=v1.AUTO_REUSE)

        def step(tokens: Any, state: Any) -> tuple[Any, Any]:  # noqa: ANN401
            with v1.variable_scope("step", reuse=v1.AUTO_REUSE):
                context = self.attended(keys, memory, state[1])
                row = tf.concat([tf.gather(words, tokens), context], 1)
                output, after = cell(row, self.cells.LSTMStateTuple(*state))
                logits = tf.matmul(output, self.weights("logits", UNITS, VOCABULARY))
            return logits, list(after)

        return step, state

    def greedy(self, x: Any) -> list[Any]:  # noqa: ANN401
        """Return the tokens of a greedy decoder, and their logits."""
        tf, v1 = self.tf, self.v1
        step, state = self.decoder(x, 1)
        arrays = [
            v1.TensorArray(kind, 0, dynamic_size=True, element_shape=shape)
            for kind, shape in ((tf.int32, [1]), (tf.float32, [1, VOCABULARY]))
        ]

        def body(t: Any, tokens: Any, ended: Any, first: Any, second: Any, *state: Any) -> Any:  # noqa: ANN401
            logits, after = step(tokens, state)
            best = tf.argmax(logits, 1, tf.int32)
            best = tf.where(ended, tf.fill([1], END), best)
            ended = tf.logical_or(ended, tf.equal(best, END))
            return [t + 1, best, ended, first.write(t, best), second.write(t, logits), *after]

        start = [tf.constant(0), tf.zeros([1], tf.int32), tf.zeros([1], tf.bool), *arrays, *state]
        done = v1.while_loop(
            lambda t, tokens, ended, *_: (t < LONGEST) & tf.logical_not(tf.reduce_all(ended)),
            body,
            start,
        )
        return [done[3].stack(), done[4].stack()]

    def beam_search(self, x: Any) -> list[Any]:  # noqa: ANN401
        """Return the tokens of the beams, and their log probabilities."""
        tf, v1 = self.tf, self.v1
        step, state = self.decoder(x, BEAMS)
        least = -1e9
        ends = tf.one_hot([END] * BEAMS, VOCABULARY, 0.0, least)

        def body(t: Any, tokens: Any, total: Any, ended: Any, path: Any, *state: Any) -> Any:  # noqa: ANN401
            logits, after = step(tokens, state)
            scores = tf.where(ended[:, None] & tf.fill([1, VOCABULARY], True), ends,
                              tf.nn.log_softmax(logits))  # fmt: skip
            best, places = tf.nn.top_k(tf.reshape(total[:, None] + scores, [-1]), BEAMS)
            parents, tokens = places // VOCABULARY, places % VOCABULARY
            ended = tf.logical_or(tf.gather(ended, parents), tf.equal(tokens, END))
            path = tf.concat([tf.gather(path, parents), tokens[:, None]], 1)
            return [t + 1, tokens, best, ended, path, *(tf.gather(s, parents) for s in after)]

        start = [
            tf.constant(0),
            tf.zeros([BEAMS], tf.int32),
            tf.constant([0.0] + [least] * (BEAMS - 1)),
            tf.zeros([BEAMS], tf.bool),
            tf.zeros([BEAMS, 0], tf.int32),
            *state,
        ]
        shapes = [value.shape for value in start]
        shapes[4] = tf.TensorShape([BEAMS, None])
        done = v1.while_loop(
            lambda t, tokens, total, ended, *_: (
                (t < LONGEST) & tf.logical_not(tf.reduce_all(ended))
            ),
            body,
            start,
            shapes,
        )
        return [done[4], done[2]]


def cell_cases(tf: Any) -> Iterator[Case]:  # noqa: ANN401
    """Yield the networks of TensorFlow 1, with loops of control flow v1."""
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    for name, network in Cells(tf).networks().items():
        with tf.Graph().as_default() as graph, v1.Session() as session:
            v1.set_random_seed(1)
            x = v1.placeholder(tf.float32, [1, STEPS, FEATURES], "x")
            with v1.variable_scope("net", use_resource=False, reuse=v1.AUTO_REUSE):
                ends = network(x)
            names = [tf.identity(end, f"y{i}").op.name for i, end in enumerate(ends)]
            session.run(v1.global_variables_initializer())
            frozen = v1.graph_util.convert_variables_to_constants(
                session, graph.as_graph_def(), names
            )
        x_values = np.random.default_rng(0).normal(size=(1, STEPS, FEATURES)).astype(np.float32)
        yield frozen_case(tf, name, frozen, {"x": x_values}, names)


def frozen_case(
    tf: Any,  # noqa: ANN401
    name: str,
    graph_def: Any,  # noqa: ANN401
    feeds: Mapping[str, Array],
    outputs: Sequence[str],
) -> Case:
    """Return a frozen graph, run by TensorFlow."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        v1.import_graph_def(graph_def, name="")
        fetched = [f"{output}:0" for output in outputs]
        expected = session.run(fetched, {f"{fed}:0": value for fed, value in feeds.items()})

    def convert() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.pb"
            path.write_bytes(graph_def.SerializeToString())
            sizes = {fed: list(value.shape) for fed, value in feeds.items()}
            made: bytes = v1.lite.TFLiteConverter.from_frozen_graph(
                str(path), list(feeds), list(outputs), sizes
            ).convert()
            return made

    graph = graph_from_bytes(graph_def.SerializeToString(), name)
    return Case(name, graph, feeds, outputs, expected, convert)


REAL = (
    "arm-kws Basic_LSTM_S",
    "MNIST, LSTM",
    "MNIST, GRU",
    "wake word, streaming GRU",
)


def real_case(tf: Any, name: str, models: Path) -> Case:  # noqa: ANN401
    """Return a network of ``quantization.py``."""
    (network,) = (network for network in NETWORKS if network.name == name)
    graph = mobileprep.load_graph(models / network.file)
    steps = " ".join(
        f'strip_unused_nodes(name="{fed}", type_for_name=float, '
        f'shape_for_name="{",".join(map(str, shape))}")'
        for fed, shape in network.shapes.items()
        if shape
    )
    inputs = list(network.shapes)
    cut = mobileprep.transform(graph, f"{steps} remove_dropout", inputs, list(network.outputs))
    drawn = network.draw(models, 1, 0)
    feeds = {
        fed: np.asarray(drawn[fed], np.float32).reshape(shape)
        for fed, shape in network.shapes.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.pb"
        mobileprep.save_graph(cut.graph, path)
        graph_def = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    return frozen_case(tf, name, graph_def, feeds, network.outputs)
