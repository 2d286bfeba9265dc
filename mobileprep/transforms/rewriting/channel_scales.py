"""Find the channels of a graph that can be scaled, and all that must be scaled with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import BATCH_NORMS, MERGES, SCALINGS
from mobileprep.graph.reachability import execution_order
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.constant_evaluation import SHAPE_OPS
from mobileprep.ops.shape_inference import shapes_if_valid
from mobileprep.transforms.rewriting.clipping import has_few_values
from mobileprep.transforms.rewriting.constants import ConstantExpressions, lazy_shapes
from mobileprep.transforms.rewriting.layers import (
    LAYERS,
    after_squeeze,
    along_axis,
    channel_axis,
    data_input,
    input_axis,
    layer_kind,
    layout,
    output_axis,
    output_channels,
    own_constant,
)

Ids = NDArray[np.int64]


class ScaledTensor(Struct, frozen=True):
    """A tensor whose channels may be scaled.

    Args:
        ids: the index of the scale for each position along the channel dimension.
        axis: the channel dimension, counted from the last: -1.
        rank: the rank of the tensor; None if unknown.
        ties: control inputs that place constants in the tensor's branch or loop.
    """

    ids: Ids
    axis: int
    rank: int | None
    ties: tuple[Ref, ...] = ()

    def like(self, other: ScaledTensor) -> bool:
        """Return whether another tensor has the same rank, channel dimension, and channel count."""
        same = (self.axis, self.rank) == (other.axis, other.rank)
        return same and self.rank is not None and len(self.ids) == len(other.ids)

    def at(self, axis: int, rank: int | None) -> ScaledTensor:
        """Return the same channels in another dimension."""
        return replace(self, axis=axis, rank=rank)


class ScaleVariables:
    """Scales by index. Equal scales are joined; a pinned scale is one, with a reason."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._reasons: dict[int, str] = {}

    def fresh(self, count: int) -> Ids:
        """Return the indices of new scales."""
        start = len(self._parents)
        self._parents += range(start, start + count)
        return np.arange(start, start + count)

    def join(self, first: Ids, second: Ids) -> None:
        """Make scales equal, pair by pair."""
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            one, other = self._root(a), self._root(b)
            if one == other:
                continue
            self._parents[other] = one
            if other in self._reasons:
                self._reasons.setdefault(one, self._reasons.pop(other))

    def pin(self, ids: Iterable[Any], reason: str) -> None:
        """Fix scales to one."""
        for i in ids:
            self._reasons.setdefault(self._root(int(i)), reason)

    def reason(self, ids: Ids) -> str:
        """Return why the first of some scales is pinned, or an empty string if any is free."""
        reasons = [self._reasons.get(self._root(i), "") for i in ids.tolist()]
        return reasons[0] if reasons and all(reasons) else ""

    def roots(self) -> Ids:
        """Return for each scale the index that represents its joined scales; -1 if pinned."""
        roots = [self._root(i) for i in range(len(self._parents))]
        return np.array([-1 if r in self._reasons else r for r in roots], dtype=np.int64)

    def _root(self, i: int) -> int:
        parents = self._parents
        while parents[i] != i:
            parents[i] = i = parents[parents[i]]
        return i


_FLOATS: Final = frozenset({DType.FLOAT, DType.DOUBLE})
_OFFSETS: Final = frozenset({"BiasAdd", "Add", "AddV2", "Sub", "Minimum", "Maximum"})
_JOINS: Final = frozenset({"Add", "AddV2", "Sub", "AddN", "Minimum", "Maximum"})


def find_scales(
    graph: Graph,
    protected: Collection[str],
    *,
    through_relu6: bool = True,
    keep_stored: bool = False,
) -> ChannelScales:
    """Find the channels that can be scaled without changing the results of the graph.

    Args:
        protected: names of nodes that are fed or fetched; their tensors must not change.
        through_relu6: whether channels may be scaled through Relu6.
        keep_stored: whether to exclude weights that were quantized to 8 bits, with even steps.
    """
    return _Search(graph, protected, through_relu6, keep_stored).run()


