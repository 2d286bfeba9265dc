"""Sizes that are not known before inputs come: which input has the same size, along which axis.

Each open size of the inputs gets a large prime; where that comes out as the size of an element,
element and input have the size in common. It is done again with other primes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node, constant
from mobileprep.ir.op_sets import FEEDABLE
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.transforms.raise_control_flow.loop_shapes import LoopShapes
from mobileprep.transforms.raise_control_flow.tracing import TracedArray

_PRIMES: Final = (7919, 7933, 7937, 7949, 7951, 7963, 7993, 8009, 8011, 8017, 8039, 8053)
_OTHERS: Final = (9901, 9907, 9923, 9929, 9931, 9941, 9949, 9967, 9973, 10007, 10009, 10037)
_INT32: Final = attr.dtype(DType.INT32)

Place = tuple[str, int]
"""An input's name, and an axis of it."""

_Way = Callable[[str, int, Sequence[int]], Hashable]
# What is equal for sizes that are taken to be the same, of an input's name, an axis, and the axes
# that it leaves open: one batch, none, the same axes, or the same axes from the last, as for
# [time, batch] beside [batch].
_WAYS: Final[Sequence[_Way]] = (
    lambda name, axis, _: axis and (name, axis),
    lambda name, axis, _: (name, axis),
    lambda _, axis, __: axis,
    lambda _, axis, left_open: left_open[-1] - axis,
)


class OpenSizes:
    """Finds the inputs' sizes that sizes of elements are.

    Args:
        graph: a draft, whose tensors have the same shapes as in the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names = FreshNames(graph.by_name)
        self._made: dict[Place, Ref] = {}
        self.nodes: list[Node] = []
        """What computes the sizes that were found."""

    def of(
        self,
        array: TracedArray,
        axis: int,
        element: Callable[[TracedArray, LoopShapes], TensorShape],
    ) -> Ref | None:
        """A scalar of int32 with the size of elements along an axis, where it is found."""
        for trials in self._trials:
            found = {self._place(element(array, shapes), axis, at) for shapes, at in trials}
            place = found.pop() if len(found) == 1 else None
            if place is not None:
                return self._size(place)
        return None

    @cached_property
    def _trials(self) -> Sequence[Sequence[tuple[LoopShapes, Mapping[int, Place]]]]:
        """Shapes with primes for open sizes, twice for each way in which sizes may be the same."""
        shapes = dict(self._open_inputs())
        count = sum(shape.count(-1) for shape in shapes.values())
        ways = _WAYS if 0 < count <= len(_PRIMES) else ()
        return [[self._tried(shapes, p, way) for p in (_PRIMES, _OTHERS)] for way in ways]

    def _open_inputs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for node in self._graph:
            shape = node.attr_shape("shape") if node.op in FEEDABLE else None
            if shape is not None and -1 in shape:
                yield node.name, shape

    def _tried(
        self, shapes: Mapping[str, tuple[int, ...]], primes: Sequence[int], way: _Way
    ) -> tuple[LoopShapes, Mapping[int, Place]]:
        places: dict[int, Place] = {}
        groups: dict[Hashable, int] = {}
        fed: dict[str, TensorShape] = {}
        for name, shape in shapes.items():
            sizes = list(shape)
            left_open = [axis for axis, size in enumerate(shape) if size < 0]
            for axis in left_open:
                sizes[axis] = groups.setdefault(way(name, axis, left_open), primes[len(groups)])
                places.setdefault(sizes[axis], (name, axis))
            fed[name] = tuple(sizes)
        return LoopShapes(self._graph, fed), places

    def _place(self, shape: TensorShape, axis: int, places: Mapping[int, Place]) -> Place | None:
        return None if shape is None or axis >= len(shape) else places.get(shape[axis])

    def _size(self, place: Place) -> Ref:
        if place not in self._made:
            name, axis = place
            node = self._graph[name]
            kind = node.attribute("dtype")
            sizes = self._names.name(f"{name}/sizes")
            which, first = (self._names.name(f"{name}/{n}") for n in ("which", "first"))
            size = self._names.name(f"{name}/size_{axis}")
            kinds = {"Tparams": _INT32, "Tindices": _INT32, "Taxis": _INT32}
            inputs = (Ref(sizes), Ref(which), Ref(first))
            self.nodes += [
                Node(sizes, "Shape", (Ref(name),), "", {"T": kind, "out_type": _INT32}),
                constant(which, Tensor.of(np.int32(axis))),
                constant(first, Tensor.of(np.int32(0))),
                Node(size, "GatherV2", inputs, "", {**kinds, "batch_dims": attr.integer(0)}),
            ]
            self._made[place] = Ref(size)
        return self._made[place]
