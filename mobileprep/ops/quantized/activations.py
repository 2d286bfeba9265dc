"""Quantized activations, which keep the range of their input."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.quantization import steps_of, to_integer
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.quantized.ranges import (
    Quantized,
    check_type,
    limits_of,
    same_range,
    unchanged_with_range,
)
from mobileprep.ops.shape_function import shape_fn


@kernel("QuantizedRelu", "QuantizedRelu6")
def quantized_relu(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """x, but no number below the one that stands for 0.0, nor above that for 6.0 in Relu6.

    Raises:
        UnsupportedError: the original has no kernel for the types.
    """
    dtype = check_type(node, "Tinput", x, DType.QUINT8, DType.QINT32)
    check_type(node, "out_type", x, dtype)
    limits = limits_of(low, high)
    least = to_integer(0.0, limits, x.dtype)
    most = to_integer(6.0, limits, x.dtype) if node.op == "QuantizedRelu6" else None
    kind = x.dtype.type
    out = np.clip(x, kind(least), kind(steps_of(x.dtype).highest if most is None else most))
    return np.asarray(out), *same_range(low, high)


shape_fn("QuantizedRelu", "QuantizedRelu6", "QuantizedReluX")(unchanged_with_range)
flop_rule("QuantizedRelu")(per_output(1))
flop_rule("QuantizedRelu6")(per_output(2))
