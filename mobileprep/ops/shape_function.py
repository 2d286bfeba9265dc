"""The registry of shape functions: for each op, its outputs' shapes from its inputs'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mobileprep.core.loading import Registry
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.modules import import_op, import_ops


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
        """The shape of what an input is a handle of: a variable's value, a list's elements."""

    def set_handle(self, shape: TensorShape) -> None:
        """Say of what shape the first output is a handle."""

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
