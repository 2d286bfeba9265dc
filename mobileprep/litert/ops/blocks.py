"""Move blocks between space and batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import IndexArithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import as_int32, reshaped, transposed
from mobileprep.ops.arrays import integers

# Numbers of block dimensions that LiteRT's kernels support.
_COUNTS: Final = (1, 2)
# Maximum number of dimensions of PAD and SLICE.
_MOST_DIMENSIONS: Final = 5


@lowering("SpaceToBatchND", "BatchToSpaceND")
def space_and_batch(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit SPACE_TO_BATCH_ND or BATCH_TO_SPACE_ND with one dimension after the block dimensions.

    Other tensors are reshaped, or moved along one dimension at a time.
    """
    value, shape = inputs[0], scope.output_shape(node)
    bounds = _bounds(scope, node, inputs)
    count = _count(bounds[0])
    if count == 0:
        return value
    if count is None and value.rank not in (None, *(n + 2 for n in _COUNTS)):
        reason = "the number of its block sizes is not known"
        raise CannotExpressError(reason, "make the block sizes a constant")
    if count is None or _is_supported(value, count):
        return _moved(scope, node, [value, *bounds], shape)
    if count in _COUNTS:
        before, after = _one_behind(value.shape, count + 1), _one_behind(shape, count + 1)
        if (
            shape is not None
            and _is_inferable(before)
            and _is_inferable(after)
            and _is_inferable(shape)
        ):
            moved = _moved(scope, node, [reshaped(scope, value, before), *bounds], after)
            return reshaped(scope, moved, shape)
    work = _Steps(IndexArithmetic(scope), value, bounds[0], bounds[1])
    return work.to_batch() if node.op == "SpaceToBatchND" else work.to_space()


class _Steps:
    """Moves blocks along one dimension at a time, with TRANSPOSE between RESHAPEs.

    Args:
        work: emits operators.
        value: the tensor.
        blocks: the block size of each dimension after the first.
        edges: the padding or cropping before and after each of them.
    """

    def __init__(self, work: IndexArithmetic, value: Value, blocks: Value, edges: Value) -> None:
        count = _count(blocks) or 0
        flat = work.reshaped(edges, (2 * count,))
        self._work = work
        self._value = value
        sizes = work.sizes(value)
        self._sizes, self._behind = sizes[: count + 1], sizes[count + 1 :]
        if len(self._behind) > 1:
            # PAD and SLICE support few dimensions, so merge those after the blocks.
            self._sizes.append(_product(work, self._behind))
            self._value = work.shaped(value, self._sizes)
        else:
            self._sizes = sizes
        if len(self._sizes) > _MOST_DIMENSIONS:
            reason = f"LiteRT pads and slices {_MOST_DIMENSIONS} dimensions at most"
            raise CannotExpressError(reason, "move blocks along fewer dimensions at a time")
        self._blocks = [work.element(blocks, i) for i in range(count)]
        self._edges = [[work.element(flat, 2 * i + end) for end in (0, 1)] for i in range(count)]

    def to_batch(self) -> Value:
        """Pad, then move blocks to the batch, from the last dimension to the first."""
        work, rank = self._work, len(self._sizes)
        none = [work.number(0)] * 2
        pairs = [none, *self._edges, *[none] * (rank - 1 - len(self._edges))]
        amounts = work.reshaped(work.joined([end for pair in pairs for end in pair]), (rank, 2))
        self._sizes = [
            work.add(work.add(size, before), after)
            for size, (before, after) in zip(self._sizes, pairs, strict=True)
        ]
        self._value = work.scope.emit("PAD", [self._value, amounts], _shape(self._sizes))
        for axis, block in reversed([*enumerate(self._blocks, start=1)]):
            before, behind = self._around(axis)
            blocks = work.floor_div(self._sizes[axis], block)
            self._turn([before, blocks, block, behind], (2, 0, 1, 3))
            self._sizes[0] = work.mul(self._sizes[0], block)
            self._sizes[axis] = blocks
        return self._finished(self._value)

    def to_space(self) -> Value:
        """Move blocks from the batch, from the first dimension to the last, then crop."""
        work = self._work
        for axis, block in enumerate(self._blocks, start=1):
            self._sizes[0] = work.floor_div(self._sizes[0], block)
            before, behind = self._around(axis)
            self._turn([block, before, self._sizes[axis], behind], (1, 2, 0, 3))
            self._sizes[axis] = work.mul(self._sizes[axis], block)
        value = work.shaped(self._value, self._sizes)
        begin = [work.number(0) for _ in self._sizes]
        for axis, (before, after) in enumerate(self._edges, start=1):
            begin[axis] = before
            self._sizes[axis] = work.sub(work.sub(self._sizes[axis], before), after)
        bounds = [work.joined(begin), work.joined(self._sizes)]
        shape = _shape(self._sizes)
        cropped = work.scope.emit("SLICE", [value, *bounds], shape)
        return self._finished(cropped)

    def _finished(self, value: Value) -> Value:
        sizes = self._sizes
        if len(self._behind) > 1:
            sizes = [*sizes[:-1], *self._behind]
        return self._work.shaped(value, sizes)

    def _around(self, axis: int) -> tuple[Value, Value]:
        """Return the products of the sizes before and after an axis."""
        sizes = self._sizes
        return _product(self._work, sizes[:axis]), _product(self._work, sizes[axis + 1 :])

    def _turn(self, sizes: Sequence[Value], order: Sequence[int]) -> None:
        value = self._work.shaped(self._value, sizes)
        self._value = transposed(self._work.scope, value, order)