class _Search:
    """One traversal of the graph in execution order."""

    def __init__(
        self,
        graph: Graph,
        protected: Collection[str],
        through_relu6: bool,
        keep_stored: bool,
    ) -> None:
        self._graph = graph
        self._protected = protected
        self._through_relu6 = through_relu6
        self._keep_stored = keep_stored
        self._constants = ConstantExpressions(graph)
        self._shape_of = lazy_shapes(lambda: shapes_if_valid(graph))
        self._variables = ScaleVariables()
        self._tensors: dict[Ref, ScaledTensor] = {}
        self._layers: list[ScaledLayer] = []
        self._offsets: list[ScaledConstant] = []
        self._bounds: list[Bound] = []
        self._refused: Counter[str] = Counter()

    def run(self) -> ChannelScales:
        order = execution_order(self._graph)
        for node in order:
            self._look_at(node)
        self._pin_loops(order)
        for ref in self._tensors:
            if not any(ref in n.data_inputs for n in self._graph.consumers.get(ref.node, ())):
                self._pin(ref, "its output has no consumers")
        return ChannelScales(
            self._variables,
            self._layers,
            self._offsets,
            self._bounds,
            self._tensors,
            self._refused,
        )

    def _look_at(self, node: Node) -> None:
        if node.op in LAYERS:
            out = self._layer(node)
        elif node.op in SHAPE_OPS or not any(r in self._tensors for r in node.data_inputs):
            return  # it does not use the channels' values
        else:
            out = self._passed(node)
        if isinstance(out, str):
            if node.op in LAYERS:
                self._refused[out] += 1
            for ref in node.data_inputs:
                self._pin(ref, out)
            return
        self._tensors[Ref(node.name)] = out
        if node.name in self._protected:
            self._pin(Ref(node.name), "its output is an input or output of the graph")

    def _pin_loops(self, order: Sequence[Node]) -> None:
        """Pin the inputs of nodes that may run earlier, or in an unknown order."""
        done = {n.name for n in order if n.op not in MERGES}
        for node in self._graph:
            if node.name not in done:
                for ref in node.data_inputs:
                    self._pin(ref, "it is part of a loop")

    def _pin(self, ref: Ref, reason: str) -> None:
        tensor = self._tensors.get(ref)
        if tensor is not None:
            self._variables.pin(tensor.ids, reason)

    def _layer(self, layer: Node) -> Passed:
        """Return the channels of a layer's output, which are independent of its input's."""
        refs = layer.data_inputs
        where = data_input(layer)
        if len(refs) <= max(where, 1):
            return "a layer lacks inputs"
        for i, ref in enumerate(refs):
            if i != where:
                self._pin(ref, "it is a layer's weights")
        weights = own_constant(self._graph, refs[1], layer, self._protected)
        value = None if weights is None else weights.attr_tensor("value")
        count = None if value is None else output_channels(layer, value)
        if weights is None or value is None or count is None or value.dtype not in _FLOATS:
            return "its weights are shared, computed or no floats"
        if not np.isfinite(value.array()).all():
            return "its weights are not finite"
        if self._keep_stored and has_few_values(value.array()):
            return "its weights fit 8 bits as they are: they have 256 values at most"
        source = self._tensors.get(refs[where])
        if source is not None and not self._takes(layer, value, source):
            return f"{layer.op} takes its channels in another order"
        ids = self._variables.fresh(count)
        inputs = None if source is None else source.ids
        self._layers.append(ScaledLayer(layer, weights, inputs, ids))
        rank = layer_kind(layer).rank
        return ScaledTensor(ids, output_axis(layer), rank, weights.control_inputs)

    def _takes(self, layer: Node, weights: Tensor, source: ScaledTensor) -> bool:
        """Return whether a layer's weights have one index for each channel of its input."""
        if layer.attr_bool("transpose_a", False) or layer.attr_bool("adj_x", False):
            return False
        fits = weights.shape[input_axis(layer)] == len(source.ids)
        return fits and source.axis == output_axis(layer)

    def _passed(self, node: Node) -> Passed:
        refs = node.data_inputs
        inputs = [self._tensors.get(r) for r in refs]
        tensors = [t for t in inputs if t is not None]
        if node.op in BATCH_NORMS:
            return "a batch normalization is not fused yet"
        if node.op == "ConcatV2":
            return self._concatenated(node, inputs)
        if len(tensors) > 1 or len(set(refs)) < len(refs):
            return self._joined(node, inputs)
        if len(refs) == 2 and node.op in _OFFSETS | SCALINGS:
            index = 1 if inputs[1] is None else 0
            return self._combined(node, tensors[0], index)
        if inputs[0] is None:
            return f"its channels are a parameter of {node.op}"
        if node.op == "Relu6":
            return self._bounded(node, tensors[0])
        if node.op == "Pad":
            return self._padded(node, tensors[0])
        return passed(node, tensors[0], self._constants.value, self._shape_of)

    def _bounded(self, node: Node, tensor: ScaledTensor) -> Passed:
        if not self._through_relu6:
            return "a Relu6 has one bound for all channels"
        if tensor.rank is None:
            return "a Relu6 of unknown dimensions"
        self._bounds.append(Bound(node, tensor))
        return tensor

    def _padded(self, node: Node, tensor: ScaledTensor) -> Passed:
        """Return the channels after Pad; channels of zeros can have any scale."""
        out = passed(node, tensor, self._constants.value, self._shape_of)
        sizes = self._constants.value(node.data_inputs[1])
        if out != _PADDED or sizes is None or sizes.shape != (tensor.rank, 2):
            return out
        counts = [int(count) for count in sizes.array()[tensor.axis]]
        if min(counts) < 0 or sum(counts) > _MOST_PADDED:
            return out
        before, after = (self._variables.fresh(count) for count in counts)
        return replace(tensor, ids=np.concatenate([before, tensor.ids, after]))

    def _combined(self, node: Node, tensor: ScaledTensor, index: int) -> Passed:
        """Return the channels after a node that combines them with input ``index``."""
        other = node.data_inputs[index]
        value = self._constants.value(other)
        if node.op in SCALINGS:
            if node.op != "Mul" and index == 0:
                return "it divides by its channels"
            return multiplied(tensor, self._shape_of(other) if value is None else value.shape)
        if value is None or not value.dtype.is_floating:
            return f"{node.op} combines its channels with tensors that are not scaled"
        count = len(tensor.ids)
        axis = tensor.axis
        if node.op == "BiasAdd":
            last = channel_axis(node) == len(layout(node)) - 1
            if index == 0 or last != (axis == -1) or (not last and tensor.rank != 1 - axis):
                return "BiasAdd adds along another dimension"
            axis = -1
        if along_axis(value.array(), count, axis, tensor.rank) is None:
            return f"the constant of {node.op} is not one number for each channel"
        self._offsets.append(ScaledConstant(node, index, value.array(), tensor))
        return tensor

    def _joined(self, node: Node, inputs: Sequence[ScaledTensor | None]) -> Passed:
        """Return the channels of a sum or extremum of tensors, whose scales must be equal."""
        first = inputs[0]
        if node.op not in _JOINS or first is None:
            return f"its channels go to {node.op} with others"
        for other in inputs[1:]:
            if other is None or not first.like(other):
                return f"its channels go to {node.op} with others"
            self._variables.join(first.ids, other.ids)
        return first

    def _concatenated(self, node: Node, inputs: Sequence[ScaledTensor | None]) -> Passed:
        tensors = [t for t in inputs[:-1] if t is not None]
        first = tensors[0] if tensors else None
        places = {(t.axis, t.rank) for t in tensors}
        if first is None or len(tensors) < len(inputs) - 1 or len(places) > 1:
            return "its channels are joined with others that are not scaled"
        out = joined(node, tensors, self._constants.value(node.data_inputs[-1]))
        if isinstance(out, str) or out is not first:
            return out
        for other in tensors[1:]:
            if not first.like(other):
                return "its channels are joined with others that are not scaled"
            self._variables.join(first.ids, other.ids)
        return out


