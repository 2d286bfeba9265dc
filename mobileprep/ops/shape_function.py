"""Shape functions and dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from mobileprep.core.loading import Registry
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import import_op, import_ops

UNKNOWN: Final = -1
MAX_RANK: Final = 254
"""The maximum rank of TensorFlow's tensors."""


class ShapeConflictError(Exception):
    """The shapes of a node do not match; the message contains the reason."""


def unknown_dims(rank: int) -> tuple[int, ...]:
    """Return a shape with a known rank and unknown sizes."""
    if rank > MAX_RANK:
        message = f"no tensor has {rank} dimensions"
        raise ShapeConflictError(message)
    return (UNKNOWN,) * rank


def is_full(shape: TensorShape) -> bool:
    """Return whether the rank and every size are known."""
    return shape is not None and min(shape, default=0) >= 0


def element_count(shape: TensorShape) -> int:
    """Return the number of elements, or -1 if it is unknown."""
    return math.prod(shape) if shape is not None and is_full(shape) else UNKNOWN


def dim(shape: TensorShape, index: int) -> int:
    """Return a size, -1 if unknown; negative indices count from the end."""
    if shape is None:
        return UNKNOWN
    if not -len(shape) <= index < len(shape):
        message = f"shape {list(shape)} has no dimension {index}"
        raise ShapeConflictError(message)
    return shape[index]


def with_rank(shape: TensorShape, rank: int) -> tuple[int, ...]:
    """Return the shape, which must have the given rank; unknown sizes if its rank is unknown."""
    if shape is None:
        return unknown_dims(rank)
    if len(shape) != rank:
        message = f"shape {list(shape)} must have rank {rank}"
        raise ShapeConflictError(message)
    return shape


def at_least_rank(shape: TensorShape, rank: int) -> TensorShape:
    """Return the shape, which must have at least the given rank, or None."""
    if shape is not None and len(shape) < rank:
        message = f"shape {list(shape)} must have at least rank {rank}"
        raise ShapeConflictError(message)
    return shape


def merge_dim(a: int, b: int) -> int:
    """Combine two sizes of one dimension, either of which may be unknown."""
    if a >= 0 <= b and a != b:
        message = f"a dimension cannot be {a} and {b}"
        raise ShapeConflictError(message)
    return max(a, b)


def merge(a: TensorShape, b: TensorShape) -> TensorShape:
    """Combine two shapes of one tensor, either of which may be partly unknown."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        message = f"a shape cannot be {list(a)} and {list(b)}"
        raise ShapeConflictError(message)
    return tuple(map(merge_dim, a, b))


def common(shapes: Iterable[TensorShape]) -> TensorShape:
    """Return a shape that covers all alternatives; sizes that differ are unknown."""
    first, *rest = shapes
    for other in rest:
        if first is None or other is None or len(first) != len(other):
            return None
        first = tuple(x if x == y else UNKNOWN for x, y in zip(first, other, strict=True))
    return first


def concatenate(a: TensorShape, b: TensorShape) -> TensorShape:
    """Return one shape's sizes followed by another's."""
    return None if a is None or b is None else a + b


def add_dims(a: int, b: int) -> int:
    """Add sizes; unknown if one is unknown."""
    return UNKNOWN if a < 0 or b < 0 else a + b


def multiply_dims(a: int, b: int) -> int:
    """Multiply sizes; unknown if one is unknown and none is 0."""
    if 0 in (a, b):
        return 0
    return UNKNOWN if a < 0 or b < 0 else a * b


def divide_dim(a: int, divisor: int, *, evenly: bool = True) -> int:
    """Divide a size, rounding down.

    Raises:
        ShapeConflictError: the divisor is not positive, or does not divide the size ``evenly``.
    """
    if divisor <= 0 or (evenly and a >= 0 and a % divisor):
        message = f"a dimension of {a} cannot be divided by {divisor}"
        raise ShapeConflictError(message)
    return a if a < 0 else a // divisor


def broadcast(a: TensorShape, b: TensorShape) -> TensorShape:
    """Return the shape of an elementwise operation on two tensors."""
    if a is None or b is None:
        return None
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(map(_broadcast_dim, a, b))


def _broadcast_dim(a: int, b: int) -> int:
    if a == 1:
        return b
    if b == 1:
        return a
    # An unknown size must equal the other, or be 1.
    return merge_dim(a, b)


def axis_index(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= axis < rank:
        message = f"no axis {axis} in {rank} dimensions"
        raise ShapeConflictError(message)
    return axis % rank if rank else 0


class ShapeArgs(Protocol):
    """The arguments of a shape function."""

    @property
    def node(self) -> Node:
        """The node."""

    @property
    def shapes(self) -> Sequence[TensorShape]:
        """The shapes of its tensor inputs."""

    @property
    def producer(self) -> int:
        """The graph version that the node was written for."""

    def value(self, index: int) -> Array | None:
        """Return an input's elements, if they are numbers from constants and known shapes."""

    def integers(self, index: int) -> tuple[int, ...] | None:
        """Return the elements of an input of integers, flat, or None."""

    def scalar(self, index: int) -> int | None:
        """Return the only element of an input of integers, or None if unknown."""

    def as_shape(self, index: int) -> TensorShape:
        """Return an input's elements as a shape; unknown elements are unknown sizes."""

    def handle(self, index: int) -> TensorShape:
        """Return the shape behind a handle: of a variable's value, or of a list's elements."""

    def set_handle(self, shape: TensorShape) -> None:
        """Set the shape behind the handle of the first output."""

    def called(self, attribute: str, shapes: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """Infer the outputs of the function in an attribute for arguments of given shapes."""

    def count(self) -> int:
        """Return the node's number of outputs."""


ShapeFn = Callable[[ShapeArgs], Sequence[TensorShape]]
"""``shape_fn(args) -> the shape of each output``.

Raises ``ShapeConflictError`` if the inputs do not match.
"""

registry: Registry[ShapeFn] = Registry("shape function")


def shape_fn(*ops: str) -> Callable[[ShapeFn], ShapeFn]:
    """Register a function as the shape function of the named ops."""
    return registry.register(*ops)


def find_shape_fn(op: str) -> ShapeFn | None:
    """Return the shape function of an op, or None."""
    if op not in registry:
        import_op(op)
    return registry.get(op)


def shape_fn_names() -> list[str]:
    """Return the ops whose shapes can be inferred, sorted."""
    import_ops()
    return list(registry)


def declared_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the shape that the node declares."""
    return [args.node.attr_shape("shape")]


def no_outputs(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return no shapes."""
    return []


def unchanged(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the first input's shape."""
    return args.shapes[:1]


def broadcast_binary(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the broadcast shape of two inputs."""
    return [broadcast(args.shapes[0], args.shapes[1])]


def same_as_both(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return the common shape of both inputs and the output."""
    return [merge(args.shapes[0], args.shapes[1])]


def two_vectors(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return two vectors of unknown length."""
    return [(UNKNOWN,), (UNKNOWN,)]


def scalars_only(args: ShapeArgs) -> Sequence[TensorShape]:
    """Return a scalar for each output."""
    return [()] * args.count()


def shape_in(index: int) -> ShapeFn:
    """Create the rule of ops whose output has the shape that an input holds."""

    def rule(args: ShapeArgs) -> Sequence[TensorShape]:
        return [args.as_shape(index)]

    return rule


def length_in(index: int) -> ShapeFn:
    """Create the rule of ops whose output is a vector of the length that an input holds."""

    def rule(args: ShapeArgs) -> Sequence[TensorShape]:
        length = args.scalar(index)
        return [(UNKNOWN if length is None else length,)]

    return rule
