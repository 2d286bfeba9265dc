"""Shape functions that ops of many families share."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import UNKNOWN, broadcast, merge
from mobileprep.ops.shape_function import ShapeArgs, ShapeFn


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
