"""Choose the operators of an int8 program to compute more precisely, from the error of each tensor.

The error of the outputs is estimated as the sum of the squared errors that single roundings cause.
A tensor is not rounded to 8 bits if the operator that computes it and the operators that read it
all have 16-bit activations, or compute in float. So exceptions are useful in groups, and a group
of operators without multiply-accumulates costs next to nothing. The estimate only proposes; an
exception is kept if the outputs of the program with it are better.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

Level: TypeAlias = Literal[0, 1, 2]
"""How a unit computes: in int8, with 16-bit activations, or in float."""
WIDE: Final[Level] = 1
FLOAT: Final[Level] = 2

# Cost of an exception, next to its share of the multiply-accumulates: for each exception, for its
# share of all computed elements, and for its share of the weights, which float stores in 32 bits.
_EACH: Final = 1e-4
_ELEMENTS: Final = 0.02
_BYTES: Final = 0.1
# An exception must remove this share of the estimated error, and a step of the measured one.
_LEAST_GAIN: Final = 2e-3
# Share of the estimated error to remove before the error is measured.
_STEP: Final = 0.1
# Rounding error of sums of shares.
_SLACK: Final = 1e-9


class Unit(Struct, frozen=True):
    """Operators that compute in the same way.

    Args:
        macs: their share of the multiply-accumulates of the program.
        elements: their share of the elements that the program computes.
        weights: their share of the elements of weights.
        is_fixed: whether they cannot be exceptions.
    """

    macs: float = 0.0
    elements: float = 0.0
    weights: float = 0.0
    is_fixed: bool = False


class Rounding(Struct, frozen=True):
    """A tensor that int8 operators compute or read.

    Args:
        writer: the unit that computes it in int8; None for other operators and inputs.
        readers: the units that read it in int8.
        error: squared error of the outputs if it is rounded for all readers, relative to the
            outputs.
        by_reader: the same if it is rounded for one reader.
        has_others: whether operators in float or outputs read it, too.
    """

    writer: int | None
    readers: tuple[int, ...]
    error: float
    by_reader: Mapping[int, float] = field(default_factory=dict)
    has_others: bool = False


class Step(Struct, frozen=True):
    """Exceptions to add to those of the steps before.

    Args:
        units: the new level of each unit.
        macs: share of the multiply-accumulates in int8 after the step.
        integers: the same in int8 or with 16-bit activations.
        error: measured squared error of the outputs after the step.
    """

    units: Mapping[int, Level]
    macs: float
    integers: float
    error: float


def plan_exceptions(
    units: Sequence[Unit],
    roundings: Sequence[Rounding],
    weights: Mapping[int, float],
    measure: Callable[[Mapping[int, Level]], float],
    *,
    int8_macs: float,
    min_int8_macs: float,
) -> tuple[Step, ...]:
    """Return exceptions in the order of their use, the most useful first.

    Exceptions are added by the estimated error that they remove for their cost, unless they would
    exceed the limit. A step ends after a share of the estimated error, if the measured error is
    below that of all steps before. Otherwise the next exceptions join it: the error of a few
    samples may rise by chance where each error alone falls.

    Args:
        units: the units of the program.
        roundings: the rounded tensors.
        weights: squared error of the outputs from quantized weights, for units that have them.
        measure: returns the squared error of the outputs with exceptions, relative to the outputs.
        int8_macs: share of the multiply-accumulates in int8 without exceptions.
        min_int8_macs: smallest share to keep, unless it is smaller already.
    """
    plan = _Plan(units, roundings, weights)
    moves = list(dict.fromkeys(_moves(units, roundings, weights)))
    steps: list[Step] = []
    step: dict[int, Level] = {}
    integers = int8_macs
    error, end = measure({}), plan.error * (1 - _STEP)
    while True:
        best: tuple[float, dict[int, Level]] | None = None
        for move in moves:
            new = {unit: level for unit, level in move if level > plan.levels[unit]}
            macs = sum(units[unit].macs for unit in new if not plan.levels[unit])
            if not new or (macs and int8_macs - macs < min_int8_macs - _SLACK):
                continue
            gain = plan.gain(new)
            if gain < plan.error * _LEAST_GAIN:
                continue
            score = gain / plan.cost(new)
            if best is None or score > best[0]:
                best = score, new
        if best is not None:
            new = best[1]
            int8_macs -= sum(units[unit].macs for unit in new if not plan.levels[unit])
            integers -= sum(units[unit].macs for unit, level in new.items() if level == FLOAT)
            plan.make(new)
            step.update(new)
        if step and (best is None or plan.error <= end):
            after = measure({unit: level for unit, level in enumerate(plan.levels) if level})
            end = plan.error * (1 - _STEP)
            if after < error * (1 - _LEAST_GAIN):
                error = after
                steps.append(Step(step, int8_macs, integers, error))
                step = {}
        if best is None:
            return tuple(steps)


_Move: TypeAlias = tuple[tuple[int, Level], ...]


def _moves(
    units: Sequence[Unit], roundings: Sequence[Rounding], weights: Mapping[int, float]
) -> Iterator[_Move]:
    """Yield the groups of units that may be excepted together."""
    groups = [
        (group, rounding.writer)
        for rounding in roundings
        for group in _groups(units, rounding)
        if group and not any(units[unit].is_fixed for unit in group)
    ]
    by_unit: dict[int, list[frozenset[int]]] = {}
    for group, _ in groups:
        yield _wide(group)
        for unit in group:
            by_unit.setdefault(unit, []).append(group)
    # Two tensors in a row, which share the operator between them.
    for group, writer in groups:
        for other in () if writer is None else by_unit[writer]:
            if not other <= group and not group <= other:
                yield _wide(group | other)
    yield from (((unit, FLOAT),) for unit in weights if not units[unit].is_fixed)


def _groups(units: Sequence[Unit], rounding: Rounding) -> Iterator[frozenset[int]]:
    """Yield groups of units that must be excepted so that fewer readers round a tensor."""
    writer = frozenset(() if rounding.writer is None else (rounding.writer,))
    yield writer.union(rounding.readers)
    yield writer.union(reader for reader in rounding.readers if not units[reader].macs)
    yield from (writer | {reader} for reader in rounding.readers)
    if rounding.has_others:
        yield writer


def _wide(group: Collection[int]) -> _Move:
    return tuple((unit, WIDE) for unit in sorted(group))


class _Plan:
    """The levels of all units, and the error that remains."""

    def __init__(
        self, units: Sequence[Unit], roundings: Sequence[Rounding], weights: Mapping[int, float]
    ) -> None:
        self.levels: list[Level] = [0] * len(units)
        self._units = units
        self._roundings = roundings
        self._weights = weights
        self._of_unit: dict[int, list[int]] = {}
        for index, rounding in enumerate(roundings):
            for unit in {
                *rounding.readers,
                *(() if rounding.writer is None else (rounding.writer,)),
            }:
                self._of_unit.setdefault(unit, []).append(index)
        self.error = sum(map(self._error, roundings)) + sum(weights.values())

    def cost(self, new: Mapping[int, Level]) -> float:
        """Return the cost of new levels, in shares of the multiply-accumulates."""
        total = 0.0
        for index, level in new.items():
            unit = self._units[index]
            total += _EACH + (unit.weights * _BYTES if level == FLOAT else 0.0)
            if not self.levels[index]:
                total += unit.macs + unit.elements * _ELEMENTS
        return total

    def gain(self, new: Mapping[int, Level]) -> float:
        """Return the error that new levels remove."""
        touched = dict.fromkeys(i for unit in new for i in self._of_unit.get(unit, ()))
        before = sum(self._error(self._roundings[i]) for i in touched)
        kept = {unit: self.levels[unit] for unit in new}
        self._set(new)
        after = sum(self._error(self._roundings[i]) for i in touched)
        self._set(kept)
        floats = (u for u, level in new.items() if level == FLOAT and kept[u] != FLOAT)
        return before - after + sum(self._weights.get(unit, 0.0) for unit in floats)

    def make(self, new: Mapping[int, Level]) -> None:
        """Set new levels."""
        self.error = max(self.error - self.gain(new), 0.0)
        self._set(new)

    def _set(self, levels: Mapping[int, Level]) -> None:
        for unit, level in levels.items():
            self.levels[unit] = level

    def _error(self, rounding: Rounding) -> float:
        """Return the error that a tensor causes with the current levels."""
        if rounding.writer is not None and not self.levels[rounding.writer]:
            return rounding.error
        rounded = [r for r in rounding.readers if not self.levels[r]]
        if len(rounded) == len(rounding.readers) and not rounding.has_others:
            return rounding.error
        return sum(rounding.by_reader.get(reader, rounding.error) for reader in rounded)
