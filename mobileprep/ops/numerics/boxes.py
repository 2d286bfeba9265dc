"""Non-maximum suppression."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import STEP, spend
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import check_kept

# Operations for comparing two boxes.
_COST = 1 << 11
_WHAT = "comparing the boxes"

Overlap = Callable[[int], Array]
"""Returns the overlap of every box with the one of an index."""


class SuppressionLimits(Struct, frozen=True):
    """Limits of the selection.

    Args:
        count: maximum number of boxes.
        overlap: boxes that overlap a selected one by more than this are dropped.
        score: only boxes with a higher score are selected.
    """

    count: int
    overlap: float
    score: float


class Boxes:
    """Boxes with precomputed areas.

    Args:
        corners: [count, 4], two opposite corners of each as y, x, y, x.
    """

    def __init__(self, corners: Array) -> None:
        pairs = corners.reshape(-1, 2, 2)
        self._low, self._high = pairs.min(axis=1), pairs.max(axis=1)
        self._area = np.multiply.reduce(self._high - self._low, axis=1)

    def overlap(self, index: int) -> Array:
        """Return the intersection over union of each box with one, 0 for boxes without area."""
        shared = np.minimum(self._high, self._high[index])
        shared -= np.maximum(self._low, self._low[index])
        inner = np.multiply.reduce(np.maximum(shared, 0), axis=-1)
        union = self._area + self._area[index] - inner
        real = (self._area > 0) & (self._area[index] > 0)
        out: Array = np.divide(inner, union, out=np.zeros_like(inner), where=real)
        return out


def suppress(scores: Array, overlap: Overlap, limits: SuppressionLimits) -> Array:
    """Return the indices of the selected boxes, int32, by descending score, then by index.

    Source: ``NonMaxSuppressionOp`` of TensorFlow.
    """
    candidates = np.flatnonzero(scores > limits.score)
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    free = np.ones(len(scores), dtype=bool)
    indices: list[int] = []
    for index in order.tolist():
        if len(indices) >= limits.count:
            break
        if free[index]:
            indices.append(index)
            spend(_COST * len(scores) + STEP, _WHAT)
            free &= ~(overlap(index) > limits.overlap)
    return np.array(indices, dtype=np.int32)


def suppress_softly(
    scores: Array, overlap: Overlap, limits: SuppressionLimits, sigma: float
) -> tuple[Array, Array]:
    """Select boxes, reducing the scores of those that overlap selected ones.

    Returns:
        The selected indices, int32, and their reduced scores.

    Source: Bodla et al., "Soft-NMS" (2017), as implemented in TensorFlow.
    """
    number = scores.dtype.type
    scale = number(-0.5) / number(sigma)
    factors: list[Array] = []
    indices: list[int] = []
    lowered: list[np.generic] = []
    heap = [(-float(s), i, 0) for i, s in enumerate(scores) if s > limits.score]
    heapq.heapify(heap)
    while heap and len(indices) < limits.count:
        score, index, seen = heapq.heappop(heap)
        before = after = number(-score)
        spend(STEP * max(len(indices) - seen, 1), _WHAT)
        for place in range(len(indices) - 1, seen - 1, -1):
            after *= factors[place][index]
            if after <= limits.score:
                break
        if after == before:
            spend(_COST * len(scores) + STEP, _WHAT)
            check_kept(scores.nbytes, _WHAT)
            indices.append(index)
            lowered.append(after)
            share = overlap(index)
            factors.append(np.exp(scale * share * share))
        elif after > limits.score:
            heapq.heappush(heap, (-float(after), index, len(indices)))
    return np.array(indices, dtype=np.int32), np.array(lowered, dtype=scores.dtype)
