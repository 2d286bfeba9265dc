"""Ops that sort slices into several tensors, and put them together again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import (
    check_outputs,
    dimensions,
    same_type,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import UNKNOWN, merge
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("DynamicPartition")
def dynamic_partition(node: Node, x: Array, partitions: Array) -> tuple[Array, ...]:
    """Slices of x sorted into several tensors."""
    count = node.attr_int("num_partitions")
    check_outputs(count)
    if x.shape[: partitions.ndim] != partitions.shape:
        message = f"partitions of shape {list(partitions.shape)} for {list(x.shape)}"
        raise ValueError(message)
    check_indices(partitions, count)
    rows = x.reshape(partitions.size, *x.shape[partitions.ndim :])
    sizes = np.bincount(partitions.reshape(-1), minlength=count)
    sorted_rows = rows[np.argsort(partitions, axis=None, kind="stable")]
    return tuple(np.split(sorted_rows, np.cumsum(sizes[:-1])))


@shape_fn("DynamicPartition")
def dynamic_partition_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Parts of unknown length, each row what the data has behind the partitions' shape."""
    data, partitions = args.shapes[0], args.shapes[1]
    count = args.node.attr_int("num_partitions")
    if data is None or partitions is None:
        return [None] * count
    return [(UNKNOWN, *data[len(partitions) :])] * count


flop_rule("DynamicPartition")(free)


@kernel("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(node: Node, *inputs: Array) -> Array:
    """Slices of several tensors put to places; of two for one place the later wins."""
    count = len(inputs) // 2
    indices, parts = inputs[:count], inputs[count:]
    same_type(node, *parts)
    rest = parts[0].shape[indices[0].ndim :]
    if any(p.shape != (*i.shape, *rest) for i, p in zip(indices, parts, strict=True)):
        message = "indices and data do not fit each other"
        raise ValueError(message)
    length = 1 + max((int(i.max()) for i in indices if i.size), default=-1)
    shape = dimensions(np.array([length, *rest]), parts[0].dtype)
    out = np.zeros(shape, dtype=parts[0].dtype)
    for places, part in zip(indices, parts, strict=True):
        check_indices(places, length)
        out[places] = part
    return out


@shape_fn("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """One more row than the largest index, each as what the data has behind the index's shape."""
    count = args.node.attr_int("N")
    rest: TensorShape = None
    for index, data in zip(args.shapes[:count], args.shapes[count:], strict=True):
        if index is not None and data is not None:
            rest = merge(rest, data[len(index) :])
    indices = [args.integers(i) for i in range(count)]
    if rest is None:
        return [None]
    if None in indices:
        return [(UNKNOWN, *rest)]
    return [(max((i for listed in indices for i in listed or ()), default=-1) + 1, *rest)]


flop_rule("DynamicStitch", "ParallelDynamicStitch")(free)