ValueOf = Callable[[Ref], Tensor | None]
ShapeOf = Callable[[Ref], TensorShape]

ELEMENTWISE: Final = IDENTITIES | {"Relu", "LeakyRelu", "Abs", "Neg", "CheckNumerics"}
_POOLS: Final = frozenset({"MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"})
_RESIZES: Final = frozenset(
    {"ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"}
)
_REDUCTIONS: Final = frozenset({"Mean", "Sum", "Max", "Min"})
_BLOCKS: Final = frozenset({"SpaceToBatchND", "BatchToSpaceND"})
_MOST_PADDED: Final = 1 << 16
_PADDED: Final = "the channels are padded"
_PADS: Final = frozenset({"Pad", "PadV2", "MirrorPad"})
_WITH_PARAMETERS: Final = _REDUCTIONS | _PADS | _BLOCKS | {"Transpose"}

Passed = ScaledTensor | str
"""The output's channels, or the reason why there are none."""


def passed(node: Node, tensor: ScaledTensor, value_of: ValueOf, shape_of: ShapeOf) -> Passed:
    """Return the output channels of a node whose other inputs are all parameters."""
    if node.op in ELEMENTWISE:
        return tensor
    if node.op in _POOLS:
        return _pooled(node, tensor)
    if node.op in _RESIZES:
        return tensor if tensor.axis == -1 else "it resizes channels"
    if node.op == "Reshape":
        return _reshaped(tensor, shape_of(node.data_inputs[0]), shape_of(Ref(node.name)))
    if node.op == "Squeeze":
        place = after_squeeze(node, tensor.axis, tensor.rank)
        return place if isinstance(place, str) else tensor.at(*place)
    parameters = [value_of(r) for r in node.data_inputs[1:]]
    arrays = [p.array() for p in parameters if p is not None and p.dtype is not DType.STRING]
    if node.op not in _WITH_PARAMETERS or not arrays or len(arrays) < len(parameters):
        return f"its channels go to {node.op}"
    return _with_parameters(node, tensor, arrays)


