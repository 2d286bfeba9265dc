"""Blocks moved to the batch, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32, reshaped
from mobileprep.ops.arrays import integers

# Along how many dimensions LiteRT's kernels move blocks.
_COUNTS: Final = (1, 2)


@lowering("SpaceToBatchND", "BatchToSpaceND")
def space_and_batch(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND, between RESHAPE for what their kernels refuse.

    Their kernels take tensors with one dimension behind those of the blocks.
    """
    value, shape = inputs[0], scope.output_shape(node)
    bounds = _bounds(scope, node, inputs)
    count = _count(bounds[0])
    if count == 0:
        return value
    if count is not None and count not in _COUNTS:
        reason = f"LiteRT moves blocks along one or two dimensions, not along {count}"
        raise CannotExpressError(reason, "move them along one or two at a time")
    if count is None or _is_taken(value, count):
        return _moved(scope, node, [value, *bounds], shape)
    before, after = _one_behind(value.shape, count + 1), _one_behind(shape, count + 1)
    if shape is None or not (_tells(before) and _tells(after) and _tells(shape)):
        reason = "LiteRT wants one dimension behind the blocks, and sizes are not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    moved = _moved(scope, node, [reshaped(scope, value, before), *bounds], after)
    return reshaped(scope, moved, shape)


def _bounds(scope: Scope, node: Node, inputs: Sequence[Value]) -> list[Value]:
    """The blocks, and what is added or cropped around them, as far as they have to be told."""
    count = _count(inputs[1])
    blocks, edges = scope.known(node, 1), scope.known(node, 2)
    if blocks is None or edges is None or (count is not None and _is_taken(inputs[0], count)):
        return [as_int32(scope, node, i, inputs[i]) for i in (1, 2)]
    told = [(b, *e) for b, e in zip(integers(blocks), edges.tolist(), strict=True)]
    # Single blocks at the end, with nothing around them, move nothing.
    while told and told[-1] == (1, 0, 0):
        told.pop()
    sizes = scope.integers_constant(blocks[: len(told)], "block_shape")
    return [sizes, scope.integers_constant(edges[: len(told)], "edges")]


def _count(blocks: Value) -> int | None:
    """Along how many dimensions blocks are moved; None where that is not known."""
    return blocks.shape[0] if blocks.shape and blocks.shape[0] >= 0 else None


def _is_taken(value: Value, count: int) -> bool:
    """Whether the kernels move blocks of a tensor along some dimensions, as far as is known."""
    return count in _COUNTS and value.rank in (None, count + 2)


def _moved(scope: Scope, node: Node, inputs: Sequence[Value], shape: TensorShape) -> Value:
    code = "SPACE_TO_BATCH_ND" if node.op == "SpaceToBatchND" else "BATCH_TO_SPACE_ND"
    return scope.emit(code, inputs, shape, inputs[0].dtype, f"{node.op}Options")


def _one_behind(shape: TensorShape, count: int) -> tuple[int, ...]:
    """A shape with all dimensions behind the first ones as one; empty where it is not known."""
    if shape is None:
        return ()
    behind = shape[count:]
    return (*shape[:count], -1 if -1 in behind else math.prod(behind))


def _tells(shape: Sequence[int]) -> bool:
    """Whether RESHAPE can work out what a shape leaves open."""
    return bool(shape) and 0 not in shape and shape.count(-1) <= 1
