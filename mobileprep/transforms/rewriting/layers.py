"""Find layers and their biases, and add biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import IDENTITIES, node_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import closure, conditional_nodes, execution_order
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor


class LayerKind(Struct, frozen=True):
    """Layout of the weights of an op, which are its second input.

    Args:
        rank: the rank of its weights and of its output; None if the weights may have any rank, and
            the output has at least that rank.
        channels: the dimensions of the weights that form the output channels, counted from the last
            one: -1.
    """

    rank: int | None
    channels: tuple[int, ...]


_KINDS: Final[Mapping[str, LayerKind]] = {
    "Conv2D": LayerKind(4, (-1,)),
    "DepthwiseConv2dNative": LayerKind(4, (-2, -1)),
    "MatMul": LayerKind(2, (-1,)),
    "BatchMatMul": LayerKind(None, (-1,)),
    "BatchMatMulV2": LayerKind(None, (-1,)),
    "Conv2DBackpropInput": LayerKind(4, (-2,)),
    "Conv3D": LayerKind(5, (-1,)),
}
_TRANSPOSED: Final = {"MatMul": "transpose_b", "BatchMatMul": "adj_y", "BatchMatMulV2": "adj_y"}

LAYERS: Final = frozenset(_KINDS)
PRODUCTS_OF_MATRICES: Final = frozenset(_TRANSPOSED)


def layer_kind(layer: Node) -> LayerKind:
    """Return the layout of a layer's weights; its op must be one of ``LAYERS``."""
    kind = _KINDS[layer.op]
    if layer.op in _TRANSPOSED and layer.attr_bool(_TRANSPOSED[layer.op], False):
        return LayerKind(kind.rank, (-2,))
    return kind


def output_channels(layer: Node, weights: Tensor) -> int | None:
    """Return the number of output channels, or None if the weights have the wrong rank."""
    kind = layer_kind(layer)
    if len(weights.shape) != kind.rank and (kind.rank or len(weights.shape) < 2):
        return None
    return math.prod(weights.shape[axis] for axis in kind.channels)


def layout(node: Node) -> str:
    """Return the order of a node's dimensions: ``data_format`` or its default."""
    return node.attr_str("data_format", "NDHWC" if node.op == "Conv3D" else "NHWC")


def channel_axis(node: Node) -> int:
    """Return the channel dimension of a node's tensors."""
    order = layout(node)
    return order.index("C") if "C" in order else len(order) - 1


def output_axis(layer: Node) -> int:
    """Return the channel dimension of a layer's output, counted from the last: -1."""
    if layer.op in PRODUCTS_OF_MATRICES:
        return -1
    return channel_axis(layer) - len(layout(layer))


def along_axis(values: Array, channels: int, axis: int, rank: int | None) -> Array | None:
    """Return a constant that is combined with a tensor as one value per channel.

    Args:
        values: the constant, of any shape.
        channels: the number of channels.
        axis: the tensor's channel dimension, counted from the last: -1.
        rank: the rank of the tensor; None if unknown.

    Returns:
        Shape [channels], or None if the constant does not only vary along the channels, or
        broadcasts the tensor.
    """
    if values.ndim > (-axis if rank is None else rank):
        return None
    expected = [1] * values.ndim
    if values.size > 1:
        if values.ndim < -axis:
            return None
        expected[axis] = channels
    if list(values.shape) != expected:
        return None
    return np.broadcast_to(values.reshape(-1), (channels,))


def after_squeeze(node: Node, axis: int, rank: int | None) -> tuple[int, int] | str:
    """Return the channel axis and the rank after a Squeeze, or why they are unknown.

    Args:
        axis: the channel dimension before, counted from the last: -1.
        rank: the rank before; None if unknown.
    """
    squeeze_dims = node.attrs.get("squeeze_dims")
    dims = () if squeeze_dims is None else squeeze_dims.value
    if not dims or rank is None:
        return "Squeeze does not record which dimensions it removes"
    dropped = {d - rank if d >= 0 else d for d in dims}
    if axis in dropped:
        return "Squeeze drops the channels"
    return axis + sum(d > axis for d in dropped), rank - len(dropped)


