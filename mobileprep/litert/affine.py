"""Tensors as sums of products of other tensors with constant matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import constant_behind, source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import SUMS
from mobileprep.graph.refs import Edge, Ref, edge
from mobileprep.graph.tensor import Array
from mobileprep.ops.shape_inference import Shapes, shape_of

PARTS: Final = frozenset({"Split", "SplitV", "Slice", "StridedSlice"})
"""Ops whose outputs are parts of a tensor."""
# Wider tensors would need identity matrices of more than 256 MB.
_WIDEST: Final = 1 << 13
# More consecutive ops than any cell has.
_DEEPEST: Final = 64


class Affine(Struct, frozen=True, eq=False):
    """A tensor ``[batch, width]``: the sum of products of other tensors with matrices, and a bias.

    Args:
        width: size of the last axis.
        parts: the matrix of each tensor, ``[width of the tensor, width]``; None for the identity.
        bias: the constant part, ``[width]``.
    """

    width: int
    parts: Mapping[Edge, Array | None]
    bias: Array

    def matrix(self, tensor: Edge) -> Array | None:
        """Return the matrix of a tensor, or None if the sum does not contain it."""
        if tensor not in self.parts:
            return None
        part = self.parts[tensor]
        return np.eye(self.width, dtype=np.float32) if part is None else part

    def times(self, matrix: Array) -> Affine:
        """Return the product with a constant matrix."""
        parts = {key: matrix if part is None else part @ matrix for key, part in self.parts.items()}
        return Affine(matrix.shape[1], parts, self.bias @ matrix)

    def scaled(self, factors: Array) -> Affine:
        """Return the product of each column with a factor."""
        parts = {
            key: np.diag(factors) if part is None else part * factors
            for key, part in self.parts.items()
        }
        return Affine(self.width, parts, self.bias * factors)

    def columns(self, start: int, stop: int) -> Affine:
        """Return consecutive columns."""
        parts = {key: self._filled(key)[:, start:stop] for key in self.parts}
        return Affine(stop - start, parts, self.bias[start:stop])

    def plus(self, other: Affine) -> Affine:
        """Return the sum of two tensors of equal width."""
        parts = dict(self.parts)
        for key in other.parts:
            parts[key] = (
                self._filled(key) + other._filled(key) if key in parts else other.parts[key]
            )
        return Affine(self.width, parts, self.bias + other.bias)

    def _filled(self, key: Edge) -> Array:
        matrix = self.matrix(key)
        assert matrix is not None
        return matrix


class AffineForms:
    """The affine forms of a graph's tensors in terms of tensors that other ops compute.

    Args:
        graph: the graph.
        shapes: the shapes of its tensors.
        opaque: tensors whose own computation does not matter.
    """

    def __init__(
        self, graph: Graph, shapes: Mapping[str, Shapes], opaque: Iterable[Ref] = ()
    ) -> None:
        self._graph = graph
        self._shapes = shapes
        ends = (source_behind(graph, ref) for ref in opaque)
        self._forms: dict[Edge, Affine | None] = {edge(ref): self._itself(ref) for ref in ends}

    def of(self, ref: Ref, depth: int = 0) -> Affine | None:
        """Return the form of a tensor, or None without a known width up to a limit."""
        ref = source_behind(self._graph, ref)
        if edge(ref) not in self._forms:
            node = self._graph[ref.node]
            form = self._combined(node, ref.index, depth + 1) if depth < _DEEPEST else None
            self._forms[edge(ref)] = form or self._itself(ref)
        return self._forms[edge(ref)]

    def _itself(self, ref: Ref) -> Affine | None:
        shape = self._shape(ref)
        if shape is None or len(shape) != 2 or not 0 < shape[1] <= _WIDEST:
            return None
        return Affine(shape[1], {edge(ref): None}, np.zeros(shape[1], np.float32))

    def _shape(self, ref: Ref) -> TensorShape:
        return shape_of(self._shapes, ref)

    def _combined(self, node: Node, index: int, depth: int) -> Affine | None:
        refs = node.data_inputs
        if node.op == "MatMul":
            return self._product(node, depth)
        if node.op in SUMS or node.op in ("BiasAdd", "Sub"):
            return self._sum(refs, depth, -1 if node.op == "Sub" else 1)
        if node.op == "Mul":
            return self._scaled(refs, depth)
        if node.op == "ConcatV2":
            return self._joined(refs, depth)
        if node.op in PARTS:
            return self._part(node, index, depth)
        if node.op in ("Squeeze", "Reshape") and self._is_row(node):
            return self.of(refs[0], depth)
        return None

    def _is_row(self, node: Node) -> bool:
        """Return whether a node only removes the axis of a batch of one, or adds it."""
        before, after = (self._shape(ref) for ref in (node.data_inputs[0], Ref(node.name)))
        widths = {shape[-1:] for shape in (before, after) if shape}
        sizes = (before or ())[:-1], (after or ())[:-1]
        return len(widths) == 1 and sizes in (((1,), ()), ((), (1,)), ((1,), (1,)))

    def _product(self, node: Node, depth: int) -> Affine | None:
        weights = self._constant(node.data_inputs[1])
        form = self.of(node.data_inputs[0], depth)
        if weights is None or form is None or node.attr_bool("transpose_a", False):
            return None
        if node.attr_bool("transpose_b", False):
            weights = weights.T
        return form.times(weights) if form.width == weights.shape[0] else None

    def _sum(self, refs: Sequence[Ref], depth: int, sign: int) -> Affine | None:
        forms = [self._operand(ref, depth) for ref in refs]
        widths = {form.width for form in forms if isinstance(form, Affine)}
        if len(widths) != 1 or any(form is None for form in forms):
            return None
        (width,) = widths
        wide = [self._widened(form, width) for form in forms if form is not None]
        if len(wide) != 2 or wide[0] is None or wide[1] is None:
            return None
        other = wide[1] if sign > 0 else wide[1].scaled(np.full(width, -1, np.float32))
        return wide[0].plus(other)

    def _operand(self, ref: Ref, depth: int) -> Affine | Array | None:
        values = self._constant(ref)
        return self.of(ref, depth) if values is None else values

    def _widened(self, form: Affine | Array, width: int) -> Affine | None:
        """Return a form; a constant that is added to every row becomes a bias."""
        if isinstance(form, Affine):
            return form
        row = _row(form, width)
        return None if row is None else Affine(width, {}, row)

    def _scaled(self, refs: Sequence[Ref], depth: int) -> Affine | None:
        for ref, other in (refs, refs[::-1]):
            factors = self._constant(other)
            form = None if factors is None else self.of(ref, depth)
            if factors is not None and form is not None:
                row = _row(factors, form.width)
                return None if row is None else form.scaled(row)
        return None

    def _joined(self, refs: Sequence[Ref], depth: int) -> Affine | None:
        axis = self._constant(refs[-1])
        forms = [self.of(ref, depth) for ref in refs[:-1]]
        if axis is None or int(axis.reshape(-1)[0]) not in (1, -1) or None in forms:
            return None
        known = [form for form in forms if form is not None]
        whole = sum(form.width for form in known)
        total = Affine(whole, {}, np.zeros(whole, np.float32))
        start = 0
        for form in known:
            place = np.zeros((form.width, whole), np.float32)
            place[:, start : start + form.width] = np.eye(form.width, dtype=np.float32)
            total = total.plus(form.times(place))
            start += form.width
        return total

    def _part(self, node: Node, index: int, depth: int) -> Affine | None:
        """Return the form of consecutive columns."""
        source = node.data_inputs[1 if node.op == "Split" else 0]
        form = self.of(source, depth)
        bounds = None if form is None else self._bounds(node, index, form.width)
        if form is None or bounds is None or not 0 <= bounds[0] < bounds[1] <= form.width:
            return None
        return form.columns(*bounds)

    def _bounds(self, node: Node, index: int, width: int) -> tuple[int, int] | None:
        own = 0 if node.op == "Split" else 1
        rest = [r for place, r in enumerate(node.data_inputs) if place != 1 - own]
        known = [values for values in map(self._constant, rest) if values is not None]
        if len(known) != len(rest):
            return None
        numbers = [[int(x) for x in values.reshape(-1)] for values in known]
        if node.op == "Split":
            count = node.attr_int("num_split", 0)
            is_columns = numbers[0] in ([1], [-1]) and count > 0 and width % count == 0
            return (index * width // count, (index + 1) * width // count) if is_columns else None
        if node.op == "SplitV":
            sizes, axis = numbers
            start = sum(sizes[:index])
            return (
                (start, start + sizes[index]) if axis in ([1], [-1]) and -1 not in sizes else None
            )
        if node.op == "Slice":
            (first, start), (rows, count) = numbers
            end = width if count < 0 else start + count
            return (start, end) if first == 0 and rows < 0 else None
        return _strided(node, numbers, width)

    def _constant(self, ref: Ref) -> Array | None:
        tensor = constant_behind(self._graph, ref)
        return None if tensor is None else tensor.array()


def _row(values: Array, width: int) -> Array | None:
    """Return a constant that applies to every row as ``[width]``, or None if rows differ."""
    if values.ndim > 2 or values.shape[:-1] not in ((), (1,)) or values.dtype != np.float32:
        return None
    if values.size not in (1, width):
        return None
    return np.broadcast_to(values.reshape(-1), (width,))


def _strided(node: Node, numbers: Sequence[Sequence[int]], width: int) -> tuple[int, int] | None:
    """Return the columns of a StridedSlice that selects all rows."""
    begin, end, step = numbers
    masks = {
        name: node.attr_int(f"{name}_mask", 0)
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    if masks["ellipsis"] or masks["new_axis"] or masks["shrink_axis"]:
        return None
    if len(begin) != 2 or list(step) != [1, 1] or not masks["end"] & 1:
        return None
    if not (masks["begin"] & 1 or begin[0] == 0):
        return None
    start = 0 if masks["begin"] & 2 else begin[1] + (width if begin[1] < 0 else 0)
    stop = width if masks["end"] & 2 else end[1] + (width if end[1] < 0 else 0)
    return start, min(stop, width)
