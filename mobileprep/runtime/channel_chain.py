"""Arithmetic by channel, such as a batch norm in its parts, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import allocated
from mobileprep.numerics.channel_lines import by_channel
from mobileprep.numerics.parallel import for_each
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import Run, Values

# The bounds of each activation that a chain may end with.
BOUNDS = {"": None, "Relu": (0, np.inf), "Relu6": (0, 6)}
# Elements of a block: what is read and written of it stays in a core's own cache.
_BLOCK = 1 << 16
# Elements that are worth waking a thread for.
_LEAST_WORK = 4 * _BLOCK

Operation = tuple[np.ufunc, Array]
"""A function of two operands, and the second: one float32 number, or one for each channel."""


@dataclass(frozen=True, slots=True)
class ChannelChain:
    """Computes activation(operations(x)) of a float32 tensor, channels last.

    Every operation is done as the nodes would do it, so results keep their last bits; but all of
    them on one block after another, while the block is in the cache, and by all processors.

    Args:
        operations: in their order, the second operands as lines of channels.
        channels: how many there are.
        rank: the least number of axes of x to which no operand adds one.
        activation: "Relu", "Relu6" or nothing, applied last.
        apart: the nodes' own kernels with their inputs, None for what goes through the chain; for
            tensors of other types and shapes.
    """

    operations: tuple[Operation, ...]
    channels: int
    rank: int
    activation: str
    apart: tuple[tuple[Run, tuple[Any, ...]], ...]

    def __call__(self, context: RunContext, inputs: Values) -> Values:
        """The output for an input."""
        x = inputs[0]
        if x.dtype != np.float32 or x.ndim < self.rank or x.shape[-1:] != (self.channels,):
            return self._each(context, x)
        out = allocated(x.shape, x.dtype)
        source, target = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
        length = max(_BLOCK // self.channels, 1) * self.channels

        def work(start: int) -> None:
            block = slice(start, start + length)
            self._compute(source[block], target[block])

        starts = range(0, source.size, length)
        if source.size >= _LEAST_WORK:
            for_each(work, starts)
        else:
            for start in starts:
                work(start)
        return (out,)

    def _compute(self, x: Array, out: Array) -> None:
        for function, line in self.operations:
            by_channel(function, x, line, out)
            x = out
        bounds = BOUNDS[self.activation]
        if bounds is not None:
            np.clip(out, np.float32(bounds[0]), np.float32(bounds[1]), out=out)

    def _each(self, context: RunContext, x: Any) -> Values:  # noqa: ANN401 - not always an array
        results: Values = (x,)
        for run, inputs in self.apart:
            results = run(context, [results[0] if i is None else i for i in inputs])
        return results
