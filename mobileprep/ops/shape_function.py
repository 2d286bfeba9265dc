"""Shape functions and dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.registry import OpRegistry

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


OutputShapes = Sequence[TensorShape]
"""The shape of each output of a node."""

ShapeFn = Callable[[ShapeArgs], OutputShapes]
"""``shape_fn(args) -> the shape of each output``.

Raises ``ShapeConflictError`` if the inputs do not match.
"""

registry: OpRegistry[ShapeFn] = OpRegistry("shape function")
shape_fn = registry.register
find_shape_fn = registry.find
shape_fn_names = registry.names


def fixed(*shapes: TensorShape) -> ShapeFn:
    """Create the rule of ops whose outputs always have the same shapes."""

    def rule(args: ShapeArgs) -> OutputShapes:
        return shapes

    return rule


no_outputs = fixed()
two_vectors = fixed((UNKNOWN,), (UNKNOWN,))
sparse_matrix = fixed((UNKNOWN, 2), (UNKNOWN,), (2,))
"""The shapes of indices, values, and the dense shape."""


def declared_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape that the node declares."""
    return [args.node.attr_shape("shape")]


def unchanged(args: ShapeArgs) -> OutputShapes:
    """Return the first input's shape."""
    return args.shapes[:1]


def broadcast_binary(args: ShapeArgs) -> OutputShapes:
    """Return the broadcast shape of two inputs."""
    return [broadcast(args.shapes[0], args.shapes[1])]


def same_as_both(args: ShapeArgs) -> OutputShapes:
    """Return the common shape of both inputs and the output."""
    return [merge(args.shapes[0], args.shapes[1])]


def behind_handle(args: ShapeArgs) -> OutputShapes:
    """Return the shape behind the handle of the first input."""
    return [args.handle(0)]


def scalars_only(args: ShapeArgs) -> OutputShapes:
    """Return a scalar for each output."""
    return [()] * args.count()


def shape_in(index: int) -> ShapeFn:
    """Create the rule of ops whose output has the shape that an input holds."""

    def rule(args: ShapeArgs) -> OutputShapes:
        return [args.as_shape(index)]

    return rule


def length_in(index: int) -> ShapeFn:
    """Create the rule of ops whose output is a vector of the length that an input holds."""

    def rule(args: ShapeArgs) -> OutputShapes:
        length = args.scalar(index)
        return [(UNKNOWN if length is None else length,)]

    return rule


def input_with_rank(rank: int, index: int = 0) -> ShapeFn:
    """Create the rule of ops whose output has the shape of an input, which must have a rank."""

    def rule(args: ShapeArgs) -> OutputShapes:
        return [with_rank(args.shapes[index], rank)]

    return rule


def input_at_least(rank: int) -> ShapeFn:
    """Create the rule of ops whose output has the shape of input 0, which has a least rank."""

    def rule(args: ShapeArgs) -> OutputShapes:
        return [at_least_rank(args.shapes[0], rank)]

    return rule
