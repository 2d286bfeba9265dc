"""Computing ahead what depends on constants alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mobileprep.core.limits import memory_limit, working
from mobileprep.errors import RunLimitError
from mobileprep.graph.refs import Edge
from mobileprep.ops.context import RunContext
from mobileprep.ops.numerics.allocation import at_most
from mobileprep.runtime.actions import Action, Constants
from mobileprep.runtime.executor import perform

# Results beyond this are computed anew in each run rather than kept between runs.
_LARGEST = 64 << 20
# What is computed on the way may take so much, or a multiple of the constants that there are.
_LEAST_MEMORY = 1 << 29
_TIMES_INPUT = 8
# Of the memory that a run may take, a plan's copies of constants take this part at most.
_SHARE_OF_MEMORY = 4
# And so much arithmetic, about a second's.
_FLOPS = 1 << 36


def fold(
    actions: Sequence[Action], constants: Constants, wanted: Collection[Edge], where: str
) -> tuple[list[Action], dict[Edge, Any]]:
    """Run the actions whose inputs are all constant.

    Returns:
        The actions left, and the constants with their results, at addresses that fit their types;
        those that nothing reads any more are dropped.
    """
    context = RunContext()
    known: dict[Edge, Any] = dict(constants)
    given = (getattr(x, "nbytes", 0) for x in constants.values())  # branches not taken have none
    most = max(_LEAST_MEMORY, _TIMES_INPUT * sum(given))
    left: list[Action] = []
    with np.errstate(all="ignore"), working(_FLOPS):
        for action in actions:
            if not _is_constant(action, known):
                left.append(action)
                continue
            try:
                with at_most(most):
                    results = perform(action, [known[e] for e in action.inputs], context, where)
            except RunLimitError:  # the run will say so, if it comes to this
                left.append(action)
                continue
            if sum(results[i].nbytes for i, _ in action.outputs) > _LARGEST:
                left.append(action)
                continue
            known.update({made: results[i] for i, made in action.outputs})
    read = {e for a in left for e in a.inputs} | set(wanted)
    return left, _aligned({e: value for e, value in known.items() if e in read})


def _aligned(constants: dict[Edge, Any]) -> dict[Edge, Any]:
    """The constants, those of numbers at addresses that fit their types, as far as memory allows.

    In files tensors lie at any address, and numpy would copy such a matrix for every product.
    """
    room = memory_limit() // _SHARE_OF_MEMORY
    found = dict(constants)
    for tensor, value in constants.items():
        if not isinstance(value, np.ndarray) or value.flags.aligned or value.nbytes > room:
            continue
        room -= value.nbytes
        found[tensor] = value.copy()
        found[tensor].flags.writeable = False
    return found


def _is_constant(action: Action, known: Constants) -> bool:
    """Whether it is enough to run it once; what others only wait for may still refuse to run."""
    return action.pure and all(e in known for e in action.inputs)
