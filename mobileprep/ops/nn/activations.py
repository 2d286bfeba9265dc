"""Activations, normalization, and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np

from mobileprep.core.limits import STEP, spend
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import as_array
from mobileprep.ops.kernel import Sizes, flop_rule, kernel, per_input, per_output
from mobileprep.ops.math.arithmetic import Unary
from mobileprep.ops.numerics.quantization import clipped
from mobileprep.ops.shape_function import (
    OutputShapes,
    ShapeArgs,
    broadcast,
    input_at_least,
    input_with_rank,
    merge,
    merge_dim,
    same_as_both,
    shape_fn,
    unchanged,
    with_rank,
)

# Klambauer et al., "Self-Normalizing Neural Networks" (2017).
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _relu(x: Array) -> Any:  # noqa: ANN401 - an array or a numpy scalar
    return clipped(x, 0, np.inf) if x.dtype.kind == "f" else np.maximum(x, x.dtype.type(0))


def _relu6(x: Array) -> Any:  # noqa: ANN401
    if x.dtype.kind == "f":
        return clipped(x, 0, 6)
    return np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6))


def _elu(x: Array) -> Any:  # noqa: ANN401
    return np.where(x < 0, np.expm1(x), x)


def _selu(x: Array) -> Any:  # noqa: ANN401
    kind = x.dtype.type
    return np.where(x < 0, kind(_SELU_SCALE * _SELU_ALPHA) * np.expm1(x), kind(_SELU_SCALE) * x)


def _softplus(x: Array) -> Any:  # noqa: ANN401
    if x.dtype.kind == "f":
        return np.logaddexp(x, x.dtype.type(0))
    # numpy has no logaddexp for bfloat16; exp(-|x|) is finite.
    return np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x)))


def _softsign(x: Array) -> Any:  # noqa: ANN401
    return np.divide(x, np.abs(x) + x.dtype.type(1))


# The function of each op, and its number of operations for each element.
_ACTIVATIONS: dict[str, tuple[Unary, int]] = {
    "Elu": (_elu, 2),
    "Relu": (_relu, 1),
    "Relu6": (_relu6, 2),
    "Selu": (_selu, 3),
    "Softplus": (_softplus, 2),
    "Softsign": (_softsign, 3),
}


def _as_kernel(function: Unary) -> Callable[[Node, Array], Array]:
    def run(node: Node, x: Array) -> Array:
        return as_array(function(x), x)

    return run


for _op, (_function, _operations) in _ACTIVATIONS.items():
    kernel(_op, shape=unchanged, flops=per_output(_operations))(_as_kernel(_function))


@kernel("LeakyRelu", shape=unchanged, flops=per_output(2))
def leaky_relu(node: Node, x: Array) -> Array:
    """Return x if positive, else x times the attribute ``alpha``."""
    # An attribute has 32 bits, and so has its default.
    alpha = x.dtype.type(np.float32(node.attr_float("alpha", 0.2)))
    return np.where(x > 0, x, np.multiply(x, alpha))


@kernel("Softmax", flops=per_output(5))
def softmax(node: Node, x: Array) -> Array:
    """Compute exp(x) divided by its sum, along the last axis."""
    powers = np.exp(_shifted(x))
    return np.divide(powers, _sum(powers))


@kernel("LogSoftmax", flops=per_output(5))
def log_softmax(node: Node, x: Array) -> Array:
    """Compute the logarithm of softmax, along the last axis."""
    shifted = _shifted(x)
    return np.subtract(shifted, np.log(_sum(np.exp(shifted))))


shape_fn("Softmax", "LogSoftmax")(input_at_least(1))


def _shifted(x: Array) -> Array:
    """Subtract the maximum from x, so that exp does not overflow."""
    if x.ndim < 1:
        message = "softmax needs an axis"
        raise ValueError(message)
    return x if x.size == 0 else np.subtract(x, x.max(axis=-1, keepdims=True))


def _sum(x: Array) -> Array:
    total: Array = np.add.reduce(x, axis=-1, keepdims=True)
    return total


# Gradients cannot be run, but their shapes are known.
shape_fn("SigmoidGrad", "TanhGrad")(unchanged)
shape_fn("EluGrad", "LeakyReluGrad", "Relu6Grad", "ReluGrad")(same_as_both)
shape_fn("SeluGrad", "SoftplusGrad", "SoftsignGrad")(same_as_both)


# A softmax, its logarithms and products, and the gradient.
@kernel("SoftmaxCrossEntropyWithLogits", flops=per_input(8))
def softmax_cross_entropy(node: Node, features: Array, labels: Array) -> tuple[Array, Array]:
    """Compute the cross entropy of each row with its distribution, and the gradient."""
    shifted, total = _shifted_logits(features)
    logs = np.log(total) - shifted
    loss = np.sum(labels * logs, axis=1, dtype=features.dtype)
    return loss, np.asarray(np.exp(shifted) / total - labels)


@shape_fn("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of a loss for each row, and of the gradient."""
    shape = with_rank(broadcast(args.shapes[0], args.shapes[1]), 2)
    if None in args.shapes:
        shape = with_rank(merge(args.shapes[0], args.shapes[1]), 2)
    return [shape[:1], shape]


