"""Computing ahead what depends on constants alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mobileprep.ir.refs import Edge
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import Action, Constants
from mobileprep.runtime.failures import perform

# Results beyond this are computed anew in each run rather than kept between runs.
_LARGEST = 64 << 20


def fold(
    actions: Sequence[Action], constants: Constants, wanted: Collection[Edge], where: str
) -> tuple[list[Action], dict[Edge, Any]]:
    """Run the actions whose inputs are all constant.

    Returns:
        The actions left, and the constants with their results; those that nothing reads any more
        are dropped.
    """
    context = RunContext()
    known: dict[Edge, Any] = dict(constants)
    left: list[Action] = []
    with np.errstate(all="ignore"):
        for action in actions:
            if not _is_constant(action, known):
                left.append(action)
                continue
            results = perform(action, [known[e] for e in action.inputs], context, where)
            if sum(results[i].nbytes for i, _ in action.outputs) > _LARGEST:
                left.append(action)
                continue
            known.update({made: results[i] for i, made in action.outputs})
    read = {e for a in left for e in a.inputs} | set(wanted)
    return left, {e: array for e, array in known.items() if e in read}


def _is_constant(action: Action, known: Constants) -> bool:
    return action.pure and bool(action.outputs) and all(e in known for e in action.inputs)
