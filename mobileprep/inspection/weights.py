"""How the values of constants are spread, for the report page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from mobileprep.errors import MobileprepError
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array, Tensor

_MOST_TENSORS: Final = 32
_FEWEST_ELEMENTS: Final = 16
_BINS: Final = 32
# So many show the shape of a distribution; to look at millions would slow builds down. They lie in
# runs, so that little of a file is read for them.
_LOOKED_AT: Final = 1 << 16
_RUNS: Final = 16


@dataclass(frozen=True)
class Spread:
    """The values of a constant.

    Args:
        node: its name.
        dtype: its type.
        elements: how many it has.
        low: the least that is looked at; NaN and infinity are left out.
        high: the greatest.
        zeros: the share of those looked at that are 0.
        counts: how many lie in each of equal steps from ``low`` to ``high``.
        looked_at: how many are looked at: of large ones, some runs at equal distances.
    """

    node: str
    dtype: str
    elements: int
    low: float
    high: float
    zeros: float
    counts: tuple[int, ...]
    looked_at: int


def weight_spreads(graph: Graph) -> tuple[Spread, ...]:
    """Those of the 32 largest constants of numbers, by bytes, the largest first."""
    chosen = sorted(_constants(graph), key=lambda c: (-c[1].nbytes, c[0]))[:_MOST_TENSORS]
    found = (_spread(name, tensor) for name, tensor in chosen)
    return tuple(spread for spread in found if spread is not None)


def _constants(graph: Graph) -> Iterator[tuple[str, Tensor]]:
    for node in graph:
        value = node.attrs.get("value")
        if node.op != "Const" or value is None or value.kind != "tensor":
            continue
        tensor = value.value
        kind = tensor.dtype.numpy
        if tensor.size >= _FEWEST_ELEMENTS and kind is not None and _is_number(kind):
            yield node.name, tensor


def _is_number(kind: object) -> bool:
    # Those of ml_dtypes, such as bfloat16, are of kind V.
    return np.dtype(kind).kind in "fiuV"  # type: ignore[call-overload]


def _spread(name: str, tensor: Tensor) -> Spread | None:
    try:
        flat = tensor.array().reshape(-1)
    except MobileprepError:
        return None  # what does not fit its shape is told where it is run
    values = _sample(flat).astype(np.float64)
    looked_at = values.size
    finite = np.isfinite(values)
    if not finite.all():
        values = values[finite]
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    step = (high - low) / _BINS
    # Ends so far apart that their difference overflows are no weights of a network.
    if not np.isfinite(step):
        return None
    zeros = values.size - int(np.count_nonzero(values))
    # In place, for new memory takes longer than the arithmetic.
    values -= low
    if step:
        values /= step
    places = values.astype(int)
    np.minimum(places, _BINS - 1, out=places)
    counts = np.bincount(places, minlength=_BINS)
    return Spread(
        *(name, tensor.dtype.short, tensor.size, low, high),
        round(zeros / values.size, 4),
        tuple(counts.tolist()),
        looked_at,
    )


def _sample(flat: Array) -> Array:
    if flat.size <= _LOOKED_AT:
        return flat
    length = _LOOKED_AT // _RUNS
    starts = [(flat.size - length) * run // (_RUNS - 1) for run in range(_RUNS)]
    return np.concatenate([flat[start : start + length] for start in starts])
