"""Recognize loops over LSTM and RNN cells, and replace each with one node.

A cell is recognized by its data flow: its gates must be sums of products of one input and the
state with constant matrices (`affine.py`), and its state must follow the equations of LiteRT's
operators. Names and the order of columns do not matter.

Source: Hochreiter and Schmidhuber, Long Short-Term Memory (1997), with the peepholes of Gers et al.
(2002) and the projection of Sak et al. (2014), as in LiteRT's ``unidirectional_sequence_lstm.cc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.graph.bypass import constant_behind, source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import SUMS
from mobileprep.graph.refs import Edge, Ref, edge
from mobileprep.graph.tensor import Array
from mobileprep.litert.affine import Affine, AffineForms
from mobileprep.ops.shape_inference import Shapes

LSTM: Final = "UnidirectionalSequenceLSTM"
RNN: Final = "UnidirectionalSequenceRNN"
ACTIVATIONS: Final = frozenset({"Tanh", "Relu", "Relu6"})
"""Ops of cell inputs and outputs."""
GATES: Final = 4


class Cell(Struct, frozen=True, eq=False):
    """The weights of a recognized cell.

    Args:
        x: the input of a step, ``[batch, features]``.
        kernel: ``[features, gates * units]``, gates in the order input, forget, cell, output; an
            RNN has one.
        recurrent: ``[outputs, gates * units]``.
        bias: ``[gates * units]``.
        activation: op of the cell input and the cell output, or of an RNN's output.
        peepholes: of the input, forget, and output gates, ``[3, units]``; empty without.
        projection: ``[units, outputs]``; empty without.
        projection_bias: ``[outputs]``; empty without.
        cell_clip: limit of the cell state's magnitude; 0 for none.
        projection_clip: limit of the output's magnitude; 0 for none.
    """

    x: Ref
    kernel: Array
    recurrent: Array
    bias: Array
    activation: str
    peepholes: Array
    projection: Array
    projection_bias: Array
    cell_clip: float = 0.0
    projection_clip: float = 0.0


_NONE: Final = np.zeros(0, np.float32)


class CellMatcher:
    """Recognize the cells of a graph.

    Args:
        graph: the nodes of one step.
        shapes: the shapes of their outputs.
    """

    def __init__(self, graph: Graph, shapes: Mapping[str, Shapes]) -> None:
        self._graph = graph
        self._shapes = shapes

    def lstm(self, state: Ref, new_state: Ref, hidden: Ref, new_hidden: Ref) -> Cell | None:
        """Return the LSTM cell that turns one pair of cell state and output into another."""
        cell_clip, total = self._unclipped(new_state)
        node = self._node(total, *SUMS)
        if node is None:
            return None
        products = [self._node(ref, "Mul") for ref in node.data_inputs]
        for first, second in (products, products[::-1]):
            if first is None or second is None:
                return None
            forget = self._other(first, state)
            if forget is None:
                continue
            for gate, value in (second.data_inputs, second.data_inputs[::-1]):
                activated = self._node(value, *ACTIVATIONS)
                if activated is None:
                    continue
                cell = self._assembled(
                    state, new_state, hidden, new_hidden, [gate, forget], activated, cell_clip
                )
                if cell is not None:
                    return cell
        return None

    def _assembled(
        self,
        state: Ref,
        new_state: Ref,
        hidden: Ref,
        new_hidden: Ref,
        gates: Sequence[Ref],
        activated: Node,
        cell_clip: float,
    ) -> Cell | None:
        # The output gate may read the new state.
        forms_of = AffineForms(self._graph, self._shapes, [new_state]).of
        projection_clip, result = self._unclipped(new_hidden)
        output = self._output(result, new_state, activated.op)
        projection = projection_bias = _NONE
        if output is None:
            form = forms_of(result)
            source = None if form is None else _only(form)
            if form is None or source is None:
                return None
            output = self._output(Ref(*source), new_state, activated.op)
            matrix = form.matrix(source)
            if output is None or matrix is None:
                return None
            projection, projection_bias = matrix, form.bias
        elif projection_clip:
            return None
        sums = [*map(self._gate, (*gates, output))]
        sums.insert(2, (activated.data_inputs[0], 1))
        forms = [(forms_of(ref), sign) for ref, sign in (s for s in sums if s is not None)]
        known = [
            form if sign > 0 else form.scaled(np.full(form.width, -1, np.float32))
            for form, sign in forms
            if form is not None
        ]
        if len(known) != GATES or len({form.width for form in known}) != 1:
            return None
        # The output gate sees the new cell state, the others the old one.
        seen = [state, state, state, new_state]
        return self._weighed(
            known,
            [hidden] * GATES,
            seen,
            activation=activated.op,
            projection=projection,
            projection_bias=projection_bias,
            cell_clip=cell_clip,
            projection_clip=projection_clip,
        )

    def rnn(self, hidden: Ref, new_hidden: Ref) -> Cell | None:
        """Return the cell that computes an activation of a sum."""
        node = self._node(new_hidden, *ACTIVATIONS)
        forms = AffineForms(self._graph, self._shapes)
        form = None if node is None else forms.of(node.data_inputs[0])
        if node is None or form is None:
            return None
        return self._weighed([form], [hidden], [None], activation=node.op)

    def _weighed(
        self,
        forms: Sequence[Affine],
        hidden: Sequence[Ref],
        states: Sequence[Ref | None],
        *,
        activation: str,
        projection: Array = _NONE,
        projection_bias: Array = _NONE,
        cell_clip: float = 0.0,
        projection_clip: float = 0.0,
    ) -> Cell | None:
        """Return a cell whose gates have these forms, or None if they contain other tensors."""
        own = [
            {edge(source_behind(self._graph, r)) for r in (h, c) if r is not None}
            for h, c in zip(hidden, states, strict=True)
        ]
        inputs = {key for form, known in zip(forms, own, strict=True) for key in form.parts} - set(
            set().union(*own)
        )
        if len(inputs) != 1:
            return None
        (x,) = inputs
        kernels, recurrents, peepholes = [], [], []
        for form, h, c in zip(forms, hidden, states, strict=True):
            h_key = edge(source_behind(self._graph, h))
            c_key = None if c is None else edge(source_behind(self._graph, c))
            if set(form.parts) - {x, h_key, c_key}:
                return None
            kernels.append(form.matrix(x))
            recurrents.append(form.matrix(h_key))
            # Both states may be the same zeros.
            seen = None if c_key in (None, h_key) else form.matrix(c_key)
            if seen is not None and np.count_nonzero(seen - np.diag(np.diagonal(seen))):
                return None
            peepholes.append(None if seen is None else np.diagonal(seen))
        if len(peepholes) == GATES and peepholes.pop(2) is not None:
            return None
        return Cell(
            Ref(*x),
            _columns(kernels, forms[0].width),
            _columns(recurrents, forms[0].width),
            np.concatenate([form.bias for form in forms]).astype(np.float32),
            activation,
            _NONE if all(p is None for p in peepholes) else _rows(peepholes, forms[0].width),
            projection.astype(np.float32),
            projection_bias.astype(np.float32),
            cell_clip,
            projection_clip,
        )

    def _gate(self, ref: Ref) -> tuple[Ref, int] | None:
        """Return the argument of the sigmoid that a gate is, and the sign of its factor.

        A gate that is 1 minus the sigmoid of x is the sigmoid of -x.
        """
        node = self._node(ref, "Sigmoid", "Sub")
        if node is None or node.op == "Sigmoid":
            return None if node is None else (node.data_inputs[0], 1)
        one = constant_behind(self._graph, node.data_inputs[0])
        inner = self._node(node.data_inputs[1], "Sigmoid")
        if inner is None or one is None or (one.array() != 1).any():
            return None
        return inner.data_inputs[0], -1

    def _output(self, ref: Ref, new_state: Ref, activation: str) -> Ref | None:
        """Return the gate if a tensor is its product with the activated cell state."""
        node = self._node(ref, "Mul")
        if node is None:
            return None
        for gate, value in (node.data_inputs, node.data_inputs[::-1]):
            activated = self._node(value, activation)
            if activated is not None and self._is_same(activated.data_inputs[0], new_state):
                return gate
        return None

    def _unclipped(self, ref: Ref) -> tuple[float, Ref]:
        """Return the symmetric limit of a tensor and the tensor before it; 0 without a limit."""
        outer = self._node(ref, "Maximum", "Minimum", "ClipByValue")
        if outer is None:
            return 0.0, ref
        if outer.op == "ClipByValue":
            inner, limits = outer.data_inputs[0], outer.data_inputs[1:]
        else:
            inside = self._split(outer)
            other = "Minimum" if outer.op == "Maximum" else "Maximum"
            node = None if inside is None else self._node(inside[0], other)
            rest = None if node is None else self._split(node)
            if inside is None or rest is None:
                return 0.0, ref
            inner, limits = rest[0], (inside[1], rest[1])
        values = [constant_behind(self._graph, r) for r in limits]
        known = [float(v.array().reshape(-1)[0]) for v in values if v is not None and v.size == 1]
        if len(known) != 2 or known[0] != -known[1]:
            return 0.0, ref
        return abs(known[0]), inner

    def _split(self, node: Node) -> tuple[Ref, Ref] | None:
        """Return the computed operand of a node and its constant one."""
        for one, other in (node.data_inputs, node.data_inputs[::-1]):
            if constant_behind(self._graph, other) is not None:
                return one, other
        return None

    def _other(self, node: Node, ref: Ref) -> Ref | None:
        """Return the other operand of a product with a tensor."""
        for one, other in (node.data_inputs, node.data_inputs[::-1]):
            if self._is_same(one, ref):
                return other
        return None

    def _node(self, ref: Ref, *ops: str) -> Node | None:
        """Return the node that computes a tensor if it has one of the ops."""
        node = self._graph[source_behind(self._graph, ref).node]
        return node if node.op in ops else None

    def _is_same(self, one: Ref, other: Ref) -> bool:
        a, b = (edge(source_behind(self._graph, ref)) for ref in (one, other))
        return a == b


def _only(form: Affine) -> Edge | None:
    return next(iter(form.parts)) if len(form.parts) == 1 else None


def _columns(matrices: Sequence[Array | None], width: int) -> Array:
    """Join the matrices of gates; zeros for those without."""
    height = next((m.shape[0] for m in matrices if m is not None), 0)
    blank = np.zeros((height, width), np.float32)
    return np.concatenate([blank if m is None else m for m in matrices], axis=1, dtype=np.float32)


def _rows(vectors: Sequence[Array | None], width: int) -> Array:
    blank = np.zeros(width, np.float32)
    return np.stack([blank if v is None else v for v in vectors]).astype(np.float32)
