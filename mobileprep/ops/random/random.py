"""Random numbers, which need a seed of the node or of the run."""

from __future__ import annotations

import math

import numpy as np

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.dropout import DROPS
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, integers, numpy_attr
from mobileprep.ops.kernel import RunContext, context_kernel, free
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    concatenate,
    shape_fn,
    shape_in,
    unchanged,
    with_rank,
)


def generator(context: RunContext, node: Node) -> np.random.Generator:
    """Return the generator of a node's numbers, distributed as TensorFlow's, but different."""
    seeds = node.attr_int("seed", 0), node.attr_int("seed2", 0)
    if any(seeds):
        return np.random.default_rng([s % (1 << 63) for s in seeds])
    random = context.random()
    if random is None:
        message = f"node {node.name!r} ({node.op}) draws random numbers and has no seed"
        hint = (
            "set a seed (--seed of `run` and `benchmark`), feed the output of the node, or, if "
            "this is dropout, feed 1 as the keep probability"
        )
        raise UnsupportedError(message, hint)
    return random


def _shape(node: Node, dims: Array) -> tuple[int, ...]:
    shape = integers(dims)
    check_allocation(shape, np.dtype(np.float64))
    return shape


def _kind(node: Node) -> np.dtype[np.generic]:
    kind = node.attr_dtype("dtype").numpy
    if kind is None:
        message = "numbers of this type cannot be drawn"
        raise TypeError(message)
    return kind


@context_kernel("RandomUniform", shape=shape_in(0), flops=free)
def random_uniform(context: RunContext, node: Node, dims: Array, *rate: Array) -> Array:
    """Draw numbers from [0, 1); see ``with_known_masks`` for the rate."""
    if rate and (rate[0] == (0 if node.attr_bool(DROPS) else 1)).all():
        return np.full(_shape(node, dims), 0.5, _kind(node))
    drawn = generator(context, node).random(_shape(node, dims), dtype=np.float32)
    # Rounding to a narrower type must not reach 1.
    kind = _kind(node)
    below_one = np.nextafter(kind.type(1), kind.type(0))
    return np.asarray(np.minimum(drawn.astype(kind), below_one))


@context_kernel("RandomUniformInt", shape=shape_in(0), flops=free)
def random_uniform_int(
    context: RunContext, node: Node, dims: Array, low: Array, high: Array
) -> Array:
    """Draw integers from [low, high)."""
    first, end = int(low), int(high)
    if first >= end:
        message = f"no number in [{first}, {end})"
        raise ValueError(message)
    return generator(context, node).integers(first, end, _shape(node, dims), dtype=low.dtype)


@context_kernel("RandomStandardNormal", shape=shape_in(0), flops=free)
def random_normal(context: RunContext, node: Node, dims: Array) -> Array:
    """Draw numbers with mean 0 and standard deviation 1."""
    return generator(context, node).standard_normal(_shape(node, dims)).astype(_kind(node))


@context_kernel("TruncatedNormal", shape=shape_in(0), flops=free)
def truncated_normal(context: RunContext, node: Node, dims: Array) -> Array:
    """Draw standard normal numbers, again if they exceed two standard deviations."""
    source, shape = generator(context, node), _shape(node, dims)
    drawn = source.standard_normal(math.prod(shape))
    while (far := np.abs(drawn) > 2).any():
        drawn[far] = source.standard_normal(int(far.sum()))
    return drawn.reshape(shape).astype(_kind(node))


@context_kernel("RandomShuffle", shape=unchanged, flops=free)
def random_shuffle(context: RunContext, node: Node, x: Array) -> Array:
    """Shuffle the slices of x along the first axis."""
    return x if x.ndim == 0 else generator(context, node).permutation(x, axis=0)


@context_kernel("Multinomial", flops=free)
def multinomial(context: RunContext, node: Node, logits: Array, count: Array) -> Array:
    """Draw classes with the probabilities from rows of logits."""
    number = int(count)
    if logits.ndim != 2 or (number and not logits.shape[1]):
        message = "logits must be a matrix with a column for each class"
        raise ValueError(message)
    shape = (len(logits), number, logits.shape[1])
    check_allocation(shape, np.dtype(np.float64))
    noise = generator(context, node).gumbel(size=shape)
    kind = numpy_attr(node, "output_dtype", DType.INT64)
    return np.asarray(np.argmax(logits[:, None, :] + noise, axis=-1), dtype=kind)


@shape_fn("Multinomial", "StatelessMultinomial")
def multinomial_shape(args: ShapeArgs) -> OutputShapes:
    """Return the requested number of draws for each row."""
    draws = args.scalar(1)
    return [(with_rank(args.shapes[0], 2)[0], UNKNOWN if draws is None else draws)]


# These ops cannot be run, but their shapes are known.
shape_fn(
    "ParameterizedTruncatedNormal",
    *("StatelessRandomNormal", "StatelessRandomNormalV2"),
    *("StatelessRandomUniform", "StatelessRandomUniformV2"),
    *("StatelessRandomUniformInt", "StatelessRandomUniformIntV2"),
    *("StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2"),
    *("StatelessTruncatedNormal", "StatelessTruncatedNormalV2"),
)(shape_in(0))


@shape_fn("RandomGamma", "RandomPoisson", "RandomPoissonV2")
def drawn_each_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape that the first input holds, for each parameter."""
    return [concatenate(args.as_shape(0), args.shapes[1])]
