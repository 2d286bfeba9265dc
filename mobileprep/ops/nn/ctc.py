"""Connectionist temporal classification: labels read off the classes of each step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.common_costs import per_input
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import UNKNOWN, merge_dim, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn
from mobileprep.work import STEP, spend

# Steps that an entry of a batch takes.
_STEPS = 8


@kernel("CTCGreedyDecoder")
def ctc_greedy_decoder(node: Node, inputs: Array, lengths: Array) -> tuple[Array, ...]:
    """The best class of each step, blanks (and, if asked, repetitions) left out.

    Args:
        node: with ``merge_repeated`` and ``blank_index``.
        inputs: [time, batch, classes].
        lengths: steps of each batch entry.

    Returns:
        Indices, values and shape of a sparse matrix, and the negated sum of the largest logits.
    """
    steps, batch, classes = inputs.shape
    if lengths.shape != (batch,) or (lengths > steps).any() or not classes:
        message = f"lengths of shape {list(lengths.shape)} for inputs {list(inputs.shape)}"
        raise ValueError(message)
    spend(_STEPS * STEP * batch)
    blank = node.attr_int("blank_index", -1) % classes
    merged = node.attr_bool("merge_repeated", False)
    best = inputs.argmax(axis=2)
    rows = []
    scores = np.zeros((batch, 1), dtype=inputs.dtype)
    for entry, length in enumerate(lengths.tolist()):
        found = best[:length, entry]
        scores[entry] = -np.sum(inputs[:length, entry].max(axis=1), dtype=inputs.dtype)
        kept = found != blank
        if merged:
            kept &= np.concatenate([[True], found[1:] != found[:-1]])[:length]
        rows.append(found[kept])
    widest = max(map(len, rows), default=0)
    indices = [(entry, place) for entry, row in enumerate(rows) for place in range(len(row))]
    values = np.concatenate(rows) if rows else np.zeros(0)
    return (
        np.array(indices, dtype=np.int64).reshape(-1, 2),
        values.astype(np.int64),
        np.array([batch, widest], dtype=np.int64),
        scores,
    )


@shape_fn("CTCGreedyDecoder")
def ctc_greedy_decoder_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A sparse tensor of labels, and a score for each of the batch."""
    batch = merge_dim(with_rank(args.shapes[0], 3)[1], with_rank(args.shapes[1], 1)[0])
    return [(UNKNOWN, 2), (UNKNOWN,), (2,), (batch, 1)]


flop_rule("CTCGreedyDecoder")(per_input(1))
