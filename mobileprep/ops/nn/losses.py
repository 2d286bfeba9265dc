"""Cross entropies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import broadcast, merge, merge_dim, with_rank
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
    if labels.shape != features.shape[:1]:
        message = f"labels of shape {list(labels.shape)} for {len(features)} rows"
        raise ValueError(message)
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


@flop_rule("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy_flops(sizes: Sizes) -> float:
    """A softmax, its logarithms and products, and the gradient."""
    return 8 * sizes.taken()


def _shifted(features: Array) -> tuple[Array, Array]:
    if features.ndim != 2 or not features.shape[1]:
        message = "a matrix with a column for each class is needed"
        raise ValueError(message)
    shifted = features - features.max(axis=1, keepdims=True)
    return shifted, np.sum(np.exp(shifted), axis=1, keepdims=True, dtype=features.dtype)
