"""Non-maximum suppression: of boxes that overlap, the ones with the highest scores."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from mobileprep.ir.tensor import Array


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept.

    Args:
        count: how many boxes at most.
        overlap: boxes that overlap more than this with a kept one are dropped.
        score: only boxes with more than this.
    """

    count: int
    overlap: np.generic
    score: np.generic


def overlaps(boxes: Array) -> Array:
    """The intersection over union of each pair of boxes.

    Args:
        boxes: [count, 4], two opposite corners each, as y, x, y, x.

    Returns:
        [count, count] of the same type; 0 for boxes without area.
    """
    corners = boxes.reshape(-1, 2, 2)
    low, high = corners.min(axis=1), corners.max(axis=1)
    area = np.multiply.reduce(high - low, axis=1)
    shared = np.minimum(high[:, None], high[None]) - np.maximum(low[:, None], low[None])
    inner = np.multiply.reduce(np.maximum(shared, 0), axis=-1)
    union = area[:, None] + area[None] - inner
    real = (area[:, None] > 0) & (area[None] > 0)
    return np.divide(inner, union, out=np.zeros_like(inner), where=real)


def overlap_of_one(boxes: Array, index: int) -> Array:
    """One row of ``overlaps``."""
    corners = boxes.reshape(-1, 2, 2)
    low, high = corners.min(axis=1), corners.max(axis=1)
    area = np.multiply.reduce(high - low, axis=1)
    shared = np.minimum(high, high[index]) - np.maximum(low, low[index])
    inner = np.multiply.reduce(np.maximum(shared, 0), axis=-1)
    real = (area > 0) & (area[index] > 0)
    return np.divide(inner, area + area[index] - inner, out=np.zeros_like(inner), where=real)


def suppress(boxes: Array, scores: Array, limits: Limits) -> Array:
    """The indices of the boxes kept, int32, the highest score first.

    Source: ``NonMaxSuppressionOp`` of TensorFlow: of equal scores the lower index comes first.
    """
    return _greedy(scores, limits, lambda index: overlap_of_one(boxes, index))


def suppress_overlaps(matrix: Array, scores: Array, limits: Limits) -> Array:
    """As ``suppress``, with the overlap of each pair given."""
    return _greedy(scores, limits, lambda index: matrix[:, index])
