"""Placeholders, identities, casts, and created tensors."""

from __future__ import annotations

import math

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import (
    check_allocation,
    dimensions,
    same_type,
    scalar,
)
from mobileprep.ops.cost import flop_rule, free, per_output
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    declared_shape,
    dim,
    length_in,
    merge,
    merge_dim,
    no_outputs,
    scalars_only,
    shape_fn,
    shape_in,
    unchanged,
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
