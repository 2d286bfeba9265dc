"""Fake quantization: rounding to the steps of an integer type, in floating point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import at_least_rank, dim, merge_dim, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Of each element: two bounds, a difference, a product, a rounding, a product, a sum.
_OPERATIONS = 7


@kernel("FakeQuantWithMinMaxArgs")
def fake_quant_args(node: Node, x: Array) -> Array:
    """Rounding between two bounds that are attributes."""
    low = np.float32(node.attr_float("min", -6.0))
    high = np.float32(node.attr_float("max", 6.0))
    return _fake_quantized(node, x, np.asarray(low), np.asarray(high))


shape_fn("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxArgsGradient")(unchanged)
flop_rule("FakeQuantWithMinMaxArgs")(per_output(_OPERATIONS))


@kernel("FakeQuantWithMinMaxVars")
def fake_quant_vars(node: Node, x: Array, low: Array, high: Array) -> Array:
    """Rounding between two bounds that are scalars."""
    return _fake_quantized(node, x, low.reshape(()), high.reshape(()))


shape_fn("FakeQuantWithMinMaxVars")(unchanged)
flop_rule("FakeQuantWithMinMaxVars")(per_output(_OPERATIONS))


@kernel("FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_channels(node: Node, x: Array, low: Array, high: Array) -> Array:
    """Rounding between bounds for each channel of the last axis."""
    if not low.shape == high.shape == x.shape[-1:]:
        message = f"bounds of shapes {list(low.shape)} and {list(high.shape)} for {list(x.shape)}"
        raise ValueError(message)
    return _fake_quantized(node, x, low, high)


@shape_fn("FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_per_channel_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, whose last size the ranges must have."""
    shape = at_least_rank(args.shapes[0], 1)
    for ends in args.shapes[1:]:
        merge_dim(with_rank(ends, 1)[0], dim(shape, -1))
    return [shape]


flop_rule("FakeQuantWithMinMaxVarsPerChannel")(per_output(_OPERATIONS))


def _fake_quantized(node: Node, x: Array, low: Array, high: Array) -> Array:
    """x held between bounds nudged so that zero is a step, and rounded to the nearest step.

    The order of operations is TensorFlow's, on which it depends which way a tie goes.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference" (2018), section 3.
    """
    lowest = np.float32(1 if node.attr_bool("narrow_range", False) else 0)
    bits = node.attr_int("num_bits", 8)
    if not 2 <= bits <= 16:
        message = f"num_bits is {bits}; it is 2 to 16"
        raise ValueError(message)
    highest = np.float32((1 << bits) - 1)
    empty = (low == 0) & (high == 0)
    width = np.where(empty, highest - lowest, high - low)
    scale = width / (highest - lowest)
    from_low = lowest - low / scale
    # Half away from zero, as C's round.
    rounded = np.floor(np.abs(from_low) + np.float32(0.5)) * np.sign(from_low)
    zero = np.where(from_low < lowest, lowest, np.where(from_low > highest, highest, rounded))
    nudged_low = (lowest - zero) * scale
    nudged_high = (highest - zero) * scale
    # The reciprocal of the step would be rounded twice.
    inverse = (highest - lowest) / width
    zero_step = np.floor(-nudged_low * inverse + np.float32(0.5))
    above = np.minimum(np.maximum(x, nudged_low), nudged_high) - nudged_low
    steps = above / scale if node.op == "FakeQuantWithMinMaxVars" else above * inverse
    rounded_steps = np.floor(steps - zero_step + np.float32(0.5))
    out: Array = np.where(empty, np.float32(0), rounded_steps * scale)
    return out.astype(x.dtype, copy=False)
