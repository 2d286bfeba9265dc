"""Fused recurrent cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import STEP, spend
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import scalar
from mobileprep.ops.kernel import Sizes, flop_rule, kernel, per_input
from mobileprep.ops.math.products import product
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    dim,
    merge,
    shape_fn,
    with_rank,
)


class _Lstm(Struct, frozen=True):
    """The weights and options of an LSTM cell.

    Args:
        w, b: of the four gates together.
        peepholes: from the cell state to the input, forget, and output gates; None without.
        forget_bias: added to the forget gate.
        clip: limit of the cell state's magnitude; 0 or less for no limit.
        order: the positions of input gate, cell input, forget gate, and output gate in ``w``.
    """

    w: Array
    b: Array
    peepholes: tuple[Array, Array, Array] | None
    forget_bias: float
    clip: float
    order: tuple[int, int, int, int]

    def step(self, x: Array, state: Array, hidden: Array) -> tuple[Array, ...]:
        """Compute (i, cs, f, o, ci, co, h) of one step, named as in the ops."""
        kind = x.dtype.type
        gates = product(np.concatenate([x, hidden], axis=1), self.w) + self.b
        parts = np.split(gates, 4, axis=1)
        i, ci, f, o = (parts[place] for place in self.order)
        if self.peepholes is not None:
            i, f = i + state * self.peepholes[0], f + state * self.peepholes[1]
        i, f = _sigmoid(i), _sigmoid(f + kind(self.forget_bias))
        ci = np.tanh(ci)
        cs = ci * i + state * f
        if self.clip > 0:
            cs = np.clip(cs, kind(-self.clip), kind(self.clip))
        if self.peepholes is not None:
            o = o + cs * self.peepholes[2]
        o, co = _sigmoid(o), np.tanh(cs)
        return i, cs, f, o, ci, co, o * co


def _sigmoid(x: Array) -> Array:
    one = x.dtype.type(1)
    return np.asarray(one / (one + np.exp(-x)))


def _lstm(node: Node, w: Array, b: Array, peepholes: tuple[Array, Array, Array]) -> _Lstm:
    newer = node.op == "BlockLSTMV2"
    return _Lstm(
        w,
        b,
        peepholes if node.attr_bool("use_peephole", False) else None,
        0.0 if newer else node.attr_float("forget_bias", 1.0),
        node.attr_float("cell_clip", 0.0 if newer else 3.0),
        # The newer op stores the gates in the order of cuDNN: input, forget, cell, output.
        (0, 2, 1, 3) if newer else (0, 1, 2, 3),
    )


@kernel("LSTMBlockCell")
def lstm_block_cell(
    node: Node,
    x: Array,
    state: Array,
    hidden: Array,
    w: Array,
    wci: Array,
    wcf: Array,
    wco: Array,
    b: Array,
) -> tuple[Array, ...]:
    """Compute one step of an LSTM for a batch."""
    return _lstm(node, w, b, (wci, wcf, wco)).step(x, state, hidden)


@shape_fn("GRUBlockCell", "LSTMBlockCell")
def cell_shape(args: ShapeArgs) -> OutputShapes:
    """Return the state's shape for each output."""
    batch = with_rank(args.shapes[0], 2)[0]
    cells = with_rank(args.shapes[1], 2)[1]
    return [(batch, cells)] * args.count()


@flop_rule("LSTMBlockCell")
def lstm_cell_flops(sizes: Sizes) -> float:
    """Count one step of ``BlockLSTM``."""
    return _lstm_step(sizes.input(0)[0], sizes.input(3))


def _lstm_step(batch: int, weights: tuple[int, ...]) -> float:
    wide = weights[1]
    # Three sigmoids, two tanh, biases, and the sums and products of the state.
    return batch * (2 * weights[0] * wide + wide + 19 * wide / 4)


