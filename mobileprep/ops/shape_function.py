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
"""The most dimensions that TensorFlow's tensors have."""


class ShapeConflictError(Exception):
    """Shapes that no tensor can have; the message says why."""


def unknown_dims(rank: int) -> tuple[int, ...]:
    """A shape of which only the rank is known."""
    if rank > MAX_RANK:
        message = f"no tensor has {rank} dimensions"
        raise ShapeConflictError(message)
    return (UNKNOWN,) * rank


def is_full(shape: TensorShape) -> bool:
    """Whether rank and every size are known."""
    return shape is not None and min(shape, default=0) >= 0


def element_count(shape: TensorShape) -> int:
    """The number of elements, or -1 where it is not known."""
    return math.prod(shape) if shape is not None and is_full(shape) else UNKNOWN


def dim(shape: TensorShape, index: int) -> int:
    """A size, -1 where the rank or the size is unknown; negative indices count from the end."""
    if shape is None:
        return UNKNOWN
    if not -len(shape) <= index < len(shape):
        message = f"shape {list(shape)} has no dimension {index}"
        raise ShapeConflictError(message)
    return shape[index]


def with_rank(shape: TensorShape, rank: int) -> tuple[int, ...]:
    """The shape, which must have that rank; unknown sizes where its rank is unknown."""
    if shape is None:
        return unknown_dims(rank)
    if len(shape) != rank:
        message = f"shape {list(shape)} must have rank {rank}"
        raise ShapeConflictError(message)
    return shape


def at_least_rank(shape: TensorShape, rank: int) -> TensorShape:
    """The shape, which must have at least that rank, or None."""
    if shape is not None and len(shape) < rank:
        message = f"shape {list(shape)} must have at least rank {rank}"
        raise ShapeConflictError(message)
    return shape


def merge_dim(a: int, b: int) -> int:
    """What two statements about one size say together."""
    if a >= 0 <= b and a != b:
        message = f"a dimension cannot be {a} and {b}"
        raise ShapeConflictError(message)
    return max(a, b)


def merge(a: TensorShape, b: TensorShape) -> TensorShape:
    """What two statements about one shape say together."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        message = f"a shape cannot be {list(a)} and {list(b)}"
        raise ShapeConflictError(message)
    return tuple(map(merge_dim, a, b))


def common(shapes: Iterable[TensorShape]) -> TensorShape:
    """What shapes have in common, of which any one may occur."""
    first, *rest = shapes
    for other in rest:
        if first is None or other is None or len(first) != len(other):
            return None
        first = tuple(x if x == y else UNKNOWN for x, y in zip(first, other, strict=True))
    return first


def concatenate(a: TensorShape, b: TensorShape) -> TensorShape:
    """One shape's sizes followed by another's."""
    return None if a is None or b is None else a + b


def add_dims(a: int, b: int) -> int:
    """A sum of sizes."""
    return UNKNOWN if a < 0 or b < 0 else a + b


def multiply_dims(a: int, b: int) -> int:
    """A product of sizes."""
    if 0 in (a, b):
        return 0
    return UNKNOWN if a < 0 or b < 0 else a * b


def divide_dim(a: int, divisor: int, *, evenly: bool = True) -> int:
    """A quotient of sizes, rounded down."""
    if divisor <= 0 or (evenly and a >= 0 and a % divisor):
        message = f"a dimension of {a} cannot be divided by {divisor}"
        raise ShapeConflictError(message)
    return a if a < 0 else a // divisor


def broadcast(a: TensorShape, b: TensorShape) -> TensorShape:
    """The shape of an element-wise operation on two tensors."""
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
    # An unknown size must be that of the other, or 1.
    return merge_dim(a, b)


def axis_index(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        message = f"no axis {axis} in {rank} dimensions"
        raise ShapeConflictError(message)
    return axis % rank if rank else 0


class ShapeArgs(Protocol):
    """What a shape function may look at."""

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
        """An input's elements, where they are numbers from constants and known shapes."""

    def integers(self, index: int) -> tuple[int, ...] | None:
        """The elements of an input of integers, flat, or None."""

    def scalar(self, index: int) -> int | None:
        """The only element of an input of integers, or None where it is not known."""

    def as_shape(self, index: int) -> TensorShape:
        """An input's elements read as a shape; what is not known of it stays unknown."""

    def handle(self, index: int) -> TensorShape:
        """Return the shape behind a handle: of a variable's value, or of a list's elements."""

    def set_handle(self, shape: TensorShape) -> None:
        """Set the shape behind the handle of the first output."""

    def called(self, attribute: str, shapes: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """The shapes that a function gives, which an attribute names, for arguments of shapes."""

    def count(self) -> int:
        """How many outputs the node has."""


ShapeFn = Callable[[ShapeArgs], Sequence[TensorShape]]
"""``shape_fn(args) -> the shape of each output``.

Raises ``ShapeConflictError`` where the inputs do not fit each other.
"""

registry: Registry[ShapeFn] = Registry("shape function")


def shape_fn(*ops: str) -> Callable[[ShapeFn], ShapeFn]:
    """A decorator that makes a function the shape function of the named ops."""
    return registry.register(*ops)


def find_shape_fn(op: str) -> ShapeFn | None:
    """The shape function of an op, or None."""
    if op not in registry:
        import_op(op)
    return registry.get(op)


def shape_fn_names() -> list[str]:
    """The ops whose shapes can be inferred, sorted."""
    import_ops()
    return list(registry)


def declared_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the node declares."""
    return [args.node.attr_shape("shape")]


def no_outputs(args: ShapeArgs) -> Sequence[TensorShape]:
    """No outputs."""
    return []


def unchanged(args: ShapeArgs) -> Sequence[TensorShape]:
    """The first input's shape."""
    return args.shapes[:1]


def broadcast_binary(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two inputs broadcast to each other."""
    return [broadcast(args.shapes[0], args.shapes[1])]


def same_as_both(args: ShapeArgs) -> Sequence[TensorShape]:
    """Both inputs and the output have one shape."""
    return [merge(args.shapes[0], args.shapes[1])]


def two_vectors(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two vectors."""
    return [(UNKNOWN,), (UNKNOWN,)]


def scalars_only(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar for each output."""
    return [()] * args.count()


def shape_in(index: int) -> ShapeFn:
    """The rule of ops whose output has the shape that an input holds."""

    def rule(args: ShapeArgs) -> Sequence[TensorShape]:
        return [args.as_shape(index)]

    return rule


def length_in(index: int) -> ShapeFn:
    """The rule of ops whose output is a vector of the length that an input holds."""

    def rule(args: ShapeArgs) -> Sequence[TensorShape]:
        length = args.scalar(index)
        return [(UNKNOWN if length is None else length,)]

    return rule