def scaled(layer: Node, weights: Tensor, factors: Array) -> Tensor:
    """Multiply weights per channel, in their own precision.

    Args:
        factors: shape [output channels], of the weights' type.
    """
    shape = [1] * len(weights.shape)
    for axis in layer_kind(layer).channels:
        shape[axis] = weights.shape[axis]
    # Weights of a broken training run may overflow; validation reports the effect.
    with np.errstate(over="ignore", invalid="ignore"):
        return Tensor.packed(weights.array() * factors.reshape(shape), weights.dtype)


def input_axis(layer: Node) -> int:
    """Return the input channel dimension of a layer's weights, counted from the last: -1."""
    if layer.op == "Conv2DBackpropInput":
        return -1
    transposed = layer.op in _TRANSPOSED and layer.attr_bool(_TRANSPOSED[layer.op], False)
    return -1 if transposed else -2


def through(layer: Node, weights: Array, amounts: Array) -> Array:
    """Return a layer's output for constant input channels, ignoring borders; shape [channels]."""
    shape = [1] * weights.ndim
    shape[input_axis(layer)] = len(amounts)
    kept_axes = [axis + weights.ndim for axis in layer_kind(layer).channels]
    others = tuple(i for i in range(weights.ndim) if i not in kept_axes)
    output: Array = (weights.astype(np.float64) * amounts.reshape(shape)).sum(axis=others)
    return output.reshape(-1)


def data_input(layer: Node) -> int:
    """Return the index of the input that a layer's weights are applied to."""
    return 2 if layer.op == "Conv2DBackpropInput" else 0


def own_constant(graph: Graph, ref: Ref, user: Node, protected: Collection[str]) -> Node | None:
    """Return the float constant behind an input without other consumers, or None."""
    while not ref.index:
        node = graph.get(ref.node)
        users = [n for n in graph.consumers.get(ref.node, ()) if ref in n.data_inputs]
        if node is None or users != [user] or user.data_inputs.count(ref) > 1:
            return None
        if node.name in protected:
            return None
        if node.op == "Const":
            return node if node.attr_tensor("value").dtype.is_floating else None
        if node.op not in IDENTITIES or not node.data_inputs:
            return None
        ref, user = node.data_inputs[0], node
    return None


def bias_add(name: str, layer: Node, bias: Node) -> Node:
    """Create a BiasAdd that adds a constant to a layer's output."""
    attrs = {"T": attr.dtype(bias.attr_dtype("dtype"))}
    if layer.op not in PRODUCTS_OF_MATRICES:
        attrs["data_format"] = attr.string("NHWC" if output_axis(layer) == -1 else "NCHW")
    return Node(name, "BiasAdd", (Ref(layer.name), Ref(bias.name)), layer.device, attrs)


def bounded(node: Node, limit: Tensor, names: FreshNames, ties: tuple[Ref, ...] = ()) -> list[Node]:
    """Replace Relu6 with Relu and a Minimum that has a bound per channel.

    Args:
        limit: the bounds, of the node's type and in a shape that broadcasts to its output.
        ties: control inputs that place the bounds in the node's branch or loop.
    """
    bound = constant(names.name(f"{node.name}/bound"), limit, node.device, ties)
    relu = replace(node, name=names.name(f"{node.name}/relu"), op="Relu")
    both = (Ref(relu.name), Ref(bound.name))
    attrs = {"T": attr.dtype(limit.dtype)}
    return [relu, bound, Node(node.name, "Minimum", both, node.device, attrs)]


_GATHERS: Final = frozenset({"Gather", "GatherV2"})