# A softmax, its logarithms and products, and the gradient.
@kernel("SparseSoftmaxCrossEntropyWithLogits", flops=per_input(8))
def sparse_softmax_cross_entropy(node: Node, features: Array, labels: Array) -> tuple[Array, Array]:
    """Compute the cross entropy of each row with its class, and the gradient."""
    shifted, total = _shifted_logits(features)
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
def sparse_softmax_cross_entropy_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of a loss for each row, and of the gradient."""
    rows, classes = with_rank(args.shapes[0], 2)
    rows = merge_dim(rows, with_rank(args.shapes[1], 1)[0])
    return [(rows,), (rows, classes)]


def _shifted_logits(features: Array) -> tuple[Array, Array]:
    if features.ndim != 2 or not features.shape[1]:
        message = "a matrix with a column for each class is needed"
        raise ValueError(message)
    shifted = features - features.max(axis=1, keepdims=True)
    return shifted, np.sum(np.exp(shifted), axis=1, keepdims=True, dtype=features.dtype)


# Operations for adding up a neighbor.
_COST = 32


@kernel("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm(
    node: Node, x: Array, scale: Array, offset: Array, mean: Array, variance: Array
) -> tuple[Array, ...]:
    """Normalize by the given statistics, or by the batch's if ``is_training`` is set.

    Returns:
        y, the mean, the variance, and the inputs of the gradient.
    """
    first = node.attr_str("data_format", "NHWC").startswith("NC")
    axes = tuple(i for i in range(x.ndim) if i != (1 if first else x.ndim - 1))
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    outputs: tuple[Array, ...] = (mean, variance, mean, variance)
    if node.attr_bool("is_training", True):
        mean, variance, outputs = _batch_statistics(node, wide, axes, mean, variance)
    spread = (-1, *[1] * (x.ndim - 2)) if first else (-1,)
    factor = batch_norm_factor(node, scale, variance).reshape(spread)
    y = np.subtract(wide, mean.reshape(spread))
    np.multiply(y, factor, out=y)
    np.add(y, offset.reshape(spread), out=y)
    extra = (np.zeros(0, np.float32),) if node.op == "FusedBatchNormV3" else ()
    return (y.astype(x.dtype, copy=False), *outputs, *extra)


def batch_norm_factor(node: Node, scale: Array, variance: Array) -> Array:
    """Return the factor of each channel after its mean is subtracted; all of shape [channels]."""
    epsilon = np.float32(node.attr_float("epsilon", 1e-4))
    factor: Array = np.multiply(np.divide(np.float32(1), np.sqrt(variance + epsilon)), scale)
    return factor


@shape_fn("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, and vectors with an element for each channel."""
    order = args.node.attr_str("data_format", "NHWC")
    shape = list(with_rank(args.shapes[0], len(order)))
    channel = order.index("C")
    used = 3 if args.node.attr_bool("is_training", True) else 5
    vectors = [with_rank(s, 1)[0] for s in args.shapes[1:used]]
    shape[channel] = reduce(merge_dim, vectors, shape[channel])
    outputs: list[TensorShape] = [tuple(shape), *[(shape[channel],)] * 4]
    # The kernel determines the size of the last output.
    return [*outputs, None][: args.count()]


