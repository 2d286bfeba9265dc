"""A depthwise convolution together with the convolution of single elements that reads it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.refs import Edge
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated
from mobileprep.numerics.depthwise_convolution import convolve_depthwise
from mobileprep.numerics.matrix_products import parts_of
from mobileprep.numerics.tiles import Tile
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import Action, Uses, Values
from mobileprep.runtime.convolution_epilogue import FusedConvolution

# Positions from which on a tile's are enough for an efficient matrix product.
_LEAST_POSITIONS = 256
# Outputs of one tile, so that what finishes them finds them in the cache.
_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SeparableConvolution:
    """Computes pointwise(depthwise(x)), tile by tile while what is between lies in the cache.

    Args:
        depthwise: without a sum.
        pointwise: of single elements, next to each other.
    """

    depthwise: FusedConvolution
    pointwise: FusedConvolution

    def __call__(self, context: RunContext, inputs: Values) -> Values:
        """The output for an input, and for a second input that is added."""
        x, *others = inputs
        shape = self._shape(x)
        if not shape or any(other.shape != shape for other in others):
            return self.pointwise(context, (*self.depthwise(context, (x,)), *others))
        out = allocated(shape, x.dtype)
        residual = others[0] if others else None
        weights = self.pointwise.filters.reshape(-1, shape[-1])

        def finish(values: Array, tile: Tile) -> None:
            self.depthwise.finish(values, tile, None)
            target = tile.of(out)
            rows = values.reshape(-1, len(weights))
            np.matmul(rows, weights, out=target.reshape(len(rows), -1))
            self.pointwise.finish(target, tile, residual)

        window = self.depthwise.way(x).window
        least = max(parts_of(out.size * len(weights)), -(-out.nbytes // _OUTPUT_BYTES))
        convolve_depthwise(x, self.depthwise.filters, window, finish, least)
        return (out,)

    def _shape(self, x: Array) -> tuple[int, ...]:
        """The shape of the output; nothing where either is to compute its own."""
        depth, count = self.pointwise.filters.shape[2:]
        if x.dtype != np.float32 or x.ndim != 4 or depth != self.depthwise.channels:
            return ()
        shape = (len(x), *self.depthwise.way(x).window.positions(x.shape[1:-1]), count)
        return shape if math.prod(shape[:-1]) >= _LEAST_POSITIONS else ()


def pair_separable(actions: Sequence[Action], wanted: Collection[Edge]) -> list[Action]:
    """The actions, with such pairs of fused convolutions made one action each.

    It stands where the second stood, when all its inputs are there.
    """
    uses = Uses(actions, wanted)
    replaced: dict[str, Action | None] = {}
    for action in actions:
        reader = uses.only_reader(action.outputs[0][1]) if action.outputs else None
        pair = None if reader is None else _pair(action, reader)
        if reader is not None and pair is not None:
            replaced.update({action.node.name: None, reader.node.name: pair})
    left = (replaced.get(a.node.name, a) for a in actions)
    return [a for a in left if a is not None]


def _pair(action: Action, reader: Action) -> Action | None:
    """The pair of an action and what alone reads its result, or None where they are none."""
    first, second = action.run, reader.run
    if not (isinstance(first, FusedConvolution) and isinstance(second, FusedConvolution)):
        return None
    if not (first.depthwise and second.pointwise) or len(action.inputs) > 1:
        return None
    if reader.inputs[0] != action.outputs[0][1]:
        return None
    return Action(
        action.node,
        SeparableConvolution(first, second),
        (action.inputs[0], *reader.inputs[1:]),
        reader.outputs,
        (*action.covers, *reader.covers),
    )
