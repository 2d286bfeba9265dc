"""Replacements of newer ops with older equivalents, and their preconditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.ops.shape_inference import infer_shapes, shape_of

_BROADCAST: Final = "its inputs are broadcast, or their shapes are not known in full"
_TYPES: Final = "its types differ from each other, or the older op does not take them"
_ALIGNED: Final = "several diagonals, which the older op aligns in another way"
_RESERVED: Final = "its last output, which the older op does not have, is used"
_UPDATED: Final = "it updates statistics by a factor"
_FLAT: Final = frozenset({"NHWC", "NCHW"})
_BATCH_NORM_OUTPUTS: Final = 5


class Facts:
    """Facts about a graph that replacements need, computed on first use.

    Args:
        graph: the graph.
        fetched: names of tensors that count as used, as the user spelled them.
    """

    def __init__(self, graph: Graph, fetched: tuple[str, ...] = ()) -> None:
        self._graph = graph
        self._fetched = fetched

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[TensorShape, ...]]:
        return infer_shapes(self._graph)

    @cached_property
    def _used(self) -> frozenset[tuple[str, int]]:
        refs = [ref for node in self._graph for ref in node.inputs]
        return frozenset((r.node, r.index) for r in [*refs, *map(parse_ref, self._fetched)])

    def shape(self, ref: Ref) -> TensorShape:
        """Return a tensor's shape, as far as it is known."""
        return shape_of(self._shapes, ref)

    def is_used(self, node: str, index: int) -> bool:
        """Return whether an output has a consumer or is fetched."""
        return (node, index) in self._used

    def is_one_number(self, ref: Ref) -> bool:
        """Return whether a tensor is a constant with equal elements."""
        node = self._graph.get(ref.node)
        if node is None or node.op != "Const":
            return False
        return len(set(node.attr_tensor("value").array().ravel().tolist())) == 1


class Refusal(Struct, frozen=True):
    """Reason why a node is not replaced."""

    reason: str


Replacement = Callable[[Node, Facts], Node | Refusal]


def _add(node: Node, _: Facts) -> Node | Refusal:
    if node.attr_dtype("T") is DType.STRING:
        return Refusal(_TYPES)
    return replace(node, op="Add")


def _batch_product_v3(node: Node, _: Facts) -> Node | Refusal:
    types = {node.attr_dtype(name) for name in ("Ta", "Tb", "Tout")}
    if len(types) > 1:
        return Refusal(_TYPES)
    typed = replace(node, op="BatchMatMulV2").with_attrs(T=attr.dtype(types.pop()))
    return typed.without_attrs("Ta", "Tb", "Tout")


def _batch_product(node: Node, facts: Facts) -> Node | Refusal:
    shapes = [facts.shape(ref) for ref in node.data_inputs]
    if not _are_same([None if s is None else s[:-2] for s in shapes]):
        return Refusal(_BROADCAST)
    return replace(node, op="BatchMatMul")


def _select(node: Node, facts: Facts) -> Node | Refusal:
    if not _are_same([facts.shape(ref) for ref in node.data_inputs]):
        return Refusal(_BROADCAST)
    return replace(node, op="Select")


def _batch_norm(node: Node, facts: Facts) -> Node | Refusal:
    factor = node.attr_float("exponential_avg_factor", 1.0)
    if node.attr_bool("is_training", True) and factor != 1:
        return Refusal(_UPDATED)
    if facts.is_used(node.name, _BATCH_NORM_OUTPUTS):
        return Refusal(_RESERVED)
    statistics = node.attr_dtype("U", DType.FLOAT)
    if node.attr_str("data_format", "NHWC") not in _FLAT or statistics is not DType.FLOAT:
        return Refusal(_TYPES)
    plain = node.without_attrs("exponential_avg_factor")
    if node.attr_dtype("T") is DType.FLOAT:
        return replace(plain, op="FusedBatchNorm").without_attrs("U")
    return replace(plain, op="FusedBatchNormV2")


def _diagonal(older: str, position: int) -> Replacement:
    """Create a replacement whose ``position``-th input selects the diagonals."""

    def replacement(node: Node, facts: Facts) -> Node | Refusal:
        aligned = node.attr_str("align", "RIGHT_LEFT")
        if aligned != "LEFT_LEFT" and not facts.is_one_number(node.data_inputs[position]):
            return Refusal(_ALIGNED)
        return replace(node, op=older).without_attrs("align")

    return replacement


def _renamed(older: str) -> Replacement:
    def replacement(node: Node, _: Facts) -> Node | Refusal:
        return replace(node, op=older)

    return replacement


REPLACEMENTS: Final[Mapping[str, Replacement]] = {
    "AddV2": _add,
    "BatchMatMulV2": _batch_product,
    "BatchMatMulV3": _batch_product_v3,
    "CheckNumericsV2": _renamed("CheckNumerics"),
    "FusedBatchNormV3": _batch_norm,
    "MatrixDiagPartV3": _diagonal("MatrixDiagPartV2", 1),
    "MatrixDiagV3": _diagonal("MatrixDiagV2", 1),
    "MatrixSetDiagV3": _diagonal("MatrixSetDiagV2", 2),
    "QuantizeAndDequantizeV4": _renamed("QuantizeAndDequantizeV2"),
    "SelectV2": _select,
}
"""Functions that replace a node with an older op, by op."""

IN_FUNCTIONS: Final = frozenset({"AddV2", "BatchMatMulV3", "CheckNumericsV2"})
"""Ops whose replacement depends only on the node, and therefore works in function bodies."""


def _are_same(shapes: list[TensorShape]) -> bool:
    """Return whether all shapes are fully known and equal."""
    first = shapes[0]
    return first is not None and -1 not in first and all(shape == first for shape in shapes)
