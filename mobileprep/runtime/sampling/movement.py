"""How much a model's outputs answer to its inputs, so that comparing them means something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.numerics.differences import is_counted, peak, wide_type

MOVES: Final = 0.01
"""What an output moves at least, as a share of its largest magnitude, where it answers."""
_DATA: Final = "samples of the app's own tell more: 'check: {data: FILE.npz}' in a recipe"

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def movements(runs: Sequence[Sequence[Array]]) -> list[float | None]:
    """For each output how far it moves from sample to sample, as a share of its peak.

    Args:
        runs: the outputs of each run.

    Returns:
        shares from 0; of values that are counted, the share of elements that change. Outputs of
        changing shape move by 1, outputs without elements or numbers by 0. None where there is
        a single sample, and nothing to compare.
    """
    return [_movement(column) for column in zip(*runs, strict=True)]


def standing_still(
    names: Sequence[str], runs: Sequence[Sequence[Array]], fed: Mapping[str, str] = _NOTHING
) -> list[str]:
    """What makes a comparison of outputs worth less than it seems, a sentence each.

    Args:
        names: the outputs.
        runs: their values in each run.
        fed: what each input was fed, in words.
    """
    columns = list(zip(*runs, strict=True))
    empty = [n for n, column in zip(names, columns, strict=True) if not sum(a.size for a in column)]
    lost = [
        name
        for name, column in zip(names, columns, strict=True)
        if name not in empty and not _has_values(column)
    ]
    still = [
        f"{name!r} by {share:.2g}"
        for name, share in zip(names, movements(runs), strict=True)
        if share is not None and share < MOVES and name not in {*empty, *lost}
    ]
    told = []
    if still:
        told.append(
            f"outputs hardly move from sample to sample: {', '.join(still)} of the peak; the "
            f"check proves little of them; {_DATA}"
        )
    if empty:
        listed = ", ".join(map(repr, empty))
        told.append(
            f"outputs have no elements: {listed}; the check proves nothing of them; {_DATA}"
        )
    if lost:
        shown = f"fed: {', '.join(f'{name} {text}' for name, text in fed.items())}; " if fed else ""
        listed = ", ".join(map(repr, lost))
        told.append(
            f"the source gives nothing but NaN or infinity for {listed}: the samples are unusable; "
            f"{shown}{_DATA}"
        )
    return told


def largest_movement(runs: Sequence[Sequence[Array]]) -> float:
    """How far the output moves that moves the most; 1 where there is nothing to compare."""
    found = movements(runs)
    return max((1.0 if moved is None else moved for moved in found), default=1.0)


def _movement(column: Sequence[Array]) -> float | None:
    if len({array.shape for array in column}) > 1:
        return 1.0
    if column[0].size == 0:
        return 0.0
    if len(column) == 1:
        if column[0].ndim == 0 or len(column[0]) < 2:
            return None
        column = list(column[0])
    if is_counted(column[0]):
        first = column[0]
        return max(float(np.mean(first != other)) for other in column[1:])
    wide = np.stack([array.astype(wide_type(array)) for array in column])
    finite = np.isfinite(wide).all(axis=0)
    highest = peak(column)
    if not finite.any() or not highest:
        return 0.0
    values = wide[:, finite]
    return float(np.abs(values - values[:1]).max() / highest)


def _has_values(column: Sequence[Array]) -> bool:
    """Whether any element is text, or a finite number."""
    return any(a.dtype.kind in "OSU" or bool(np.isfinite(a).any()) for a in column if a.size)
