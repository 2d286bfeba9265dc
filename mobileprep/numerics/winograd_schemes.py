"""Where Winograd's minimal filtering pays, and how many outputs are then made at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from mobileprep.ir.tensor import Array
from mobileprep.numerics.windows import Window


class Axis(NamedTuple):
    """How filters are applied along an axis.

    Args:
        outputs: how many adjacent outputs come of one patch.
        taps: elements of the filter.
    """

    outputs: int
    taps: int

    @property
    def points(self) -> int:
        """Elements of a patch, and products that it takes for each pair of channels."""
        return self.outputs + self.taps - 1


class Scheme(NamedTuple):
    """How filters are applied along height and along width."""

    height: Axis
    width: Axis

    def patches(self, positions: Sequence[int]) -> tuple[int, ...]:
        """How many patches there are along each axis; the last may have outputs too many."""
        return tuple(-(-n // axis.outputs) for n, axis in zip(positions, self, strict=True))


class _Choice(NamedTuple):
    """A scheme, and from how many products of channels and filters, and patches, on it pays."""

    scheme: Scheme
    products: int
    patches: int = 40


_THREE: Final = Axis(4, 3)
_THREE_SHORT: Final = Axis(2, 3)
_FIVE: Final = Axis(2, 5)

# By the window's size, that of fewer products first. Filters along one axis save less: what is
# saved goes into reading the transformed filters, which are larger.
_CHOICES: Final[dict[tuple[int, ...], tuple[_Choice, ...]]] = {
    (3, 3): (
        _Choice(Scheme(_THREE, _THREE), 1 << 11),
        _Choice(Scheme(_THREE_SHORT, _THREE_SHORT), 1 << 14, 24),
    ),
    (5, 5): (_Choice(Scheme(_FIVE, _FIVE), 1 << 11),),
}


def winograd_scheme(shape: Sequence[int], filters: Array, window: Window) -> Scheme | None:
    """How to convolve with few multiplications, or None where plain sums are faster.

    Args:
        shape: of the input, [batch, height, width, channels].
        filters: [*window, channels, filters].
        window: how the filters slide.
    """
    plain = replace(window, strides=(1, 1), dilations=(1, 1))
    if window != plain or shape[-1] != filters.shape[2]:
        return None
    products = filters.shape[2] * filters.shape[3]
    for scheme, least, patches in _CHOICES.get(window.size, ()):
        count = shape[0] * math.prod(scheme.patches(window.positions(shape[1:-1])))
        if products >= least and count >= patches:
            return scheme
    return None
