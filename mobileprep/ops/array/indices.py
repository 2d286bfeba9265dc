"""Ops that turn indices, axes and permutations into others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.arrays import integers
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import element_count, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("UnravelIndex")
def unravel_index(node: Node, indices: Array, dims: Array) -> Array:
    """The coordinates of places in a flattened tensor of a shape, a row for each axis."""
    shape = integers(dims)
    check_indices(indices, int(np.prod(shape, dtype=np.int64)))
    return np.array(np.unravel_index(indices, shape), dtype=indices.dtype)


@shape_fn("UnravelIndex")
def unravel_index_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A row for each axis; of one index a vector."""
    indices, axes = args.shapes[0], with_rank(args.shapes[1], 1)[0]
    if indices is None:
        return [None]
    return [(axes, element_count(indices)) if indices else (axes,)]


flop_rule("UnravelIndex")(free)


@kernel("DataFormatVecPermute", "DataFormatDimMap")
def data_format(node: Node, x: Array) -> Array:
    """Dimensions, or numbers of axes, of one data format in the order of another."""
    source = node.attr_str("src_format", "NHWC")
    target = node.attr_str("dst_format", "NCHW")
    if sorted(source) != sorted(target):
        message = f"{source!r} and {target!r} are not the same axes"
        raise ValueError(message)
    if node.op == "DataFormatDimMap":
        check_indices(x % len(source), len(source))
        return np.take(np.array([target.index(c) for c in source], dtype=x.dtype), x % len(source))
    if len(x) == len(source) - 2:
        source = "".join(c for c in source if c in "HWD")
        target = "".join(c for c in target if c in "HWD")
    return x[[source.index(c) for c in target]]


shape_fn("DataFormatDimMap", "DataFormatVecPermute")(unchanged)


flop_rule("DataFormatDimMap", "DataFormatVecPermute")(free)