def weight_axes(graph: Graph, constant: Node) -> tuple[int, ...]:
    """Return the dimensions of output channels, or of a table's rows, counted from the last.

    Returns:
        An empty tuple if layers disagree, or if other ops use the constant too.
    """
    candidates = {_axes(user, ref) for user, ref in _users(graph, constant)}
    axes = candidates.pop() if len(candidates) == 1 else ()
    shape = constant.attr_tensor("value").shape
    return axes if all(len(shape) + axis >= 0 for axis in axes) else ()


def _axes(user: Node, ref: Ref) -> tuple[int, ...]:
    places = [i for i, r in enumerate(user.data_inputs) if r == ref]
    if user.op in LAYERS and places == [1]:
        return layer_kind(user).channels
    if user.op in _GATHERS and places == [0]:
        return (-2,)
    return ()


def _users(graph: Graph, constant: Node) -> Iterator[tuple[Node, Ref]]:
    """Yield the consumers of a constant, also through identities, and their inputs."""

    def after(name: str) -> Iterator[str]:
        users = graph.consumers.get(name, ())
        return (n.name for n in users if n.op in IDENTITIES and Ref(name) in n.data_inputs)

    for name in closure([constant.name], after):
        for user in graph.consumers.get(name, ()):
            if user.op not in IDENTITIES and Ref(name) in user.data_inputs:
                yield user, Ref(name)


_EXACT_BITS: Final = 8
"""From this number on, the whole range is kept: clipping gains less than one part in a thousand."""
_SOME: Final = 4096
_NOISE: Final = 1e-3
"""Upper bound of the rounding error of a float32 of some hundred steps, in steps."""
_SHRINKS: Final = np.linspace(1.0, 0.3, 36)


class LinearWeights(Struct, frozen=True):
    """``(codes - zero) * scale``.

    Args:
        codes: uint8, of the weights' shape, from 0 to ``2 ** bits - 1``.
        zero: the code of zero; ``2 ** (bits - 1)`` unless the weights already had steps.
        scale: float32, negative if the longer side of the range is the positive one; of a shape
            that broadcasts to the weights'.
    """

    codes: NDArray[np.uint8]
    zero: int
    scale: NDArray[np.float32]

    def decoded(self) -> NDArray[np.float32]:
        """Return the weights that a runtime decodes, bit-identical."""
        whole: NDArray[np.float32] = self.codes.astype(np.float32) - np.float32(self.zero)
        return whole * self.scale


def weights_stored_before(values: Array, bits: int) -> LinearWeights | None:
    """Return weights that already are multiples of one step with that step; None for others.

    Args:
        values: finite floats of any shape.
        bits: the number of bits that the steps must fit in.
    """
    levels = np.unique(values.reshape(-1)[:_SOME]).astype(np.float64)
    if levels.size < 2 or levels.size > 1 << bits:
        return None
    levels = np.unique(values).astype(np.float64)
    if levels.size > 1 << bits:
        return None
    # The smallest distance is rounded; over the whole range it is accurate enough to count steps.
    steps = np.rint((levels[-1] - levels[0]) / np.diff(levels).min())
    step = (levels[-1] - levels[0]) / steps
    codes = np.rint(levels / step)
    zero = -int(codes[0])
    off = np.abs(codes * step - levels).max()
    if off > _NOISE * step or steps >= 1 << bits or not 0 <= zero < 1 << bits:
        return None
    stored = (np.rint(values / step) + zero).astype(np.uint8)
    return LinearWeights(stored, zero, np.asarray(step, np.float32))


