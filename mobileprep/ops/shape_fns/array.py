"""Shapes of ops that make tensors, or give the same elements another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
    axis_index,
    divide_dim,
    element_count,
    merge,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn

# Up to this graph version an unknown shape could not be told from a scalar's.
_LAST_AMBIGUOUS_PRODUCER = 21
_MAX_RANK = 255


@shape_fn("Const", "HostConst")
def const(args: ShapeArgs) -> Sequence[TensorShape]:
    """The value's shape."""
    return [args.node.attr_tensor("value").shape]


@shape_fn("FakeParam", "ImmutableConst", "PlaceholderWithDefault", "VariableV2")
def declared(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the node declares."""
    return [args.node.attr_shape("shape")]


@shape_fn("Placeholder", "PlaceholderV2", "Variable")
def declared_once(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the node declares; a scalar, in old graphs, stands for any shape."""
    shape = args.node.attr_shape("shape")
    ambiguous = args.node.op == "Variable" or args.producer <= _LAST_AMBIGUOUS_PRODUCER
    return [None if shape == () and ambiguous else shape]


@shape_fn("EnsureShape")
def ensure_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape merged with the one that it is checked against."""
    return [merge(args.shapes[0], args.node.attr_shape("shape"))]


@shape_fn("Shape")
def shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector with an element for each dimension."""
    return [_rank_vector(args.shapes[0])]


@shape_fn("ShapeN")
def shape_n(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector for each input."""
    return [_rank_vector(s) for s in args.shapes]


def _rank_vector(of: TensorShape) -> TensorShape:
    return (UNKNOWN if of is None else len(of),)


@shape_fn("Rank", "Size")
def rank(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar."""
    return [()]


@shape_fn("Fill", "Empty", "BroadcastTo")
def fill(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that an input holds."""
    return [args.as_shape(1 if args.node.op == "BroadcastTo" else 0)]


@shape_fn("BroadcastArgs")
def broadcast_args(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the larger rank."""
    x, y = with_rank(args.shapes[0], 1)[0], with_rank(args.shapes[1], 1)[0]
    return [(UNKNOWN if min(x, y) < 0 else max(x, y),)]


@shape_fn("BroadcastGradientArgs")
def broadcast_gradient_args(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two vectors of axes."""
    return [(UNKNOWN,), (UNKNOWN,)]


@shape_fn("Reshape")
def reshape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the second input holds; one missing size follows from the element count."""
    source, target = args.shapes[0], args.as_shape(1)
    if source is None or target is None:
        return [target]
    known = math.prod(d for d in target if d >= 0)
    missing = target.count(UNKNOWN)
    count = element_count(source)
    if count < 0 or missing > 1:
        return [target]
    if not missing:
        if known != count:
            message = f"{count} elements cannot take the shape {list(target)}"
            raise ShapeConflictError(message)
        return [target]
    if not known:
        return [target]
    inferred = divide_dim(count, known)
    return [tuple(inferred if d == UNKNOWN else d for d in target)]


@shape_fn("ExpandDims")
def expand_dims(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input with one more dimension of size 1."""
    source, axis = args.shapes[0], args.scalar(1)
    if source is None:
        return [None]
    if axis is None:
        return [unknown_dims(len(source) + 1)]
    axis = axis_index(axis, len(source) + 1)
    return [(*source[:axis], 1, *source[axis:])]


@shape_fn("Squeeze")
def squeeze(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input without dimensions of size 1: those named, or all."""
    source = args.shapes[0]
    named = args.node.attr_ints("squeeze_dims", ())
    if source is None:
        return [None]
    if not named:
        # Any unknown size might be 1.
        return [None if UNKNOWN in source else tuple(d for d in source if d != 1)]
    axes = {axis_index(a, len(source)) for a in named}
    if any(source[a] not in (1, UNKNOWN) for a in axes):
        message = f"axes {sorted(axes)} of {list(source)} are not all of size 1"
        raise ShapeConflictError(message)
    return [tuple(d for i, d in enumerate(source) if i not in axes)]


@shape_fn("Transpose", "ConjugateTranspose")
def transpose(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's dimensions in another order."""
    source, order = args.shapes[0], args.integers(1)
    if order is not None:
        source = with_rank(source, len(order))
        if sorted(a % len(order) for a in order) != list(range(len(order))):
            message = f"{list(order)} is no order of {len(order)} axes"
            raise ShapeConflictError(message)
        return [tuple(source[a] for a in order)]
    if source is None:
        axes = with_rank(args.shapes[1], 1)[0]
        return [unknown_dims(axes) if 0 <= axes < _MAX_RANK else None]
    # One dimension has only one order; of equal ones any order is the same.
    return [source if len(set(source)) <= 1 else unknown_dims(len(source))]


@shape_fn("InvertPermutation")
def invert_permutation(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the input's size."""
    return [with_rank(args.shapes[0], 1)]


@shape_fn("Range")
def range_(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector whose size follows from start, limit and step."""
    values = [args.value(i) for i in range(3)]
    if any(v is None or v.size != 1 for v in values):
        return [(UNKNOWN,)]
    start, limit, step = (v.reshape(()).item() for v in values if v is not None)
    if step == 0 or (limit - start) * step < 0:
        message = f"there is no range from {start} to {limit} by {step}"
        raise ShapeConflictError(message)
    if all(isinstance(x, int) for x in (start, limit, step)):
        return [(-(-(limit - start) // step),)]
    return [(math.ceil(abs((limit - start) / step)),)]


@shape_fn("LinSpace")
def lin_space(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the given size."""
    count = args.scalar(2)
    return [(UNKNOWN if count is None else count,)]


@shape_fn("OneHot")
def one_hot(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape with one more dimension, as deep as the given depth."""
    source, depth = args.shapes[0], args.scalar(1)
    axis = args.node.attr_int("axis", -1)
    if source is None:
        return [None]
    axis = axis_index(axis, len(source) + 1)
    return [(*source[:axis], UNKNOWN if depth is None else depth, *source[axis:])]


@shape_fn("Bitcast")
def bitcast(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape; where element sizes differ, one dimension comes or goes."""
    source = args.shapes[0]
    given = args.node.attr_dtype("T").itemsize
    wanted = args.node.attr_dtype("type").itemsize
    if source is None or not given or not wanted:
        return [None]
    if given < wanted:
        return [source[:-1]]
    return [source if given == wanted else (*source, given // wanted)]


@shape_fn("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(args: ShapeArgs) -> Sequence[TensorShape]:
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