def _with_parameters(node: Node, tensor: ScaledTensor, parameters: Sequence[Array]) -> Passed:
    if node.op in _REDUCTIONS:
        return _reduced(node, tensor, parameters[0])
    if node.op in _PADS:
        return _padded(tensor, parameters)
    return (
        _transposed(tensor, parameters[0])
        if node.op == "Transpose"
        else _in_blocks(tensor, parameters[0])
    )


def joined(node: Node, tensors: Sequence[ScaledTensor], axis: Tensor | None) -> Passed:
    """Return the channels of a ConcatV2 along the channel dimension.

    Along other dimensions, it returns those of the first tensor; the caller must join them.
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
    """Return the channels after an elementwise product with a tensor that is not scaled."""
    if factor is None:
        return "the shape of its factor is not known"
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


def _padded(tensor: ScaledTensor, parameters: Sequence[Array]) -> Passed:
    paddings = parameters[0]
    if tensor.rank is None or paddings.shape != (tensor.rank, 2) or paddings[tensor.axis].any():
        return _PADDED
    if len(parameters) > 1 and parameters[1].any():
        return "it is padded with another number than zero"
    return tensor


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
    """Return the channels after Reshape if each index of the last dimension has one channel.

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


class ScaledLayer(Struct, frozen=True):
    """A layer whose weights change with the scales of its channels.

    Args:
        layer: the layer.
        weights: the constant, used only by this layer.
        inputs: the scales of its input channels; None if they do not change.
        outputs: the scales of its output channels.
    """

    layer: Node
    weights: Node
    inputs: Ids | None
    outputs: Ids


class ScaledConstant(Struct, frozen=True):
    """A node that combines channels with a constant, which must have the same scales.

    Args:
        node: BiasAdd, Add, AddV2, Sub, Minimum, or Maximum.
        index: index of the constant input.
        values: the constant.
        tensor: the channels.
    """

    node: Node
    index: int
    values: Array
    tensor: ScaledTensor


class Bound(Struct, frozen=True):
    """A Relu6, whose upper bound must be scaled with the channels."""

    node: Node
    tensor: ScaledTensor


class ChannelScales(Struct, frozen=True):
    """Everything in a graph that must be scaled together.

    Args:
        variables: the scales.
        layers: the layers, in execution order.
        constants: the constants that are combined with channels.
        bounds: the upper bounds.
        tensors: all tensors with channels, those that must not change included.
        refused: number of layers with weights that cannot be scaled, by reason.
    """

    variables: ScaleVariables
    layers: Sequence[ScaledLayer]
    constants: Sequence[ScaledConstant]
    bounds: Sequence[Bound]
    tensors: Mapping[Ref, ScaledTensor]
    refused: Mapping[str, int]