def _product(work: IndexArithmetic, sizes: Sequence[Value]) -> Value:
    product = work.number(1)
    for size in sizes:
        product = work.mul(product, size)
    return product


def _shape(sizes: Sequence[Value]) -> TensorShape:
    return tuple(-1 if size.data is None else int(size.data) for size in sizes)


def _bounds(scope: Scope, node: Node, inputs: Sequence[Value]) -> list[Value]:
    """Return the block sizes and edges, without trailing entries that have no effect."""
    count = _count(inputs[1])
    blocks, edges = scope.known_value(node, 1), scope.known_value(node, 2)
    if blocks is None or edges is None or (count is not None and _is_supported(inputs[0], count)):
        return [as_int32(scope, node, i, inputs[i]) for i in (1, 2)]
    entries = [(b, *e) for b, e in zip(integers(blocks), edges.tolist(), strict=True)]
    # Trailing blocks of size 1 without edges have no effect.
    while entries and entries[-1] == (1, 0, 0):
        entries.pop()
    sizes = scope.integers_constant(blocks[: len(entries)], "block_shape")
    return [sizes, scope.integers_constant(edges[: len(entries)], "edges")]


def _count(blocks: Value) -> int | None:
    """Return the number of block dimensions, or None if unknown."""
    return blocks.shape[0] if blocks.shape and blocks.shape[0] >= 0 else None


def _is_supported(value: Value, count: int) -> bool:
    """Return whether the kernels support a tensor with this number of block dimensions."""
    return count in _COUNTS and value.rank in (None, count + 2)


def _moved(scope: Scope, node: Node, inputs: Sequence[Value], shape: TensorShape) -> Value:
    code = "SPACE_TO_BATCH_ND" if node.op == "SpaceToBatchND" else "BATCH_TO_SPACE_ND"
    return scope.emit(code, inputs, shape)


def _one_behind(shape: TensorShape, count: int) -> tuple[int, ...]:
    """Merge all dimensions after the first ``count``; empty for an unknown shape."""
    if shape is None:
        return ()
    behind = shape[count:]
    return (*shape[:count], -1 if -1 in behind else math.prod(behind))


def _is_inferable(shape: Sequence[int]) -> bool:
    """Return whether RESHAPE can infer the unknown sizes of a shape."""
    return bool(shape) and 0 not in shape and shape.count(-1) <= 1
