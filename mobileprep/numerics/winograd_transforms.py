"""The matrices of Winograd's minimal filtering: short convolutions of few multiplications."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fractions import Fraction

# Where polynomials are evaluated besides infinity, by how many such points there are. Pairs of
# either sign near one lose least to rounding: Barabasz et al., "Error analysis and improving the
# accuracy of Winograd convolution for deep neural networks", 2020.
_POINTS: Final = {3: ("0", "1", "-1"), 5: ("0", "3/4", "-3/4", "3/2", "-3/2")}


class Transforms(NamedTuple):
    """Along one axis: outputs = output @ ((filters @ taps) * (inputs @ elements)).

    Args:
        output: [outputs, points].
        filters: [points, taps].
        inputs: [points, points].
    """

    output: NDArray[np.float64]
    filters: NDArray[np.float64]
    inputs: NDArray[np.float64]


@lru_cache(maxsize=8)
def transforms(outputs: int, taps: int) -> Transforms:
    """The transforms for some adjacent outputs of filters of some elements.

    Together they are 5 or 7, one more than there are points.

    Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016; made as
    Cook and Toom multiply polynomials, transposed.
    """
    from fractions import Fraction

    points = [Fraction(p) for p in _POINTS[outputs + taps - 2]]
    others = [[q for q in points if q != p] for p in points]
    output = [[p**i for p in points] + [Fraction(i == outputs - 1)] for i in range(outputs)]
    filters = [
        [p**j / math.prod(p - q for q in rest) for j in range(taps)]
        for p, rest in zip(points, others, strict=True)
    ]
    filters.append([Fraction(j == taps - 1) for j in range(taps)])
    inputs = [[*_with_roots(rest), 0] for rest in others]
    inputs.append(_with_roots(points))
    return _balanced(*(np.array(m, np.float64) for m in (output, filters, inputs)))


def _with_roots(roots: Sequence[Fraction]) -> list[Fraction | int]:
    """The coefficients of the product of x - root, that of x**0 first."""
    found: list[Fraction | int] = [1]
    for root in roots:
        raised = [0, *found]
        found = [a - root * b for a, b in zip(raised, [*found, 0], strict=True)]
    return found


def _balanced(
    output: NDArray[np.float64], filters: NDArray[np.float64], inputs: NDArray[np.float64]
) -> Transforms:
    """With the largest coefficient of each point near one, by powers of two, which are exact."""
    scales = [2.0 ** -np.round(np.log2(np.abs(m).max(axis=1))) for m in (filters, inputs)]
    return Transforms(
        output / (scales[0] * scales[1]), filters * scales[0][:, None], inputs * scales[1][:, None]
    )
