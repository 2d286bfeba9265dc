"""Recurrent Keras networks with seeded weights, as frozen graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes

Layers = Callable[[Any], list[Any]]
"""From ``tf.keras.layers`` to the layers of a network."""

TIMES, FEATURES = 9, 5
SEQUENCE: Final = (TIMES, FEATURES)
OPEN: Final = (None, FEATURES)
IMAGES: Final = (4, 8, 8, 2)


def _stack(layers: Any) -> list[Any]:
    return [layers.RNN(layers.StackedRNNCells([layers.LSTMCell(6), layers.LSTMCell(4)]))]


NETWORKS: Mapping[str, tuple[tuple[int | None, ...], Layers]] = {
    "lstm": (SEQUENCE, lambda k: [k.LSTM(6)]),
    "lstm, sequences": (OPEN, lambda k: [k.LSTM(6, return_sequences=True)]),
    "lstm, no bias": (SEQUENCE, lambda k: [k.LSTM(6, use_bias=False)]),
    "lstm, hard sigmoid": (SEQUENCE, lambda k: [k.LSTM(6, recurrent_activation="hard_sigmoid")]),
    "lstm, relu": (SEQUENCE, lambda k: [k.LSTM(6, activation="relu")]),
    "lstm, backwards": (OPEN, lambda k: [k.LSTM(6, return_sequences=True, go_backwards=True)]),
    "lstm, masked": (SEQUENCE, lambda k: [k.Masking(), k.LSTM(6, return_sequences=True)]),
    "lstm, unrolled": (SEQUENCE, lambda k: [k.LSTM(6, unroll=True)]),
    "lstm, stacked": (OPEN, lambda k: [k.LSTM(6, return_sequences=True), k.LSTM(4)]),
    "lstm, stacked cells": (SEQUENCE, _stack),
    "bidirectional lstm": (OPEN, lambda k: [k.Bidirectional(k.LSTM(6, return_sequences=True))]),
    "bidirectional lstm, sum": (SEQUENCE, lambda k: [k.Bidirectional(k.LSTM(6), merge_mode="sum")]),
    "gru": (OPEN, lambda k: [k.GRU(6)]),
    "gru, reset before": (SEQUENCE, lambda k: [k.GRU(6, reset_after=False)]),
    "bidirectional gru": (SEQUENCE, lambda k: [k.Bidirectional(k.GRU(6))]),
    "rnn": (OPEN, lambda k: [k.SimpleRNN(6, return_sequences=True)]),
    "rnn, relu": (SEQUENCE, lambda k: [k.SimpleRNN(6, activation="relu")]),
    "bidirectional rnn": (SEQUENCE, lambda k: [k.Bidirectional(k.SimpleRNN(6))]),
    "convolutional lstm": (IMAGES, lambda k: [k.ConvLSTM2D(3, 3)]),
    "convolutional lstm, strides": (
        (4, 9, 8, 2),
        lambda k: [k.ConvLSTM2D(3, (3, 2), strides=(2, 1), padding="same")],
    ),
    "convolutional lstm, dilated": (
        IMAGES,
        lambda k: [k.ConvLSTM2D(3, 3, dilation_rate=2, return_sequences=True)],
    ),
    "convolutional lstm, stacked": (
        (None, 8, 8, 2),
        lambda k: [
            k.ConvLSTM2D(3, 3, padding="same", return_sequences=True),
            k.ConvLSTM2D(2, 3, go_backwards=True, recurrent_activation="sigmoid"),
        ],
    ),
    "bidirectional convolutional lstm": (
        IMAGES,
        lambda k: [k.Bidirectional(k.ConvLSTM2D(3, 3, padding="same", return_sequences=True))],
    ),
    "convolutional lstm of lines": ((4, 8, 2), lambda k: [k.ConvLSTM1D(3, 3)]),
    "convolutional lstm of volumes": ((4, 5, 5, 5, 2), lambda k: [k.ConvLSTM3D(3, 3)]),
    "convolution, lstm": (OPEN, lambda k: [k.Conv1D(4, 3), k.MaxPooling1D(2), k.LSTM(6)]),
    "encoder and decoder": (
        SEQUENCE,
        lambda k: [k.LSTM(6), k.RepeatVector(4), k.LSTM(6, return_sequences=True), k.Dense(3)],
    ),
}


def keras_network(tf: Any, name: str, batch: int | None) -> tuple[Any, Graph, str, str]:
    """Return a function that runs a network, its frozen graph, and its input and output."""
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    shape, layers = NETWORKS[name]
    keras = tf.keras
    model = keras.Sequential([keras.Input(shape), *layers(keras.layers)])
    for number, weights in enumerate(model.weights):
        weights.assign(np.random.default_rng(number).normal(0, 0.4, weights.shape))
    spec = tf.TensorSpec([batch, *shape], tf.float32, name="x")
    function = tf.function(lambda x: model(x, training=False)).get_concrete_function(spec)
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    graph = graph_from_bytes(frozen.graph.as_graph_def().SerializeToString(), name)
    return function, graph, frozen.inputs[0].op.name, frozen.outputs[0].name


def sequence(name: str, batch: int) -> np.ndarray:
    """Return an input whose first and last steps are zeros, which masked networks skip."""
    shape = [batch, *(TIMES if size is None else size for size in NETWORKS[name][0])]
    values = np.random.default_rng(batch).normal(size=shape).astype(np.float32)
    values[:, :1] = values[:, -2:] = 0
    return values
