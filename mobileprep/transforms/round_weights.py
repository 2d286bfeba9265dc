"""Round large float constants to few distinct values, so that the graph compresses well."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.clipping import (
    LEAST_MAXIMUM,
    Replacements,
    convert_floats,
    value_range,
)

_LEAST_SIZE: Final = 16
_TOO_SMALL: Final = f"fewer than {_LEAST_SIZE} elements"
_ALL_EQUAL: Final = "all its elements are equal"
_NOT_FINITE: Final = "it holds infinity or NaN, or spans more than float32 can"
_NEARLY_ZERO: Final = np.float32(1e-6)
_BLOCK: Final = 1 << 16


@transform("round_weights")
class RoundWeights(Transform, frozen=True):
    """Round each element of a float32 constant to the middle of its bucket.

    The buckets divide the range from minimum to maximum into equal parts. The original needs an
    extra bucket for the maximum, starts the range of negative constants at zero, and changes the
    elements of constants that are all equal; a recipe does none of this.

    Source: ``round_weights`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Rounds float constants of 16 elements and more to few different values, so that the "
        "graph compresses well."
    )
    of_graph_transform_tool = True

    num_steps: Annotated[
        int,
        Option("How many different values a constant may have.", minimum=1),
    ] = 256

    def apply(self, graph: Graph, context: Context) -> Result:
        """Round the constants with at least 16 elements."""
        if self.num_steps < 1:
            message = f"num_steps is {self.num_steps}"
            raise refuse(self.transform_name, message, "at least one step is needed")
        replacements = Replacements(graph, context.tf115)
        return Result(
            *convert_floats(
                graph,
                self.transform_name,
                lambda _, value: self._rounded(value, context),
                lambda node, rounded: [replacements.make(node, node.name, rounded)],
            )
        )

    def _rounded(self, value: Tensor, context: Context) -> tuple[str, Tensor | None]:
        """Return the constant with rounded elements, or the reason to keep it."""
        if value.size < _LEAST_SIZE:
            return _TOO_SMALL, None
        low, high = value_range(value.array())
        if context.tf115:
            high = max(high, LEAST_MAXIMUM)
            if low == high:
                high = low + np.float32(1) if low < _NEARLY_ZERO else low + low
        elif low == high:
            return _ALL_EQUAL, None
        with np.errstate(over="ignore", invalid="ignore"):
            width = (high - low) / np.float32(self.num_steps)
        if not np.isfinite(width):
            return _NOT_FINITE, None
        last = None if context.tf115 else np.float32(self.num_steps - 1)
        rounded = Tensor.of(_to_buckets(value.array(), low, width, last), DType.FLOAT)
        context.offload(rounded)
        return "", rounded


def _to_buckets(
    values: Array, low: np.float32, width: np.float32, last: np.float32 | None
) -> Array:
    """Return the bucket middles of float32 values, in single precision like the original."""
    flat = values.reshape(-1)
    out = np.empty(flat.size, dtype=np.float32)
    for start in range(0, flat.size, _BLOCK):
        block = out[start : start + _BLOCK]
        np.subtract(flat[start : start + _BLOCK], low, out=block)
        block /= width
        np.floor(block, out=block)
        if last is not None:
            np.minimum(block, last, out=block)
        block += np.float32(0.5)
        block *= width
        block += low
    return out.reshape(values.shape)
