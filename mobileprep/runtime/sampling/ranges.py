"""The range of values to draw for an input, by its type, its name and the first ops behind it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.runtime.sampling.sizes import is_long, setting

# What inputs are fed as: shares, signed shares, bytes.
_USUAL: Final = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
_USUAL_SOUND: Final = ((-1.0, 1.0), (-32768.0, 32767.0))
# The width of the range that layers are given: from -1 to 1.
_WIDTH: Final = 2.0
# How many powers of ten in width outweigh being off the middle by half the width.
_WIDTH_COUNTS: Final = 0.3
# From here on none of the usual ranges fits.
_UNFIT: Final = 1.0
_STATE: Final = re.compile(r"(.*[/_])?(hidden|cell|rnn|lstm|gru)?_?states?(_\w+)?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class ValueRange:
    """The least and the greatest value to draw, and what tells so.

    Args:
        low: the least.
        high: the greatest.
        reason: in words, for the report; empty where nothing tells.
        is_of_graph: whether constants of the graph show the range, and not a name or a type.
    """

    low: float
    high: float
    reason: str = ""
    is_of_graph: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return self.low, self.high

    def __str__(self) -> str:
        told = self.reason or "nothing in the graph tells the range"
        ends = f"{self.low:.4g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"
        return f"{ends} ({told})"


def value_ranges(fed: FedTensor, ops: FirstOps) -> tuple[ValueRange, ...]:
    """The ranges to try, likeliest first; one alone where something tells.

    Args:
        fed: an input of numbers.
        ops: what the first ops tell of it.
    """
    limits = type_limits(fed.dtype)
    if limits is not None:
        return (ValueRange(*limits, f"it is {fed.dtype.short}"),)
    if not fed.dtype.is_floating:
        return _whole_numbers(fed, ops)
    if ops.limits is not None:
        return (ValueRange(*ops.limits, "the graph states it", is_of_graph=True),)
    steered = setting(fed, ops)
    if steered is not None:
        reason = "from its name" if ops.probability is None else "it turns the dropout off"
        return (ValueRange(steered, steered, reason),)
    if _STATE.match(fed.ref.node):
        return (ValueRange(-0.5, 0.5, "it is named as a state"),)
    usual: Sequence[tuple[float, float]] = _USUAL
    if ops.is_sound or is_long(fed.shape or ()):
        usual = _USUAL_SOUND
    scaled = [layer for layer in ops.layers if layer != (1.0, 0.0)]
    if scaled and len(scaled) == len(ops.layers):
        reason = "the first operations scale it so"
        if not scaled[0][1] and not ops.is_sound:
            # What is only multiplied was not meant to lie around zero.
            usual = [ends for ends in usual if ends[0] >= 0] or usual
        low, high = min(usual, key=lambda ends: _unfitness(ends, *scaled[0]))
        if not ops.is_picture and _unfitness((low, high), *scaled[0]) > _UNFIT:
            # Measurements of their own kind, less their mean and over their deviation.
            low, high = _undone(*scaled[0])
        return (ValueRange(low, high, reason, is_of_graph=True),)
    return tuple(ValueRange(low, high) for low, high in usual)


def type_limits(dtype: DType) -> tuple[int, int] | None:
    """The range of a type of 8 bits, which inputs use whole; None for other types."""
    kind = dtype.numpy
    if kind is None or kind.itemsize != 1 or kind.kind not in "iu":
        return None
    limits = np.iinfo(kind)
    return int(limits.min), int(limits.max)


def _whole_numbers(fed: FedTensor, ops: FirstOps) -> tuple[ValueRange, ...]:
    if ops.rows is not None:
        return (ValueRange(0, ops.rows - 1, "it chooses rows of a table"),)
    if ops.is_picture:
        return (ValueRange(0, 255, f"it is a picture of {fed.dtype.short}"),)
    return (ValueRange(0, 1),)


def _undone(scale: float, offset: float) -> tuple[float, float]:
    """What is scaled to the range from -2 to 2."""
    ends = sorted((end - offset) / scale for end in (-_WIDTH, _WIDTH))
    return ends[0], ends[1]


def _unfitness(ends: tuple[float, float], scale: float, offset: float) -> float:
    """How far a range, once scaled, is from lying around zero with a width of two."""
    low, high = sorted(scale * end + offset for end in ends)
    width = high - low
    off_middle = abs(low + high) / 2 / width
    return off_middle + _WIDTH_COUNTS * abs(math.log10(width / _WIDTH))
