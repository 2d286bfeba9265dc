"""Fused ops, as Grappler and the fuse_* transforms write them, split into the ops they stand for.

Source: the op definitions of _FusedConv2D, _FusedDepthwiseConv2dNative, _FusedMatMul,
_FusedBatchNormEx, FusedPadConv2D, and FusedResizeAndPadConv2D in TensorFlow 1.15 to 2.21.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor

_CONVOLUTION: Final = ("strides", "padding", "explicit_paddings", "data_format", "dilations")
_PRODUCTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "_FusedConv2D": ("Conv2D", _CONVOLUTION),
    "_FusedDepthwiseConv2dNative": ("DepthwiseConv2dNative", _CONVOLUTION),
    "_FusedMatMul": ("MatMul", ("transpose_a", "transpose_b")),
}
_ACTIVATIONS: Final = frozenset({"Elu", "LeakyRelu", "Relu", "Relu6", "Sigmoid", "Tanh"})
_OPERANDS: Final = {"BiasAdd": 1, "Add": 1, "FusedBatchNorm": 4}
_FILTERS: Final = "HWIO"


def unfused(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with every fused op as plain ones, of which the last keeps the name.

    An op with an unknown activation, or with too few inputs, stays as it is.
    """
    fresh = FreshNames(node.name for node in nodes)
    result: list[Node] = []
    for node in nodes:
        split = _SPLIT.get(node.op)
        work = _Split(node, fresh)
        result += work.nodes if split is not None and split(work) else [node]
    return result


class _Split:
    """The plain ops of one fused node, in order."""

    def __init__(self, node: Node, fresh: FreshNames) -> None:
        self.node = node
        self.inputs = node.data_inputs
        self._fresh = fresh
        self._made: list[Node] = []

    def add(self, op: str, *inputs: Ref, kept: Sequence[str] = (), **attrs: AttrValue) -> Ref:
        """Add an op.

        Args:
            op: its name.
            inputs: its inputs.
            kept: the attributes that it takes from the fused node, besides the type.
            attrs: its other attributes.
        """
        own = {key: self.node.attrs[key] for key in ("T", *kept) if key in self.node.attrs}
        name = self._fresh.name(f"{self.node.name}/{op}")
        self._made.append(Node(name, op, inputs, self.node.device, {**own, **attrs}))
        return Ref(name)

    def activate(self, name: str, value: Ref) -> Ref:
        if name != "LeakyRelu":
            return self.add(name, value)
        alpha = attr.floating(self.node.attr_float("leakyrelu_alpha", 0.2))
        return self.add(name, value, alpha=alpha)

    def normalize(self, value: Ref, *statistics: Ref) -> Ref:
        parameters = {"U": attr.dtype(DType.FLOAT), "is_training": attr.boolean(value=False)}
        kept = ("epsilon", "data_format")
        return self.add("FusedBatchNormV3", value, *statistics, kept=kept, **parameters)

    def in_order(self, filters: Ref) -> Ref | None:
        """The filters in the order that Conv2D takes; None for an order that is not known."""
        order = self.node.attr_str("filter_format", _FILTERS)
        if order == _FILTERS:
            return filters
        if sorted(order) != sorted(_FILTERS):
            return None
        name = self._fresh.name(f"{self.node.name}/permutation")
        axes = np.array([order.index(axis) for axis in _FILTERS], np.int32)
        self._made.append(constant(name, Tensor.of(axes)))
        return self.add("Transpose", filters, Ref(name), Tperm=attr.dtype(DType.INT32))

    @property
    def nodes(self) -> list[Node]:
        """The ops; the last has the fused node's name and control inputs."""
        *before, last = self._made
        inputs = (*last.inputs, *self.node.control_inputs)
        return [*before, Node(self.node.name, last.op, inputs, last.device, last.attrs)]


def _product(work: _Split) -> bool:
    op, kept = _PRODUCTS[work.node.op]
    if len(work.inputs) < 2:
        return False
    image, filters, *rest = work.inputs
    ordered = work.in_order(filters)
    if ordered is None:
        return False
    value = work.add(op, image, ordered, kept=kept)
    for name in (fused.decode() for fused in work.node.attr_strings("fused_ops")):
        count = _OPERANDS.get(name, 0)
        if count > len(rest) or not (count or name in _ACTIVATIONS):
            return False
        operands, rest = rest[:count], rest[count:]
        if name == "FusedBatchNorm":
            value = work.normalize(value, *operands)
        elif name == "BiasAdd":
            value = work.add("BiasAdd", value, *operands, kept=("data_format",))
        else:
            value = work.add("AddV2", value, *operands) if count else work.activate(name, value)
    return True


def _norm(work: _Split) -> bool:
    activation = work.node.attr_str("activation_mode", "Identity")
    is_known = activation in (*_ACTIVATIONS, "Identity")
    if not is_known or len(work.inputs) < 5 or work.node.attr_bool("is_training", False):
        return False
    image, *statistics = work.inputs[:5]
    value = work.normalize(image, *statistics)
    for side in work.inputs[5:]:
        value = work.add("AddV2", value, side)
    if activation != "Identity":
        work.activate(activation, value)
    return True


def _padded(work: _Split) -> bool:
    is_resized = work.node.op == "FusedResizeAndPadConv2D"
    if len(work.inputs) != (4 if is_resized else 3):
        return False
    image, *sizes, paddings, filters = work.inputs
    if is_resized:
        aligned = attr.boolean(work.node.attr_bool("resize_align_corners", False))
        image = work.add("ResizeBilinear", image, *sizes, align_corners=aligned)
    padded = work.add(
        "MirrorPad", image, paddings, kept=("mode",), Tpaddings=attr.dtype(DType.INT32)
    )
    work.add("Conv2D", padded, filters, kept=("strides", "padding"))
    return True


_SPLIT: Final[Mapping[str, Callable[[_Split], bool]]] = {
    **dict.fromkeys(_PRODUCTS, _product),
    "_FusedBatchNormEx": _norm,
    **dict.fromkeys(("FusedPadConv2D", "FusedResizeAndPadConv2D"), _padded),
}
