"""Ops that give elements another type: by value, or by their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import dim, merge_dim
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("Cast")
def cast(node: Node, x: Array) -> Array:
    """The elements as another type; fractions are cut off towards zero."""
    target = node.attr_dtype("DstT")
    kind = target.numpy
    if target is DType.STRING and node.attr_dtype("SrcT", DType.FLOAT) is DType.STRING:
        return x
    if kind is None or target is DType.STRING or x.dtype == object:
        message = f"elements cannot be cast to {target.short}"
        raise TypeError(message)
    if x.dtype == kind:
        return x
    if x.dtype.kind == "c" and kind.kind != "c":
        x = np.real(x)
    if kind.kind in "iu" and x.dtype.kind not in "iub":
        return _to_integers(x, kind)
    return x.astype(kind)


shape_fn("Cast")(unchanged)


flop_rule("Cast")(free)


def _to_integers(x: Array, kind: np.dtype[np.generic]) -> Array:
    """Through 64 bits, so that what a narrow type cannot hold wraps on every machine alike."""
    if kind == np.uint64:
        return np.where(x < 0, x.astype(np.int64).astype(np.uint64), x.astype(np.uint64))
    if kind.itemsize >= 4 and kind.kind == "i":
        return x.astype(kind)
    return x.astype(np.int64).astype(kind)


@kernel("Bitcast")
def bitcast(node: Node, x: Array) -> Array:
    """The same bytes read as another type; elements split into, or are joined from, a last axis."""
    kind = node.attr_dtype("type").numpy
    if kind is None or x.dtype == object:
        message = "these elements have no bytes of their own"
        raise TypeError(message)
    flat = np.ascontiguousarray(x)
    if kind.itemsize == x.dtype.itemsize:
        return flat.reshape(x.shape).view(kind)
    if kind.itemsize < x.dtype.itemsize:
        return flat.reshape(*x.shape, 1).view(kind)
    if x.ndim < 1 or x.shape[-1] * x.dtype.itemsize != kind.itemsize:
        message = f"the last axis of {list(x.shape)} does not make one {kind}"
        raise ValueError(message)
    return flat.view(kind).reshape(x.shape[:-1])


@shape_fn("Bitcast")
def bitcast_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape; where element sizes differ, one dimension comes or goes."""
    source = args.shapes[0]
    given = args.node.attr_dtype("T").itemsize
    wanted = args.node.attr_dtype("type").itemsize
    if source is None or not given or not wanted:
        return [None]
    if given < wanted:
        merge_dim(dim(source, -1), wanted // given)
        return [source[:-1]]
    return [source if given == wanted else (*source, given // wanted)]


flop_rule("Bitcast")(free)