def linear_weights(values: Array, axes: Sequence[int], bits: int) -> LinearWeights:
    """Quantize weights to few bits.

    Codes extend one further on one side of zero than on the other, so the sign of each scale
    assigns that side to the longer one. Below 8 bits, each range is shrunk to minimize the squared
    error, as in Banner et al., Post-training 4-bit quantization (2019). Weights that
    reconstruct_weights rounded keep their steps, which reach equally far to both sides.

    Args:
        values: finite floats of any shape.
        axes: the dimensions, from the last (-1), with individual scales; empty for one scale.
        bits: 2 to 8.
    """
    kept_axes = [axis + values.ndim for axis in axes]
    others = tuple(i for i in range(values.ndim) if i not in kept_axes)
    wide = values.astype(np.float64)
    half = 1 << (bits - 1)
    scale = _scale(wide, others, half)
    equal = _as_float32(np.where(scale < 0, -1.0, 1.0) * _largest(wide, others) / (half - 1))
    if _is_exact(wide, equal, half) and not _is_exact(wide, scale, half):
        scale = equal
    elif bits < _EXACT_BITS:
        scale = _best_scale(wide, others, scale, half)
    codes = (_rounded(wide, scale, half) + half).astype(np.uint8)
    shape = scale.shape[min(kept_axes, default=values.ndim) :]
    return LinearWeights(codes, half, scale.reshape(shape).astype(np.float32))


def _largest(values: Array, others: tuple[int, ...]) -> Array:
    largest: Array = np.abs(values).max(axis=others, keepdims=True, initial=0)
    return np.where(largest > 0, largest, 1.0)


def _is_exact(values: Array, scale: Array, half: int) -> bool:
    """Return whether weights are multiples of their scales."""
    off = np.abs(_rounded(values, scale, half) * scale - values)
    return bool((off <= _NOISE * np.abs(scale)).all())


def _scale(values: Array, others: tuple[int, ...], half: int) -> Array:
    """Return the scale that covers the whole range; one if all values are zero."""
    low = values.min(axis=others, keepdims=True, initial=0)
    high = values.max(axis=others, keepdims=True, initial=0)
    longer, shorter = np.maximum(-low, high), np.minimum(-low, high)
    size = np.maximum(longer / half, shorter / (half - 1))
    size = np.where(longer > 0, np.maximum(size, np.finfo(np.float32).tiny), 1.0)
    return _as_float32(np.where(high > -low, -size, size))


def _best_scale(values: Array, others: tuple[int, ...], whole: Array, half: int) -> Array:
    """Return the somewhat smaller scales with the least squared error."""
    best, least = whole, np.full(whole.shape, math.inf)
    for shrink in _SHRINKS:
        scale = _as_float32(whole * shrink)
        off = _rounded(values, scale, half) * scale - values
        error = np.square(off).sum(axis=others, keepdims=True)
        better = error < least
        best, least = np.where(better, scale, best), np.where(better, error, least)
    return best


def _rounded(values: Array, scale: Array, half: int) -> Array:
    rounded: Array = np.clip(np.rint(values / scale), -half, half - 1)
    return rounded


def _as_float32(scale: Array) -> Array:
    """Round to float32 as stored, with at least the smallest normal number."""
    stored = scale.astype(np.float32).astype(np.float64)
    return np.where(
        np.abs(stored) < np.finfo(np.float32).tiny,
        np.copysign(np.finfo(np.float32).tiny, scale),
        stored,
    )


class BiasedLayer(Struct, frozen=True):
    """A layer with constant weights, and the bias that is added to its output.

    Args:
        layer: the layer.
        weights: its constant, which others may use too.
        add: BiasAdd, Add, or AddV2, the only consumer of the layer's output.
        bias: the constant that it adds, one number per channel, without other consumers.
    """

    layer: Node
    weights: Node
    add: Node
    bias: Node

    @property
    def channels(self) -> int:
        """Number of output channels."""
        return self.bias.attr_tensor("value").size

    @property
    def axis(self) -> int:
        """Dimension of the output channels, counted from the last: -1."""
        return output_axis(self.layer)


class Biased(Struct, frozen=True):
    """A graph with a bias for every requested layer, and these layers in order."""

    graph: Graph
    layers: tuple[BiasedLayer, ...]


