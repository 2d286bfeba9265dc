"""Which layers to leave out of eight bits: the next levels to try, from what tries came to.

A layer is at one of three levels: it computes in eight bits; its weights alone are stored in them,
which costs no bytes of the file; or all of it is float. Layers are moved in the order of the damage
that their quantization does, so that two numbers say what is tried. Each is bisected, as if more
layers out of eight bits were always better: where they are not, the result holds all the same, but
another with fewer may hold too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

from mobileprep.frozen import dataclass


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


_Found = TypeVar("_Found")
_Asking: TypeAlias = Generator[Levels, bool, _Found]


def next_levels(layers: int, tries: Sequence[Try]) -> Levels | None:
    """What to try next; None where nothing is left that could be better.

    All layers in eight bits come first; then the fewest that have to have their weights alone in
    them. If that misses for all, the fewest that have to be float beside, and then again the fewest
    of the others whose weights alone are in eight bits. At least one layer stays quantized.

    Args:
        layers: how many there are.
        tries: what the tries before came to.
    """
    held = {one.levels: one.holds for one in tries}
    search = _search(layers)
    try:
        levels = next(search)
        while levels in held:
            levels = search.send(held[levels])
    except StopIteration:
        return None
    return levels


def _search(layers: int) -> _Asking[None]:
    """Asks for levels one after another whether they hold."""
    found = yield from _fewest(layers, lambda count: Levels(0, count))
    if found is not None or layers < 2:
        return
    floats = yield from _fewest(layers - 1, lambda count: Levels(count, layers - count))
    if floats is not None:
        yield from _fewest(layers - floats, lambda count: Levels(floats, count))


def _fewest(last: int, levels: Callable[[int], Levels]) -> _Asking[int | None]:
    """The least count up to ``last`` whose levels hold, by bisection; None without."""
    if (yield levels(0)):
        return 0
    if last == 0 or not (yield levels(last)):
        return None
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield levels(middle)) else (middle, high)
    return high


def best_try(tries: Sequence[Try]) -> Try | None:
    """Of the tries that hold, the one with the fewest layers out of eight bits; None without."""
    return min((one for one in tries if one.holds), key=lambda one: one.levels, default=None)


def nearest_try(tries: Sequence[Try]) -> Try:
    """The try that misses its limits by least."""
    return min(tries, key=lambda one: (one.shortfall, one.levels))


def shortfall_of(recorded: float | None) -> float:
    """The shortfall that a record holds, where None is infinity."""
    return math.inf if recorded is None else recorded
