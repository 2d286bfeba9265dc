"""The values of tensors that TensorFlow 1.15 finds while it infers shapes: fewer than there are.

Source: ``ExtractConstantSubgraph`` and ``ShapeRefiner::ConstantPartialShape`` of TensorFlow 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.constant_evaluation import MAX_DEPTH, StaticValues, is_static
from mobileprep.ops.shape_function import MAX_RANK, UNKNOWN, concatenate, unknown_dims

_TOLD_BY_SHAPES = frozenset({"Rank", "Shape", "Size"})
_SPECIAL_MASKS = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


class Tf115Values(StaticValues):
    """Values as 1.15 finds them.

    It misses a value that needs one Shape, Rank or Size node twice, and looks at the sizes of a
    partly known shape only through Pack, Concat and simple strided slices.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        shape_of: Callable[[Ref], TensorShape],
        fed: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(nodes, shape_of, fed)
        self._evaluated: set[Ref] = set()

    def value(self, ref: Ref) -> Array | None:
        """A tensor's elements, or None where they are not found."""
        node = self._nodes[ref.node]
        if node.op == "Const":
            return super().value(ref)
        if ref not in self._evaluated and not self._is_evaluated(node):
            return None
        found = super().value(ref)
        if found is not None:
            self._evaluated.add(ref)
        return found

    def as_shape(self, ref: Ref) -> TensorShape:
        """A tensor read as a shape: -1 for each size that is not found, or None."""
        return self._read_shape(ref, 0)

    def _is_evaluated(self, target: Node) -> bool:
        """Whether all that a node needs is constant, and no known shape is needed twice."""
        if not is_static(target):
            return False
        told: set[Ref] = set()
        followed = {target.name}
        waiting = list(target.data_inputs)
        while waiting:
            ref = waiting.pop()
            node = self._nodes[ref.node]
            if not is_static(node) or not (node.data_inputs or node.op == "Const"):
                return False
            if node.op in _TOLD_BY_SHAPES and super().value(ref) is not None:
                if ref in told:
                    return False
                told.add(ref)
            elif ref in self._evaluated and ref not in told:
                told.add(ref)
            elif node.name not in followed:
                followed.add(node.name)
                waiting += node.data_inputs
        return True

    def _read_shape(self, ref: Ref, depth: int) -> TensorShape:
        shape, node = self._shape_of(ref), self._nodes[ref.node]
        if shape == (0,):
            return ()
        if shape is None or len(shape) != 1 or depth > MAX_DEPTH:
            return None
        refs = node.data_inputs
        if node.op in ("Shape", "ShapeN"):
            return self._shape_of(refs[ref.index])
        if node.op == "Pack":
            return tuple(self._size(r) for r in refs)
        if node.op in ("Concat", "ConcatV2"):
            joined: TensorShape = ()
            for part in refs[1:] if node.op == "Concat" else refs[:-1]:
                joined = concatenate(joined, self._read_shape(part, depth + 1))
            return joined
        if node.op == "StridedSlice":
            return self._read_slice(node, depth)
        sizes = self.value(ref)
        if sizes is not None:
            return tuple(max(int(size), UNKNOWN) for size in sizes[:MAX_RANK])
        return unknown_dims(shape[0]) if 0 <= shape[0] <= MAX_RANK else None

    def _size(self, ref: Ref) -> int:
        value = self.value(ref)
        return UNKNOWN if value is None or value.size != 1 else max(int(value.item()), UNKNOWN)

    def _read_slice(self, node: Node, depth: int) -> TensorShape:
        bounds = node.data_inputs[1:4]
        if any(self._shape_of(r) != (1,) for r in bounds):
            return None
        masks = node.attr_int("begin_mask", 0), node.attr_int("end_mask", 0)
        if max(masks) > 1 or any(node.attr_int(name, 0) for name in _SPECIAL_MASKS):
            return None
        values = [self.value(r) for r in bounds]
        if any(v is None and not m for v, m in zip(values, (*masks, 0), strict=True)):
            return None
        begin, end, stride = (None if v is None else int(v.item()) for v in values)
        cut = slice(None if masks[0] else begin, None if masks[1] else end, stride)
        source = self._read_shape(node.data_inputs[0], depth + 1)
        if source is None or stride == 0:
            return None
        return source[cut]
