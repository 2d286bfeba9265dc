"""Numbers by name, of two builds."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mobileprep.report.comparison.model import Figure


def changed_figures(
    old: Mapping[str, float | None], new: Mapping[str, float | None]
) -> tuple[Figure, ...]:
    """The numbers that are others, in the new order; what is not finite is told as none."""
    pairs = (
        (name, _finite(old.get(name)), _finite(new.get(name)))
        for name in dict.fromkeys([*new, *old])
    )
    return tuple(Figure(name, a, b) for name, a, b in pairs if a != b)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
