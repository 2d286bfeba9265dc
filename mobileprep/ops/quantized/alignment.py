"""Broadcasting as the original's quantized kernels do it: scalars, and vectors that repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, product
from typing import Final

import numpy as np

from mobileprep.errors import UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import check_allocation

# All cases of more axes would take too long to look at.
_MOST_AXES: Final = 6


@dataclass(frozen=True, slots=True)
class Pair:
    """Two operands, reshaped so that numpy broadcasts them as the original does.

    Args:
        left: the first operand.
        right: the second.
        shape: of the result.
        alone: which of the operands is a single number, 0 or 1; -1 for none.
    """

    left: Array
    right: Array
    shape: tuple[int, ...]
    alone: int = -1


def align(node: Node, x: Array, y: Array) -> Pair:
    """Two operands made ready for an operation on their elements.

    Where the shapes are not equal, and neither operand is a single number, the original takes the
    smaller one for a vector along the last axes, and repeats it. It does so also where a proper
    broadcast would repeat its elements one by one, as for [4, 3] and [4, 1].

    Raises:
        UnsupportedError: the original refuses the shapes, or leaves elements of the result unset.
        ValueError: the shapes do not fit each other.
    """
    shape = np.broadcast_shapes(x.shape, y.shape)
    check_allocation(shape, np.dtype(np.int32))
    size = int(np.prod(shape, dtype=np.int64))
    if not size:
        empty = np.empty(0, dtype=x.dtype)
        return Pair(empty, empty, shape)
    flat = x.reshape(-1), y.reshape(-1)
    runs = _runs(x.shape, y.shape)
    if runs <= 1:
        alone = 0 if x.size == 1 else 1 if y.size == 1 else -1
        return Pair(*flat, shape, alone)
    if runs > 2 or max(x.size, y.size) < size:
        message = f"node {node.name!r}: {node.op} cannot broadcast {list(x.shape)} and "
        message += f"{list(y.shape)}"
        raise UnsupportedError(message, "give one operand the shape of the other's last axes")
    period = min(x.size, y.size)
    return Pair(flat[0].reshape(-1, period), flat[1].reshape(-1, period), shape)


def always_align(x_shape: TensorShape, y_shape: TensorShape) -> bool:
    """Whether ``align`` takes all operands of two shapes, whatever their unknown sizes are."""
    if x_shape is None or y_shape is None:
        return False
    rank = max(len(x_shape), len(y_shape))
    if rank > _MOST_AXES:
        return False
    wide = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (x_shape, y_shape)]
    return all(map(_aligns, product(*map(_sizes, *wide))))


def _sizes(a: int, b: int) -> list[tuple[int, int]]:
    """The sizes that two axes may have, as far as it matters: one, and more than that."""
    if a >= 0 and b >= 0:
        return [(a, b)]
    many = max(a, b, 2)
    pairs = [(1, many), (many, 1), (many, many), (1, 1)]
    return [(p, q) for p, q in pairs if a in (-1, p) and b in (-1, q)]


def _aligns(axes: Sequence[tuple[int, int]]) -> bool:
    x, y = [a for a, _ in axes], [b for _, b in axes]
    if any(a != b and 1 not in (a, b) for a, b in axes):
        return False
    size = math.prod(map(max, axes))
    runs = _runs(x, y)
    return not size or runs <= 1 or (runs == 2 and max(math.prod(x), math.prod(y)) == size)


def _runs(x_shape: Sequence[int], y_shape: Sequence[int]) -> int:
    """How many axes are left when neighbours that are broadcast alike are merged."""
    rank = max(len(x_shape), len(y_shape))
    wide = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (x_shape, y_shape)]
    alike = [(a == b, a == 1) for a, b in zip(*wide, strict=True) if not a == b == 1]
    return len(list(groupby(alike, key=lambda pair: pair if not pair[0] else True)))
