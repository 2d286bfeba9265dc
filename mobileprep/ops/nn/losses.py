"""Cross entropies, and of the decoding of sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.common_costs import per_input
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import UNKNOWN, broadcast, merge, merge_dim, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(node: Node, features: Array, labels: Array) -> tuple[Array, Array]:
    """The cross entropy of each row with its distribution, and the gradient."""
    shifted, total = _shifted(features)
    logs = np.log(total) - shifted
    loss = np.sum(labels * logs, axis=1, dtype=features.dtype)
    return loss, np.asarray(np.exp(shifted) / total - labels)


@shape_fn("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A loss for each row, and the gradient."""
    shape = with_rank(broadcast(args.shapes[0], args.shapes[1]), 2)
    if None in args.shapes:
        shape = with_rank(merge(args.shapes[0], args.shapes[1]), 2)
    return [shape[:1], shape]


@kernel("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(node: Node, features: Array, labels: Array) -> tuple[Array, Array]:
    """The cross entropy of each row with its class, and the gradient."""
    shifted, total = _shifted(features)
    check_indices(labels, features.shape[1])
    rows = np.arange(len(labels))
    loss = np.log(total[:, 0]) - shifted[rows, labels]
    gradient = np.exp(shifted) / total
    gradient[rows, labels] -= features.dtype.type(1)
    return loss, gradient


@shape_fn("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A loss for each row, and the gradient."""
    rows, classes = with_rank(args.shapes[0], 2)
    rows = merge_dim(rows, with_rank(args.shapes[1], 1)[0])
    return [(rows,), (rows, classes)]


@flop_rule(
    *("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"),
)
def cross_entropy_flops(sizes: Sizes) -> float:
    """A softmax, its logarithms and products, and the gradient."""
    return 8 * sizes.taken()


def _shifted(features: Array) -> tuple[Array, Array]:
    if features.ndim != 2 or not features.shape[1]:
        message = "a matrix with a column for each class is needed"
        raise ValueError(message)
    shifted = features - features.max(axis=1, keepdims=True)
    return shifted, np.sum(np.exp(shifted), axis=1, keepdims=True, dtype=features.dtype)


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
