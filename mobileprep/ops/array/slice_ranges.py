"""Ranges of their own for the slices of a tensor along one axis."""

from __future__ import annotations

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array


def sliced_axis(node: Node, values: Array) -> int | None:
    """The axis whose slices have ranges of their own, or None where there is one range.

    A single slice counts as none: it has one range whatever the mode.

    Raises:
        InvalidGraphError: the tensor has no such axis.
    """
    axis = node.attr_int("axis", -1)
    if not -1 <= axis < values.ndim:
        message = f"node {node.name!r} ({node.op}): there is no axis {axis} among {values.ndim}"
        raise InvalidGraphError(message, "count the axis from the front, or give -1 for none")
    return None if axis == -1 or values.shape[axis] == 1 else axis


def along_axis(node: Node, end: Array, values: Array, axis: int | None) -> Array:
    """The ends of ranges, shaped to broadcast against the values that they belong to.

    Args:
        node: the node, for messages.
        end: the low or the high ends: a scalar, or a vector along the axis.
        values: what the ranges belong to.
        axis: the axis of ``sliced_axis``.

    Raises:
        InvalidGraphError: there are more or fewer ends than slices.
    """
    wanted = 1 if axis is None else values.shape[axis]
    if end.size != wanted:
        message = f"node {node.name!r} ({node.op}) has {end.size} ends of ranges for {wanted}"
        raise InvalidGraphError(message, "give one for each slice along the axis")
    shape = [1] * values.ndim
    if axis is not None:
        shape[axis] = wanted
    return end.reshape(shape)