def with_biases(
    graph: Graph, predicate: Callable[[Node, Node], bool], protected: Collection[str]
) -> Biased:
    """Add a bias of zeros to layers without a bias.

    Layers in branches and loops, which may not run, are skipped, and so are those whose weights are
    not finite float32.

    Args:
        predicate: selects layers by the layer and its weights.
    """
    conditional = conditional_nodes(graph)
    names = FreshNames(graph.by_name)
    new: dict[str, list[Node]] = {}
    pairs: list[tuple[str, str]] = []
    for layer in execution_order(graph):
        weights = _weights(graph, layer)
        if weights is None or layer.name in conditional or not predicate(layer, weights):
            continue
        own = _bias(graph, layer, protected)
        if own is not None:
            pairs.append((layer.name, own[0].name))
            continue
        inner = replace(layer, name=names.name(f"{layer.name}/layer"))
        count = output_channels(layer, weights.attr_tensor("value"))
        zeros = Tensor.packed(np.zeros(count or 0, np.float32))
        bias = constant(names.name(f"{layer.name}/bias"), zeros, layer.device)
        new[layer.name] = [inner, bias, bias_add(layer.name, inner, bias)]
        pairs.append((inner.name, layer.name))
    nodes = [n for old in graph for n in new.get(old.name, (old,))]
    done = graph.with_nodes(nodes) if new else graph
    return Biased(done, tuple(_biased(done, *pair) for pair in pairs))


def has_bias(graph: Graph, layer: Node, protected: Collection[str]) -> bool:
    """Return whether a layer has an exclusive bias that may be changed."""
    return _bias(graph, layer, protected) is not None


def shifted(bias: Node, by: Array) -> Node:
    """Return a bias with a number added to each channel, in double precision and rounded once."""
    value = bias.attr_tensor("value")
    moved = value.array().astype(np.float64) + by.reshape(value.shape)
    tensor = Tensor.packed(moved.astype(value.array().dtype), value.dtype)
    return constant(bias.name, tensor, bias.device, bias.inputs)


def replaced(graph: Graph, new: Mapping[str, Node]) -> Graph:
    """Replace nodes by name."""
    return graph.with_nodes(new.get(n.name, n) for n in graph)


def _weights(graph: Graph, layer: Node) -> Node | None:
    if layer.op not in LAYERS or len(layer.data_inputs) < 2:
        return None
    node = node_behind(graph, layer.data_inputs[1])
    if node.op != "Const":
        return None
    value = node.attr_tensor("value")
    fits = value.dtype is DType.FLOAT and output_channels(layer, value) is not None
    return node if fits and np.isfinite(value.array()).all() else None


def _bias(graph: Graph, layer: Node, protected: Collection[str]) -> tuple[Node, Node] | None:
    """Return the node that adds a bias to a layer, and its constant; None if it has none."""
    users = graph.consumers.get(layer.name, ())
    if len(users) != 1 or layer.name in protected or users[0].op not in ("BiasAdd", "Add", "AddV2"):
        return None
    add = users[0]
    refs = add.data_inputs
    if len(refs) != 2 or refs.count(Ref(layer.name)) != 1:
        return None
    other = refs[1 - refs.index(Ref(layer.name))]
    bias = own_constant(graph, other, add, protected)
    if bias is None:
        return None
    value, weights = bias.attr_tensor("value"), _weights(graph, layer)
    count = None if weights is None else output_channels(layer, weights.attr_tensor("value"))
    last = channel_axis(add) == len(layout(add)) - 1
    if add.op == "BiasAdd":
        fits = value.shape == (count,) and last == (output_axis(layer) == -1)
    else:
        fits = value.size == count and value.shape[output_axis(layer) :][:1] == (count,)
    return (add, bias) if fits and value.dtype is DType.FLOAT else None


def _biased(graph: Graph, layer: str, add: str) -> BiasedLayer:
    node, sum_ = graph[layer], graph[add]
    refs = sum_.data_inputs
    other = refs[1 - refs.index(Ref(layer))]
    return BiasedLayer(
        node, node_behind(graph, node.data_inputs[1]), sum_, node_behind(graph, other)
    )
