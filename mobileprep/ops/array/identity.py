"""Placeholders, identities, casts, created tensors, and shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import (
    axis_of,
    check_allocation,
    dimensions,
    integers,
    numpy_attr,
    same_type,
    scalar,
)
from mobileprep.ops.kernel import flop_rule, free, kernel, per_output
from mobileprep.ops.shape_function import (
    MAX_RANK,
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    axis_index,
    declared_shape,
    dim,
    divide_dim,
    element_count,
    input_with_rank,
    length_in,
    merge,
    merge_dim,
    no_outputs,
    scalars_only,
    shape_fn,
    shape_in,
    two_vectors,
    unchanged,
    unknown_dims,
    with_rank,
)


@kernel(
    *("DeepCopy", "GuaranteeConst", "Identity", "PreventGradient", "RefIdentity", "Snapshot"),
    "StopGradient",
    shape=unchanged,
    flops=free,
)
def identity(node: Node, x: Array) -> Array:
    """Return x unchanged."""
    return x


shape_fn("Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3")(unchanged)


@kernel("LoopCond", shape=scalars_only, flops=free)
def loop_cond(node: Node, condition: Array) -> Array:
    """Return the condition unchanged."""
    return condition


@kernel("EnsureShape", flops=free)
def ensure_shape(node: Node, x: Array) -> Array:
    """Check the shape of x and return x unchanged."""
    shape = node.attr_shape("shape")
    if shape is None:
        return x
    fits = len(shape) == x.ndim and all(
        expected in (-1, size) for expected, size in zip(shape, x.shape, strict=True)
    )
    if not fits:
        message = f"the shape {list(x.shape)} does not fit {list(shape)}"
        raise ValueError(message)
    return x


@shape_fn("EnsureShape")
def ensure_shape_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape merged with the required one."""
    return [merge(args.shapes[0], args.node.attr_shape("shape"))]


@kernel("IdentityN", flops=free)
def identity_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """Return all inputs unchanged."""
    return inputs


@shape_fn("IdentityN")
def identity_n_shape(args: ShapeArgs) -> OutputShapes:
    """Return each input's shape for its output."""
    return args.shapes


