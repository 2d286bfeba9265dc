"""What nodes other than layers make of a tensor whose channels are scaled.

A node passes scales on if it gives the same with its input's channels scaled, each by a positive
number, and its output's scaled back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.identities import IDENTITIES
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.rewriting.channel_scales.variables import ScaledTensor

ValueOf = Callable[[Ref], Tensor | None]
ShapeOf = Callable[[Ref], TensorShape]

ELEMENTWISE: Final = IDENTITIES | {"Relu", "LeakyRelu", "Abs", "Neg", "CheckNumerics"}
_POOLS: Final = frozenset({"MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"})
_RESIZES: Final = frozenset(
    {"ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"}
)
_REDUCTIONS: Final = frozenset({"Mean", "Sum", "Max", "Min"})
_BLOCKS: Final = frozenset({"SpaceToBatchND", "BatchToSpaceND"})
_PADS: Final = frozenset({"Pad", "PadV2", "MirrorPad"})
_WITH_PARAMETERS: Final = _REDUCTIONS | _PADS | _BLOCKS | {"Transpose"}

Passed = ScaledTensor | str
"""The output's channels, or why there are none."""


def passed(node: Node, tensor: ScaledTensor, value_of: ValueOf, shape_of: ShapeOf) -> Passed:
    """What a node makes of its first input's channels, all its other inputs being parameters."""
    if node.op in ELEMENTWISE:
        return tensor
    if node.op in _POOLS:
        return _pooled(node, tensor)
    if node.op in _RESIZES:
        return tensor if tensor.axis == -1 else "it resizes channels"
    if node.op == "Reshape":
        return _reshaped(tensor, shape_of(node.data_inputs[0]), shape_of(Ref(node.name)))
    if node.op == "Squeeze":
        return _squeezed(node, tensor)
    parameters = [value_of(r) for r in node.data_inputs[1:]]
    given = [p.array() for p in parameters if p is not None and p.dtype is not DType.STRING]
    if node.op not in _WITH_PARAMETERS or not given or len(given) < len(parameters):
        return f"its channels go to {node.op}"
    return _with_parameters(node, tensor, given)


def _with_parameters(node: Node, tensor: ScaledTensor, given: Sequence[Array]) -> Passed:
    if node.op in _REDUCTIONS:
        return _reduced(node, tensor, given[0])
    if node.op in _PADS:
        return _padded(tensor, given)
    return _transposed(tensor, given[0]) if node.op == "Transpose" else _in_blocks(tensor, given[0])


def joined(node: Node, tensors: Sequence[ScaledTensor], axis: Tensor | None) -> Passed:
    """The channels of several tensors in a row, where ConcatV2 puts them so.

    Along another dimension the channels must be made equal before.
    """
    first = tensors[0]
    if axis is None or axis.size != 1 or axis.dtype is DType.STRING or first.rank is None:
        return f"{node.op} has computed parameters"
    where = int(axis.array().reshape(-1)[0])
    where = where - first.rank if where >= 0 else where
    if where != first.axis:
        return first
    return replace(first, ids=np.concatenate([t.ids for t in tensors]))


def multiplied(tensor: ScaledTensor, factor: TensorShape) -> Passed:
    """The channels after an elementwise product with a tensor that is not scaled."""
    if factor is None:
        return "the shape of what it is multiplied by is not known"
    if tensor.rank is None or len(factor) > tensor.rank:
        return "a product makes it larger"
    if len(factor) >= -tensor.axis and factor[tensor.axis] not in (1, len(tensor.ids)):
        return "a product makes it larger"
    return tensor


def _pooled(node: Node, tensor: ScaledTensor) -> Passed:
    windows = (node.attr_ints("ksize", ()), node.attr_ints("strides", ()))
    order = node.attr_str("data_format", "NDHWC" if "3D" in node.op else "NHWC")
    if order not in ("NHWC", "NDHWC", "NCHW", "NCDHW"):
        return f"{node.op} is in the order {order}"
    axis = order.index("C")
    if axis - len(order) != tensor.axis or any(len(w) <= axis or w[axis] != 1 for w in windows):
        return f"{node.op} takes channels together"
    return tensor


def _reduced(node: Node, tensor: ScaledTensor, axes: Array) -> Passed:
    if tensor.rank is None or axes.dtype.kind != "i":
        return f"{node.op} of unknown dimensions"
    rank = tensor.rank
    dropped = {int(a) - rank if a >= 0 else int(a) for a in axes.reshape(-1)}
    if tensor.axis in dropped:
        return f"{node.op} takes channels together"
    if node.attr_bool("keep_dims", False):
        return tensor
    return tensor.at(tensor.axis + sum(d > tensor.axis for d in dropped), rank - len(dropped))


def _padded(tensor: ScaledTensor, given: Sequence[Array]) -> Passed:
    paddings = given[0]
    if tensor.rank is None or paddings.shape != (tensor.rank, 2) or paddings[tensor.axis].any():
        return "the channels are padded"
    if len(given) > 1 and given[1].any():
        return "it is padded with another number than zero"
    return tensor


def _squeezed(node: Node, tensor: ScaledTensor) -> Passed:
    given = node.attrs.get("squeeze_dims")
    dims = () if given is None else given.value
    if not dims or tensor.rank is None:
        return "Squeeze does not tell which dimensions it drops"
    dropped = {d - tensor.rank if d >= 0 else d for d in dims}
    if tensor.axis in dropped:
        return "Squeeze drops the channels"
    behind = sum(d > tensor.axis for d in dropped)
    return tensor.at(tensor.axis + behind, tensor.rank - len(dropped))


def _transposed(tensor: ScaledTensor, order: Array) -> Passed:
    if tensor.rank is None or sorted(order.reshape(-1).tolist()) != list(range(tensor.rank)):
        return "Transpose of unknown dimensions"
    where = order.reshape(-1).tolist().index(tensor.rank + tensor.axis)
    return tensor.at(where - tensor.rank, tensor.rank)


def _in_blocks(tensor: ScaledTensor, block: Array) -> Passed:
    if tensor.axis != -1 or tensor.rank is None or block.size > tensor.rank - 2:
        return "blocks of channels are moved"
    return tensor


def _reshaped(tensor: ScaledTensor, before: TensorShape, after: TensorShape) -> Passed:
    """The channels after Reshape, where each index of the last dimension has one channel.

    Elements keep their order: the channel of the element at ``p`` is ``p // inner % count``.
    """
    inner = 1
    if tensor.axis < -1:
        behind = None if before is None else before[tensor.axis + 1 :]
        if behind is None or any(d < 1 for d in behind):
            return "Reshape of unknown dimensions"
        inner = int(np.prod(behind))
    count = len(tensor.ids)
    if not after or after[-1] < 1:
        return "Reshape to unknown dimensions"
    if after[-1] % (inner * count):
        return "Reshape divides the channels in another way"
    ids = tensor.ids[np.arange(after[-1]) // inner % count]
    return replace(tensor, ids=ids, axis=-1, rank=len(after))
