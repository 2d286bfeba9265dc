"""Running a while loop of control flow v1."""

from __future__ import annotations

from typing import Any

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import DEAD, Values
from mobileprep.runtime.execution_plan import ExecutionPlan
from mobileprep.runtime.executor import run_plan


@dataclass(frozen=True, slots=True)
class Head:
    """A Merge at the head of a loop.

    Args:
        first: which tensor it takes in the first iteration, of those that enter.
        later: which it takes from then on, of those carried on.
        places: which of its inputs these two are.
    """

    first: int
    later: int
    places: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Loop:
    """A while loop, run iteration by iteration.

    A run takes the tensors that enter, then the other tensors from outside, and returns the exits.
    It ends after the iteration in which the condition is false or dead.

    Args:
        plan: one iteration. Its feeds are, in this order: the tensors that enter, value and index
            for each head, the other tensors from outside. Its fetches are the condition, the
            tensors for the next iteration, and the exits.
        constant: for each tensor that enters whether it is there in every iteration.
        heads: the merges at the head.
        exits: how many tensors leave the loop.
        name: the name of the node that says whether to go on.
        where: the graph's name, for messages.
    """

    plan: ExecutionPlan
    constant: tuple[bool, ...]
    heads: tuple[Head, ...]
    exits: int
    name: str
    where: str

    def __call__(self, context: RunContext, inputs: Values) -> Values:
        """The values of the exits."""
        entered = list(inputs[: len(self.constant)])
        outside = inputs[len(self.constant) :]
        merged = [entered[h.first] for h in self.heads]
        places = [np.asarray(h.places[0], np.int32) for h in self.heads]
        exits: list[Any] = [DEAD] * self.exits
        goes_on = any(x is not DEAD for x in merged)
        while goes_on:
            context.count_iteration(self.name, self.where)
            pairs = [x for pair in zip(merged, places, strict=True) for x in pair]
            results = run_plan(self.plan, [*entered, *pairs, *outside], context, self.where)
            condition, *carried = results[: len(results) - self.exits]
            goes_on = condition is not DEAD and bool(condition)
            leaving = results[len(results) - self.exits :]
            exits = [
                new if new is not DEAD else old for old, new in zip(exits, leaving, strict=True)
            ]
            merged = [carried[h.later] for h in self.heads]
            places = [np.asarray(h.places[1], np.int32) for h in self.heads]
            entered = [x if c else DEAD for x, c in zip(entered, self.constant, strict=True)]
        return exits
