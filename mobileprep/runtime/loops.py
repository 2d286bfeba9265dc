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

    A run takes what enters, then what comes from outside otherwise, and gives the loop's exits.

    Args:
        plan: one iteration. Fed are, in this order: what enters, value and place for each head,
            what comes from outside; fetched what is carried on to the next iteration, the exits.
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
        left: list[Any] = [DEAD] * self.exits
        while any(x is not DEAD for x in merged):
            context.count_iteration(self.name, self.where)
            pairs = [x for pair in zip(merged, places, strict=True) for x in pair]
            results = run_plan(self.plan, [*entered, *pairs, *outside], context, self.where)
            carried, leaving = results[: -self.exits or None], results[len(results) - self.exits :]
            left = [new if new is not DEAD else old for old, new in zip(left, leaving, strict=True)]
            merged = [carried[h.later] for h in self.heads]
            places = [np.asarray(h.places[1], np.int32) for h in self.heads]
            entered = [x if c else DEAD for x, c in zip(entered, self.constant, strict=True)]
        return left