@kernel("NoOp", "ControlTrigger", shape=no_outputs, flops=free)
def no_op(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """Do nothing."""
    return ()


@kernel("CheckNumerics", "CheckNumericsV2", shape=unchanged, flops=free)
def check_numerics(node: Node, x: Array) -> Array:
    """Raise an error for NaN or infinity; otherwise return x unchanged."""
    if bool(np.isfinite(x).all()):
        return x
    value = "NaN" if bool(np.isnan(x).any()) else "Inf"
    message = f"node {node.name!r} ({node.op}) found {value}: {node.attr_str('message', '')}"
    raise InvalidGraphError(message, "check the values that are fed")


# Up to this graph version, an unknown shape could not be distinguished from a scalar's.
LAST_AMBIGUOUS_PRODUCER = 21


@kernel("PlaceholderWithDefault", shape=declared_shape, flops=free)
def placeholder_with_default(node: Node, default: Array) -> Array:
    """Return the default; a feed replaces the node."""
    return default


@shape_fn("Const", "HostConst")
def const_shape(args: ShapeArgs) -> OutputShapes:
    """Return the value's shape."""
    return [args.node.attr_tensor("value").shape]


flop_rule("Const")(free)


@shape_fn("Placeholder", "PlaceholderV2")
def declared_once_shape(args: ShapeArgs) -> OutputShapes:
    """Return the declared shape; in old graphs, a scalar shape means an unknown shape."""
    shape = args.node.attr_shape("shape")
    ambiguous = args.node.op == "Variable" or args.producer <= LAST_AMBIGUOUS_PRODUCER
    return [None if shape == () and ambiguous else shape]


flop_rule("Placeholder", "PlaceholderV2")(free)


shape_fn("ImmutableConst")(declared_shape)


@kernel("Cast", shape=unchanged, flops=free)
def cast(node: Node, x: Array) -> Array:
    """Convert elements to another type; fractions are truncated toward zero."""
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


def _to_integers(x: Array, kind: np.dtype[np.generic]) -> Array:
    """Convert through 64 bits, so that overflow wraps the same on every machine."""
    if kind == np.uint64:
        return np.where(x < 0, x.astype(np.int64).astype(np.uint64), x.astype(np.uint64))
    if kind.itemsize >= 4 and kind.kind == "i":
        return x.astype(kind)
    return x.astype(np.int64).astype(kind)


@kernel("Bitcast", flops=free)
def bitcast(node: Node, x: Array) -> Array:
    """Reinterpret the bytes as another type; different sizes add or remove a last axis."""
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
def bitcast_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape; different element sizes add or remove a last dimension."""
    source = args.shapes[0]
    source_size = args.node.attr_dtype("T").itemsize
    target_size = args.node.attr_dtype("type").itemsize
    if source is None or not source_size or not target_size:
        return [None]
    if source_size < target_size:
        merge_dim(dim(source, -1), target_size // source_size)
        return [source[:-1]]
    return [source if source_size == target_size else (*source, source_size // target_size)]


@kernel("Fill", shape=shape_in(0), flops=free)
def fill(node: Node, dims: Array, value: Array) -> Array:
    """Create a tensor of one value."""
    return np.full(dimensions(dims, value.dtype), value, dtype=value.dtype)


@kernel("Empty", shape=shape_in(0), flops=free)
def empty(node: Node, dims: Array) -> Array:
    """Create a tensor of zeros; the op does not specify its content."""
    kind = node.attr_dtype("dtype").numpy or np.dtype(object)
    return np.zeros(dimensions(dims, kind), dtype=kind)


@kernel("FakeParam", shape=declared_shape, flops=free)
def fake_param(node: Node) -> Array:
    """Create a placeholder for a tensor of the other branch of a conditional; nothing reads it."""
    kind = node.attr_dtype("dtype").numpy or np.dtype(object)
    shape = tuple(max(d, 0) for d in node.attr_shape("shape") or ())
    check_allocation(shape, kind)
    return np.zeros(shape, dtype=kind)


@kernel("Range", flops=per_output(1))
def arange(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    """Return the numbers from a start up to a limit, exclusive."""
    same_type(node, start, limit, delta)
    first, last, step = (x.reshape(()).item() for x in (start, limit, delta))
    if step == 0:
        message = "the step of a range cannot be 0"
        raise ValueError(message)
    if (last - first) * step < 0:
        message = f"empty range from {first} to {last} by {step}"
        raise ValueError(message)
    count = max(math.ceil((last - first) / step), 0) if start.dtype.kind == "f" else 0
    if start.dtype.kind != "f":
        count = len(range(first, last, step))
    check_allocation((count,), start.dtype)
    out: Array = start + np.arange(count, dtype=start.dtype) * delta
    return out


@shape_fn("Range")
def range_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector whose size follows from start, limit, and step."""
    values = [args.value(i) for i in range(3)]
    if any(v is None or v.size != 1 for v in values):
        return [(UNKNOWN,)]
    start, limit, step = (v.reshape(()).item() for v in values if v is not None)
    if step == 0 or (limit - start) * step < 0:
        message = f"empty range from {start} to {limit} by {step}"
        raise ShapeConflictError(message)
    if all(isinstance(x, int) for x in (start, limit, step)):
        return [(-(-(limit - start) // step),)]
    return [(math.ceil(abs((limit - start) / step)),)]


@kernel("LinSpace", shape=length_in(2), flops=per_output(1))
def lin_space(node: Node, start: Array, stop: Array, count: Array) -> Array:
    """Return evenly spaced numbers, both ends included."""
    number = scalar(count)
    check_allocation((number,), start.dtype)
    if number < 1:
        message = f"a space of {number} numbers does not exist"
        raise ValueError(message)
    if number == 1:
        return start.reshape(1)
    step = (stop - start) / start.dtype.type(number - 1)
    out: Array = start + np.arange(number, dtype=start.dtype) * step
    out[-1] = stop
    return out


def _out_type(node: Node) -> np.dtype[Any]:
    return numpy_attr(node, "out_type", DType.INT32)


@kernel("Shape", flops=free)
def shape(node: Node, x: Array) -> Array:
    """Return the dimensions of x as a vector."""
    return np.array(x.shape, dtype=_out_type(node))


@shape_fn("Shape")
def shape_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector with an element for each dimension."""
    return [_rank_vector(args.shapes[0])]


def _rank_vector(of: TensorShape) -> TensorShape:
    return (UNKNOWN if of is None else len(of),)


@kernel("ShapeN", flops=free)
def shape_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """Return the dimensions of each input."""
    return tuple(np.array(x.shape, dtype=_out_type(node)) for x in inputs)


@shape_fn("ShapeN")
def shape_n_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector for each input."""
    return [_rank_vector(s) for s in args.shapes]


@kernel("Size", shape=scalars_only, flops=free)
def size(node: Node, x: Array) -> Array:
    """Return the number of elements."""
    return np.array(x.size, dtype=_out_type(node))


@kernel("Rank", shape=scalars_only, flops=free)
def rank(node: Node, x: Array) -> Array:
    """Return the number of axes."""
    return np.array(x.ndim, dtype=np.int32)


@kernel("Reshape", flops=free)
def reshape(node: Node, x: Array, dims: Array) -> Array:
    """Reshape x; one dimension may be -1."""
    target = list(integers(dims))
    if min(target, default=0) < UNKNOWN:
        message = f"{target} is not a shape"
        raise ValueError(message)
    if target.count(UNKNOWN) == 1:
        target[target.index(UNKNOWN)] = _inferred_dim(x.shape, [d for d in target if d != UNKNOWN])
    return x.reshape(target)


def _inferred_dim(source: tuple[int, ...], others: list[int]) -> int:
    """Return the dimension for -1; next to a 0, from the nonzero lengths, like TensorFlow."""
    count = math.prod(d for d in source if d or 0 not in others)
    return count // math.prod(d for d in others if d)


@shape_fn("Reshape")
def reshape_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape in the second input; the element count determines one missing size."""
    source, target = args.shapes[0], args.as_shape(1)
    if source is None or target is None:
        return [target]
    known_count = math.prod(d for d in target if d >= 0)
    missing = target.count(UNKNOWN)
    count = element_count(source)
    if count < 0 or missing > 1:
        return [target]
    if not missing:
        if known_count != count:
            message = f"{count} elements cannot take the shape {list(target)}"
            raise ShapeConflictError(message)
        return [target]
    if not known_count:
        return [target]
    inferred = divide_dim(count, known_count)
    return [tuple(inferred if d == UNKNOWN else d for d in target)]


@kernel("Squeeze", flops=free)
def squeeze(node: Node, x: Array) -> Array:
    """Remove axes of length 1: the named ones, or all."""
    axes = tuple(axis_of(a, x.ndim) for a in _squeezed(node))
    return x.squeeze(axes or None)


@shape_fn("Squeeze")
def squeeze_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape without dimensions of size 1: the named ones, or all."""
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


def _squeezed(node: Node) -> tuple[int, ...]:
    name = "axis" if "axis" in node.attrs else "squeeze_dims"
    return node.attr_ints(name, ())


@kernel("ExpandDims", flops=free)
def expand_dims(node: Node, x: Array, axis: Array) -> Array:
    """Add an axis of length 1 to x."""
    return np.expand_dims(x, axis_of(scalar(axis), x.ndim + 1))


@shape_fn("ExpandDims")
def expand_dims_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape with an additional dimension of size 1."""
    source, axis = args.shapes[0], args.scalar(1)
    if source is None:
        return [None]
    if axis is None:
        return [unknown_dims(len(source) + 1)]
    axis = axis_index(axis, len(source) + 1)
    return [(*source[:axis], 1, *source[axis:])]


@kernel("InvertPermutation", shape=input_with_rank(1), flops=free)
def invert_permutation(node: Node, order: Array) -> Array:
    """Return the inverse of a permutation."""
    out = np.full_like(order, -1)
    values = integers(order)
    if sorted(values) != list(range(len(values))):
        message = f"{list(values)} is not a permutation"
        raise ValueError(message)
    out[order] = np.arange(len(values), dtype=order.dtype)
    return out


@kernel("BroadcastTo", shape=shape_in(1), flops=free)
def broadcast_to(node: Node, x: Array, dims: Array) -> Array:
    """Repeat x along axes of length 1."""
    return np.broadcast_to(x, dimensions(dims, x.dtype))


@kernel("BroadcastArgs", flops=free)
def broadcast_args(node: Node, x: Array, y: Array) -> Array:
    """Return the shape that two shapes broadcast to."""
    return np.array(np.broadcast_shapes(integers(x), integers(y)), dtype=x.dtype)


@shape_fn("BroadcastArgs")
def broadcast_args_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector of the larger rank."""
    x, y = with_rank(args.shapes[0], 1)[0], with_rank(args.shapes[1], 1)[0]
    return [(UNKNOWN if min(x, y) < 0 else max(x, y),)]


shape_fn("BroadcastGradientArgs")(two_vectors)


@kernel("Transpose", "ConjugateTranspose", flops=free)
def transpose(node: Node, x: Array, order: Array) -> Array:
    """Permute the axes of x."""
    moved: Array = x.transpose(integers(order))
    # numpy would convert booleans to integers.
    if node.op == "ConjugateTranspose" and x.dtype.kind == "c":
        moved = np.asarray(np.conj(moved))
    return moved


@shape_fn("Transpose", "ConjugateTranspose")
def transpose_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape with permuted dimensions."""
    source, order = args.shapes[0], args.integers(1)
    if order is not None:
        source = with_rank(source, len(order))
        if sorted(axis_index(a, len(order)) for a in order) != list(range(len(order))):
            message = f"{list(order)} is not a permutation of {len(order)} axes"
            raise ShapeConflictError(message)
        return [tuple(source[a] for a in order)]
    if source is None:
        axes = with_rank(args.shapes[1], 1)[0]
        return [unknown_dims(axes) if 0 <= axes <= MAX_RANK else None]
    # Permuting a single dimension, or equal ones, does not change the shape.
    return [source if len(set(source)) <= 1 else unknown_dims(len(source))]
