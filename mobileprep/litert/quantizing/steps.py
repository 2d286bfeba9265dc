"""Which real numbers integers stand for, and constants as such integers."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Quantization
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array

Range = tuple[float, float]

_LARGEST: Final = {DType.INT8: 127, DType.INT16: 32767}
_LOWEST_BYTE: Final = -128
# How many steps lie between the ends of a range.
_COUNTS: Final = {DType.INT8: 255, DType.INT16: 2 * 32767}
# The upper end where a tensor is zero throughout. A larger one would give sums with the tensor a
# coarser scale, as the runtime bounds the quotient of the two.
_UNIT: Final = 1.0
# Where the values of a tensor are too small for the factors of the kernels.
_LEAST_SCALE: Final = 1e-10
# Half of what the sums of a layer can hold.
_MOST_BIAS: Final = {DType.INT32: 2.0**30, DType.INT64: 2.0**39}


@dataclass(frozen=True)
class IntegerSteps:
    """Integers of a tensor: each stands for ``scale * (integer - zero)``.

    Args:
        kind: int8 or int16.
        scale: positive, a float32.
        zero: what stands for 0.0.
    """

    kind: DType
    scale: float
    zero: int

    @property
    def quantization(self) -> Quantization:
        """The same as the file has it."""
        return Quantization(np.array([self.scale], np.float32), np.array([self.zero], np.int64))

    @property
    def span(self) -> Range:
        """The least and the greatest number."""
        most = _LARGEST[self.kind]
        least = _LOWEST_BYTE if self.kind is DType.INT8 else -most
        return (least - self.zero) * self.scale, (most - self.zero) * self.scale

    def integers(self, values: Array) -> Array:
        """Finite floats as the integers next to them; beyond the range, its ends."""
        limits = np.iinfo(self.kind.numpy)
        rounded = np.rint(values.astype(np.float64) / self.scale) + self.zero
        found: Array = np.clip(rounded, limits.min, limits.max).astype(self.kind.numpy)
        return found


def steps_of(span: Range, kind: DType, least: float = 0.0) -> IntegerSteps:
    """The steps for a range, which is widened to hold zero: int8 uses it all, int16 is symmetric.

    Args:
        span: finite ends, in order.
        kind: int8 or int16.
        least: the least scale; narrower ranges are widened.
    """
    low, high = min(span[0], 0.0), max(span[1], 0.0)
    if kind is DType.INT16:
        low, high = -max(-low, high), max(-low, high)
    size = (high - low) / _COUNTS[kind]
    if size == 0:
        low, high, size = 0.0, _UNIT, _UNIT / _COUNTS[kind]
    wider = max(max(least, _LEAST_SCALE) / size, 1.0)
    scale = float(np.float32(size * wider))
    if kind is DType.INT16:
        return IntegerSteps(kind, scale, 0)
    zero = _LOWEST_BYTE - round(low * wider / scale)
    return IntegerSteps(kind, scale, min(max(zero, _LOWEST_BYTE), _LARGEST[kind]))


def span_of(values: Array) -> Range | None:
    """The least and the greatest of some numbers; None where one is not finite."""
    if not values.size:
        return 0.0, 0.0
    low, high = float(values.min()), float(values.max())
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def union(one: Range | None, other: Range | None) -> Range | None:
    """The range that holds two; None counts as nothing."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def quantized_bias(
    values: Array, scale: float, weights: Quantization, kind: DType
) -> tuple[Array, Quantization]:
    """A bias on the steps of a layer's sums: the input's scale times that of the weights.

    Args:
        values: float32, one for each output channel.
        scale: the input's.
        weights: their scales, one for all channels or one for each.
        kind: int32 or int64.
    """
    scales = (np.float64(scale) * weights.scales.astype(np.float64)).astype(np.float32)
    rounded = np.rint(values.astype(np.float64) / scales.astype(np.float64)).astype(kind.numpy)
    return rounded, Quantization(scales, np.zeros(scales.shape, np.int64), 0)


def least_scales(values: Array, scale: float, kind: DType) -> Array:
    """The least scales of weights with which a layer's sums can hold the bias of each channel."""
    found: Array = np.abs(values.astype(np.float64)) / (scale * _MOST_BIAS[kind])
    return found
