"""Rounding the weights of a layer so that its outputs change as little as possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.parallel import for_each
from mobileprep.ops.numerics.windows import cuts

# Rows of matrices that are processed at once.
_BLOCK: Final = 128
# Rows and columns of a part of the moments, and groups of a part.
_PART: Final = 512
_GROUPS: Final = 32
# Numbers in the inputs that are multiplied at once, in single precision.
_MOST_INPUTS: Final = 1 << 22
# In steps: the largest weight is not exactly at the highest level after a division.
_SLACK: Final = 1e-3
_BLOCK_SLACK: Final = 0.03

# Smallest variance of a group's inputs, as a share of the largest mean square of a group.
_LEAST_LEVEL: Final = 1e-6


class Moments:
    """Sums over inputs of a layer, and over the errors of its outputs.

    Products are in float32, and sums of up to some thousand of them are added in float64. The mean
    of the first inputs is subtracted, because means may be much larger than deviations. Results do
    not depend on the number of threads.

    Args:
        weights: ``[groups, products, outputs]``.
        around_mean: whether the layer has a bias that corrects the means.
    """

    def __init__(self, weights: Array, *, around_mean: bool = True) -> None:
        self._weights = weights
        self._around_mean = around_mean
        groups, products, outputs = weights.shape
        self._squares = np.zeros((groups, products, products))
        self._products = np.zeros((groups, products, outputs))
        self._sum = np.zeros((groups, 1, products))
        self._errors = np.zeros((groups, 1, outputs))
        self._center: Array | None = None
        self._count = 0
        self._waiting: list[tuple[Array, Array]] = []

    def add(self, inputs: Array, outputs: Array) -> None:
        """Add rows.

        Args:
            inputs: float32 ``[groups, rows, products]``.
            outputs: what the layer should compute; float32 ``[groups, rows, outputs]``.
        """
        self._waiting.append((inputs, outputs))
        if sum(x.size for x, _ in self._waiting) >= _MOST_INPUTS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        x = np.concatenate([inputs for inputs, _ in self._waiting], axis=1)
        errors = np.concatenate([outputs for _, outputs in self._waiting], axis=1)
        self._waiting.clear()
        self._count += x.shape[1]

        def subtract(part: tuple[slice, slice]) -> None:
            errors[part] -= x[part] @ self._weights[part[0]]

        for_each(subtract, list(_parts(x.shape[0], x.shape[1])))
        if self._center is None:
            self._center = x.mean(axis=1, keepdims=True) * np.float32(self._around_mean)
        x -= self._center
        turned = x.transpose(0, 2, 1)

        def multiply(part: tuple[slice, slice]) -> None:
            group, rows = part
            before = slice(0, rows.stop)
            self._squares[group, rows, before] += turned[group, rows] @ x[group, :, before]
            self._products[group, rows] += turned[group, rows] @ errors[group]

        for_each(multiply, list(_parts(x.shape[0], x.shape[2])))
        self._sum += x.sum(axis=1, keepdims=True, dtype=np.float64)
        self._errors += errors.sum(axis=1, keepdims=True, dtype=np.float64)

    def damped(self, damping: float) -> tuple[Array, Array]:
        """Return second moments around the means, which the bias corrects, or around zero.

        Call this once, after all rows are added.

        Returns:
            Moments of the inputs with themselves, damped, ``[groups, products, products]``, and
            with the errors of the outputs, ``[groups, products, outputs]``.
        """
        self._flush()
        count = max(self._count, 1)
        mean, squares = self._sum / count * self._around_mean, self._squares
        turned = mean.transpose(0, 2, 1)
        for group, rows in _parts(*squares.shape[:2]):
            lower = squares[group, rows, : rows.start]
            squares[group, : rows.start, rows] = lower.transpose(0, 2, 1)
        squares /= count
        squares -= turned @ mean
        products = self._products / count - turned @ (self._errors / count)
        diagonal = np.einsum("gii->gi", squares)
        level = diagonal.mean(axis=1, keepdims=True)
        # A channel without a signal would be fitted to noise, and to the rounding of the moments.
        power = level + np.square(mean).mean(axis=2)
        level = np.maximum(level, _LEAST_LEVEL * power.max())
        diagonal += np.where(level > 0, damping * level, 1.0)
        return squares, products


def _parts(groups: int, length: int) -> Iterator[tuple[slice, slice]]:
    for group in cuts(groups, -(-groups // _GROUPS)):
        for part in cuts(length, -(-length // _PART)):
            yield group, part


def _blocks(length: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, length)) for start in range(0, length, _BLOCK)]


class RoundingProblem:
    """The least squared error of a layer's outputs, as a function of its weights.

    Args:
        squares: positive definite moments of the inputs, ``[groups, products, products]``.

    Raises:
        LinAlgError: they are not, or are not finite.
    """

    def __init__(self, squares: Array) -> None:
        # The first products to round come last: the others compensate for them.
        self._order = np.argsort(np.einsum("gii->gi", squares), axis=1, kind="stable")
        columns = np.take_along_axis(squares, self._order[:, np.newaxis, :], axis=2)
        self._lower = np.linalg.cholesky(self._sorted(columns))
        if not np.isfinite(self._lower).all():
            message = "the moments are not finite"
            raise np.linalg.LinAlgError(message)

    def solution(self, products: Array) -> Array:
        """Return ``x`` for which ``squares @ x = products``; ``[groups, products, outputs]``."""
        lower, out = self._lower, self._sorted(products)
        for rows in _blocks(out.shape[1]):
            out[:, rows] = np.linalg.solve(lower[:, rows, rows], out[:, rows])
            out[:, rows.stop :] -= lower[:, rows.stop :, rows] @ out[:, rows]
        upper = lower.transpose(0, 2, 1)
        for rows in reversed(_blocks(out.shape[1])):
            out[:, rows] = np.linalg.solve(upper[:, rows, rows], out[:, rows])
            out[:, : rows.start] -= upper[:, : rows.start, rows] @ out[:, rows]
        return self._restored(out)

    def levels(self, values: Array, low: float, high: float, steps: Array | None = None) -> Array:
        """Round weights one after the other; the remaining ones compensate for each error.

        Equals GPTQ with the order by activation, without the inverse of the moments.

        Args:
            values: weights in steps, ``[groups, products, outputs]``.
            low: the lowest value. Its level is the nearest one, and it keeps that level.
            high: the highest value, a whole number of steps above; it keeps its level, too.
            steps: the size of each weight's step, if they differ within a sum; the highest and
                lowest values may then be off by the rounding of steps to 8 significant bits.

        Returns:
            Whole numbers in float64, of the same shape.
        """
        values = self._sorted(values)
        sizes = np.ones((1, 1, 1)) if steps is None else self._sorted(steps)
        units, slack = (
            np.broadcast_to(sizes, values.shape),
            _SLACK if steps is None else _BLOCK_SLACK,
        )
        lowest = float(np.rint(low))
        highest = lowest + round(high - low)
        is_low, is_high = values <= low + slack, values >= high - slack
        lower = self._lower
        diagonal = np.einsum("gii->gi", lower)[:, :, np.newaxis]
        levels, errors = np.empty_like(values), np.empty_like(values)
        carried = np.zeros_like(values)
        for rows in reversed(_blocks(values.shape[1])):
            for at in reversed(range(rows.start, rows.stop)):
                moved = values[:, at] + carried[:, at] / (diagonal[:, at] * units[:, at])
                nearest = np.clip(np.rint(moved), lowest, highest)
                upper = np.where(is_high[:, at], highest, nearest)
                levels[:, at] = np.where(is_low[:, at], lowest, upper)
                errors[:, at] = (values[:, at] - levels[:, at]) * units[:, at]
                line = lower[:, at, rows.start : at, np.newaxis]
                carried[:, rows.start : at] += line * errors[:, at, np.newaxis]
            turned = lower[:, rows, : rows.start].transpose(0, 2, 1)
            carried[:, : rows.start] += turned @ errors[:, rows]
        return self._restored(levels)

    def _sorted(self, values: Array) -> Array:
        return np.take_along_axis(values, self._order[:, :, np.newaxis], axis=1)

    def _restored(self, values: Array) -> Array:
        out = np.empty_like(values)
        np.put_along_axis(out, self._order[:, :, np.newaxis], values, axis=1)
        return out
