"""Numbers for the scales of channels: which are one and the same, and which have to stay one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mobileprep.frozen import dataclass
from mobileprep.ir.refs import Ref

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class ScaledTensor:
    """A tensor whose channels may be scaled.

    Args:
        ids: for each index along the channels' dimension the number of its scale.
        axis: that dimension, counted from the last: -1.
        rank: how many dimensions the tensor has; None where that is not known.
        ties: what puts constants into the branch or the loop in which the tensor is.
    """

    ids: Ids
    axis: int
    rank: int | None
    ties: tuple[Ref, ...] = ()

    def like(self, other: ScaledTensor) -> bool:
        """Whether another tensor has as many channels in the same dimension of as many."""
        same = (self.axis, self.rank) == (other.axis, other.rank)
        return same and self.rank is not None and len(self.ids) == len(other.ids)

    def at(self, axis: int, rank: int | None) -> ScaledTensor:
        """The same channels in another dimension."""
        return replace(self, axis=axis, rank=rank)


class ScaleVariables:
    """Scales by number. Equal ones are joined; one that is pinned is one, for a reason."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._reasons: dict[int, str] = {}

    def fresh(self, count: int) -> Ids:
        """Numbers of new scales."""
        start = len(self._parents)
        self._parents += range(start, start + count)
        return np.arange(start, start + count)

    def join(self, first: Ids, second: Ids) -> None:
        """Let scales be equal, pair by pair."""
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            one, other = self._root(a), self._root(b)
            if one == other:
                continue
            self._parents[other] = one
            if other in self._reasons:
                self._reasons.setdefault(one, self._reasons.pop(other))

    def pin(self, ids: Iterable[Any], reason: str) -> None:
        """Let scales be one."""
        for i in ids:
            self._reasons.setdefault(self._root(int(i)), reason)

    def reason(self, ids: Ids) -> str:
        """Why the first pinned scale of some is pinned; empty where one is free."""
        reasons = [self._reasons.get(self._root(i), "") for i in ids.tolist()]
        return reasons[0] if reasons and all(reasons) else ""

    def roots(self) -> Ids:
        """For each number one that stands for all that are joined with it; -1 where pinned."""
        found = [self._root(i) for i in range(len(self._parents))]
        return np.array([-1 if r in self._reasons else r for r in found], dtype=np.int64)

    def _root(self, i: int) -> int:
        parents = self._parents
        while parents[i] != i:
            parents[i] = i = parents[parents[i]]
        return i
