"""Running one action, its failures turned into errors that name the node and its inputs."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import InvalidGraphError, MobileprepError
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import Action, Values

# What numpy raises when shapes, types, indices or sizes do not fit.
_FAULTS = (ValueError, TypeError, IndexError, ArithmeticError, MemoryError)


def perform(action: Action, inputs: Values, context: RunContext, where: str) -> Values:
    """The results of an action.

    Raises:
        MobileprepError: as the kernel raised it, naming the node.
        InvalidGraphError: the inputs do not fit the op.
    """
    try:
        results = action.run(context, inputs)
    except MobileprepError as error:
        raise _placed(error, action, where) from error
    except _FAULTS as error:
        raise _failure(action, inputs, error, where) from error
    if action.outputs and action.outputs[-1][0] >= len(results):
        name, index = action.outputs[-1][1]
        message = f"node {name!r} ({action.node.op}) has no output {index}"
        raise InvalidGraphError(message, f"it has {len(results)}", where)
    return results


def _placed(error: MobileprepError, action: Action, where: str) -> MobileprepError:
    """The same error, naming the node that it came from."""
    name = repr(action.node.name)
    message = error.message
    if name not in message:
        message = f"node {name} ({action.node.op}): {message}"
    return error.at(error.where or where, message=message)


def _failure(action: Action, inputs: Values, error: Exception, where: str) -> InvalidGraphError:
    shown = ", ".join(described(x) for x in inputs) or "no inputs"
    reason = str(error) or type(error).__name__
    message = f"node {action.node.name!r} ({action.node.op}) cannot run on {shown}: {reason}"
    hint = "check the shapes and types that are fed, and the graph's inputs"
    return InvalidGraphError(message, hint, where)


def described(value: object) -> str:
    """Type and shape of an array, such as float32[1, 224, 224, 3]."""
    if not isinstance(value, np.ndarray):
        return "nothing"
    kind = "object" if value.dtype == object else value.dtype.name
    return f"{kind}{list(value.shape)}"