@kernel("BlockLSTM", "BlockLSTMV2")
def block_lstm(
    node: Node,
    length: Array,
    x: Array,
    state: Array,
    hidden: Array,
    w: Array,
    wci: Array,
    wcf: Array,
    wco: Array,
    b: Array,
) -> tuple[Array, ...]:
    """Run an LSTM over [time, batch, inputs]; steps beyond the longest sequence are zeros."""
    cell = _lstm(node, w, b, (wci, wcf, wco))
    out = np.zeros((7, len(x), *state.shape), dtype=x.dtype)
    for t in range(min(scalar(length), len(x))):
        results = cell.step(x[t], state, hidden)
        for place, value in enumerate(results):
            out[place, t] = value
        state, hidden = results[1], results[6]
    return tuple(out)


@shape_fn("BlockLSTM", "BlockLSTMV2")
def block_lstm_shape(args: ShapeArgs) -> OutputShapes:
    """Return [time, batch, cells] for each of the seven outputs; four gates share the bias."""
    time, batch = with_rank(args.shapes[1], 3)[:2]
    gates = dim(args.shapes[-1], 0)
    return [(time, batch, UNKNOWN if gates < 0 else gates // 4)] * 7


@flop_rule("BlockLSTM", "BlockLSTMV2")
def lstm_flops(sizes: Sizes) -> float:
    """Count the product with the weights of four gates and the cell, for each step."""
    times, batch = sizes.input(1)[:2]
    return times * _lstm_step(batch, sizes.input(4))


@kernel("GRUBlockCell")
def gru_block_cell(
    node: Node, x: Array, hidden: Array, w_ru: Array, w_c: Array, b_ru: Array, b_c: Array
) -> tuple[Array, ...]:
    """Compute one step of a gated recurrent unit for a batch: (r, u, c, h)."""
    gates = _sigmoid(product(np.concatenate([x, hidden], axis=1), w_ru) + b_ru)
    r, u = np.split(gates, 2, axis=1)
    c = np.tanh(product(np.concatenate([x, r * hidden], axis=1), w_c) + b_c)
    one = x.dtype.type(1)
    return r, u, c, np.asarray(u * hidden + (one - u) * c)


@flop_rule("GRUBlockCell")
def gru_cell_flops(sizes: Sizes) -> float:
    """Count the products with the weights of two gates and the candidate, and the cell."""
    batch, cells = sizes.input(0)[0], sizes.input(3)[1]
    return batch * (2 * sizes.input(3)[0] * 3 * cells + 3 * cells + 14 * cells)


_ACTIVATIONS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
    "Relu6": lambda x: np.clip(x, 0, 6),
}


def _clipped(x: Array, limit: float) -> Array:
    return np.clip(x, x.dtype.type(-limit), x.dtype.type(limit)) if limit > 0 else x


@kernel("UnidirectionalSequenceLSTM")
def sequence_lstm(
    node: Node,
    x: Array,
    hidden: Array,
    state: Array,
    kernel: Array,
    recurrent: Array,
    bias: Array,
    peepholes: Array,
    projection: Array,
    projection_bias: Array,
) -> tuple[Array, ...]:
    """Run an LSTM over [time, batch, features].

    Returns:
        The outputs ``[time, batch, outputs]``, the last cell state ``[batch, units]``, the last
        output, all cell states, and all outputs before the projection.
    """
    activate = _ACTIVATIONS[node.attr_str("activation")]
    cell_clip = node.attr_float("cell_clip", 0.0)
    projection_clip = node.attr_float("projection_clip", 0.0)
    rows = np.empty((len(x), *hidden.shape), x.dtype)
    states, inner = (np.empty((len(x), *state.shape), x.dtype) for _ in range(2))
    for t in range(len(x)):
        gates = product(x[t], kernel) + product(hidden, recurrent) + bias
        i, f, g, o = np.split(gates, 4, axis=1)
        if peepholes.size:
            i, f = i + state * peepholes[0], f + state * peepholes[1]
        state = _sigmoid(f) * state + _sigmoid(i) * activate(g)
        state = _clipped(state, cell_clip)
        if peepholes.size:
            o = o + state * peepholes[2]
        states[t], inner[t] = state, _sigmoid(o) * activate(state)
        hidden = inner[t]
        if projection.size:
            hidden = _clipped(product(hidden, projection) + projection_bias, projection_clip)
        rows[t] = hidden
    return rows, state, hidden, states, inner


@shape_fn("UnidirectionalSequenceLSTM")
def sequence_lstm_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of rows and states."""
    time, batch = with_rank(args.shapes[0], 3)[:2]
    outputs, units = (with_rank(args.shapes[i], 2)[1] for i in (1, 2))
    rows, states = (time, batch, outputs), (time, batch, units)
    return [rows, (batch, units), (batch, outputs), states, states]


@flop_rule("UnidirectionalSequenceLSTM")
def sequence_lstm_flops(sizes: Sizes) -> float:
    """Count the products of the gates and of the projection, and the cell, for each step."""
    times, batch = sizes.input(0)[:2]
    kernel, recurrent = sizes.input(3), sizes.input(4)
    step = _lstm_step(batch, (kernel[0] + recurrent[0], kernel[1]))
    projection = sizes.input(7)
    return times * (
        step + (2 * batch * projection[0] * projection[1] if len(projection) > 1 else 0)
    )


@kernel("UnidirectionalSequenceRNN")
def sequence_rnn(
    node: Node, x: Array, hidden: Array, kernel: Array, recurrent: Array, bias: Array
) -> tuple[Array, ...]:
    """Run an RNN over [time, batch, features].

    Returns:
        The outputs ``[time, batch, units]``, and the last output twice, like an LSTM.
    """
    activate = _ACTIVATIONS[node.attr_str("activation")]
    rows = np.empty((len(x), *hidden.shape), x.dtype)
    for t in range(len(x)):
        hidden = activate(product(x[t], kernel) + product(hidden, recurrent) + bias)
        rows[t] = hidden
    return rows, hidden, hidden


@shape_fn("UnidirectionalSequenceRNN")
def sequence_rnn_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of rows and of the last one."""
    time, batch = with_rank(args.shapes[0], 3)[:2]
    units = with_rank(args.shapes[1], 2)[1]
    return [(time, batch, units), (batch, units), (batch, units)]


@flop_rule("UnidirectionalSequenceRNN")
def sequence_rnn_flops(sizes: Sizes) -> float:
    """Count the products, the bias, and the activation, for each step."""
    times, batch = sizes.input(0)[:2]
    kernel, recurrent = sizes.input(2), sizes.input(3)
    return times * batch * (2 * (kernel[0] + recurrent[0]) + 3) * kernel[1]


GATHER_TREES = ("Addons>GatherTree", "GatherTree")
"""The op of ``tf.contrib.seq2seq`` and that of TensorFlow Addons, which are equal."""


@kernel(*GATHER_TREES, flops=per_input(1))
def gather_tree(_node: Node, ids: Array, parents: Array, lengths: Array, end: Array) -> Array:
    """Follow the parents of each beam from its last step to its first.

    Args:
        ids: the token that each beam added in each step, ``[steps, batch, beams]``.
        parents: the beam of the step before that each beam continues, of the same shape.
        lengths: number of steps of each batch entry.
        end: token for the steps after the first ``end`` and after the length.

    Source: ``beam_search_ops.cc`` of ``tf.contrib.seq2seq``.
    """
    steps, batch, beams = ids.shape
    if parents.shape != ids.shape or lengths.shape != (batch,) or end.shape != ():
        sizes = f"{list(parents.shape)} and lengths of {list(lengths.shape)}"
        message = f"parents of {sizes} for ids of {list(ids.shape)}"
        raise ValueError(message)
    spend(steps * STEP)
    entry = np.arange(batch)[:, np.newaxis]
    place = np.broadcast_to(np.arange(beams), (batch, beams))
    result = np.full_like(ids, end)
    for step in range(steps - 1, -1, -1):
        is_read = (lengths > step)[:, np.newaxis]
        result[step] = np.where(is_read, ids[step, entry, place], end)
        place = np.where(is_read, parents[step, entry, place], place)
        if step and ((place < 0) | (place >= beams)).any():
            message = f"a parent in step {step} is not one of {beams} beams"
            raise ValueError(message)
    is_end = result == end
    result[np.cumsum(is_end, axis=0) > is_end] = end
    return result


@shape_fn(*GATHER_TREES)
def gather_tree_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the tokens."""
    return [merge(with_rank(args.shapes[0], 3), with_rank(args.shapes[1], 3))]