@flop_rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm_flops(sizes: Sizes) -> float:
    """Count a multiplication and an addition, and the statistics if computed from the batch."""
    training = sizes.node.attr_bool("is_training", True)
    return sizes.output_elements() * (6 if training else 2)


def _batch_statistics(
    node: Node, x: Array, axes: tuple[int, ...], old_mean: Array, old_variance: Array
) -> tuple[Array, Array, tuple[Array, ...]]:
    """Compute the batch's mean and variance, and the node's four outputs of statistics."""
    count = x.size // max(x.shape[1] if axes[-1] == x.ndim - 1 else x.shape[-1], 1)
    # numpy warns about the mean of an empty array.
    mean = np.asarray(np.sum(x, axis=axes, dtype=np.float32) / np.float32(count))
    shape = [1 if i in axes else d for i, d in enumerate(x.shape)]
    squares = np.square(x - mean.reshape(shape))
    variance = np.asarray(np.sum(squares, axis=axes, dtype=np.float32) / np.float32(count))
    unbiased: Array = variance * np.float32(count / max(count - 1, 1))
    share = np.float32(node.attr_float("exponential_avg_factor", 1.0))
    new_mean: Array = mean
    new_variance = unbiased
    if share != 1:
        new_mean = (np.float32(1) - share) * old_mean + share * mean
        new_variance = (np.float32(1) - share) * old_variance + share * unbiased
    return mean, variance, (new_mean, new_variance, mean, variance)


@kernel("BatchNormWithGlobalNormalization", flops=per_output(2))
def batch_norm_with_global_normalization(
    node: Node, x: Array, mean: Array, variance: Array, beta: Array, gamma: Array
) -> Array:
    """Normalize over the last axis, as in graphs before 2016."""
    epsilon = x.dtype.type(node.attr_float("variance_epsilon"))
    inverse = np.divide(x.dtype.type(1), np.sqrt(variance + epsilon))
    if node.attr_bool("scale_after_normalization"):
        inverse = inverse * gamma
    out: Array = (x - mean) * inverse + beta
    return out


@shape_fn("BatchNormWithGlobalNormalization")
def batch_norm_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, its channels merged with those of the statistics."""
    return [normalized_shape(args.shapes[0], args.shapes[1:])]


def normalized_shape(image: TensorShape, vectors: Iterable[TensorShape]) -> tuple[int, ...]:
    """Return an image's shape, its last size merged with the lengths of vectors."""
    shape = with_rank(image, 4)
    channels = reduce(merge_dim, (with_rank(v, 1)[0] for v in vectors), shape[3])
    return (*shape[:3], channels)


@kernel("LRN", shape=input_with_rank(4))
def local_response_normalization(node: Node, x: Array) -> Array:
    """Divide by a power of the sum of squares of neighboring channels.

    Source: Krizhevsky et al., "ImageNet Classification with Deep CNNs" (2012), section 3.3.
    """
    radius = min(node.attr_int("depth_radius", 5), x.shape[-1])
    kind: Any = x.dtype.type
    bias, alpha = kind(node.attr_float("bias", 1.0)), kind(node.attr_float("alpha", 1.0))
    beta = kind(node.attr_float("beta", 0.5))
    spend((2 * radius + 1) * (_COST * x.size + STEP), f"a radius of {radius}")
    squares = np.square(x)
    total = np.zeros_like(x)
    channels = x.shape[-1]
    for shift in range(-radius, radius + 1):
        low, high = max(0, shift), min(channels, channels + shift)
        if low < high:
            total[..., low - shift : high - shift] += squares[..., low:high]
    out: Array = np.multiply(x, np.power(bias + alpha * total, -beta))
    return out


@flop_rule("LRN")
def lrn_flops(sizes: Sizes) -> float:
    """Count a square, a sum over neighbors, its scale and bias, a power, and a quotient."""
    return sizes.output_elements() * (2 * sizes.node.attr_int("depth_radius", 5) + 5)
