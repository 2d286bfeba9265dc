"""Which layers to leave out of eight bits: the next levels to try, from what tries came to.

A layer is at one of three levels: it computes in eight bits; its weights alone are stored in them,
which costs no bytes of the file; or all of it is float. Layers are moved in the order of the damage
that their quantization does, so that two numbers say what is tried. Each is bisected, as if more
layers out of eight bits were always better: where they are not, the result holds all the same, but
another with fewer may hold too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, order=True)
class Levels:
    """How many layers are out of eight bits; the less of them, the better.

    Args:
        floats: how many of the worst are float.
        weights: how many of the next worst have their weights alone in eight bits.
    """

    floats: int
    weights: int


@dataclass(frozen=True)
class Try:
    """What a try came to.

    Args:
        levels: what was tried.
        shortfall: how far limits are missed; 0 where all hold, infinite where nothing can be said.
    """

    levels: Levels
    shortfall: float

    @property
    def holds(self) -> bool:
        """Whether all limits hold."""
        return self.shortfall == 0


_Phase: TypeAlias = tuple[int, Callable[[int], Levels]]


def next_levels(layers: int, tries: Sequence[Try]) -> Levels | None:
    """What to try next; None where nothing is left that could be better.

    All layers in eight bits come first; then the fewest that have to have their weights alone in
    them; and if that misses for all, the fewest that have to be float beside. At least one layer
    stays quantized.

    Args:
        layers: how many there are.
        tries: what the tries before came to.
    """
    held = {one.levels: one.holds for one in tries}
    phases: tuple[_Phase, ...] = (
        (layers, lambda count: Levels(0, count)),
        (layers - 1, lambda count: Levels(count, layers - count)),
    )
    for last, levels in phases:
        if last < 0:
            return None
        found = _bisected(last, levels, held)
        if found is not None or held.get(levels(last), True):
            return found
    return None


def _bisected(
    last: int, levels: Callable[[int], Levels], held: Mapping[Levels, bool]
) -> Levels | None:
    """The next of ``levels(0)`` to ``levels(last)`` to try for the first that holds."""
    for end in (0, last):
        if levels(end) not in held:
            return levels(end)
        if held[levels(end)] == (end == 0):
            return None
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if levels(middle) not in held:
            return levels(middle)
        low, high = (low, middle) if held[levels(middle)] else (middle, high)
    return None


def best_try(tries: Sequence[Try]) -> Try | None:
    """Of the tries that hold, the one with the fewest layers out of eight bits; None without."""
    return min((one for one in tries if one.holds), key=lambda one: one.levels, default=None)


def nearest_try(tries: Sequence[Try]) -> Try:
    """The try that misses its limits by least."""
    return min(tries, key=lambda one: (one.shortfall, one.levels))


def shortfall_of(recorded: float | None) -> float:
    """The shortfall that a record holds, where None is infinity."""
    return math.inf if recorded is None else recorded
