"""Round weights so that layers with these weights compute the same as before."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.ops.numerics.ranges import ChannelMethod, channel_steps
from mobileprep.ops.numerics.windows import NHWC, filter_window, layout_of, patches, whole_tile
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.data_files import feeds_from_file
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.correct_bias import last_uses
from mobileprep.transforms.rewriting.biases import BiasedLayer, replaced, shifted, with_biases
from mobileprep.transforms.rewriting.layers import input_axis, layer_kind

# Rows of weights whose errors are moved to the remaining rows at once.
_BLOCK: Final = 128
# Largest number of products in a sum: matrices of 288 MB.
_MOST_PRODUCTS: Final = 6144
# Positions of a convolution in all samples together. More hardly change the sums.
_MOST_POSITIONS: Final = 1 << 16
_WHOLE_BITS: Final = 8
# In steps: the largest weight is not exactly at the highest level after a division.
_SLACK: Final = 1e-3
_SUPPORTED: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})
_SHARED: Final = "several layers share the weights"


@transform("reconstruct_weights")
class ReconstructWeights(Transform, frozen=True):
    """Round the weights of layers to the steps of a later quantization, guided by data.

    Layers are processed in the order in which they run. The weights of a layer are first fitted to
    the inputs that it gets from the layers rounded before it, so that it computes the outputs of
    the float network; then they are rounded one after the other, and the remaining ones compensate
    for the error of each. The result is in float, and lies exactly on the steps that ``int8``,
    ``int4``, and ``quantize_nodes`` with a scale for each channel choose for it. Biases are
    corrected for the remaining shift of each channel's mean.

    Source: Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
    Transformers (2022), with the order by activation, and Li et al., GPTAQ (2025), for the fit to
    the rounded network's inputs.
    """

    summary = (
        "Rounds the weights of each layer so that its outputs change as little as possible on "
        "samples, instead of each weight to the nearest step. Use it before quantization to 8 "
        "or 4 bits."
    )

    data: Annotated[
        str | None,
        Option(
            "A .npz file with an array of samples for each input. Required; in `repair`, the "
            "calibration's data by default.",
            min_length=1,
            format="path",
        ),
    ] = None
    samples: Annotated[
        int, Option("Number of samples, spread evenly over the file.", minimum=1)
    ] = 64
    bits: Annotated[
        int, Option("Number of bits in which the weights will be stored.", minimum=2, maximum=8)
    ] = 8
    granularity: Annotated[
        Literal["tensor", "channel"],
        Option("Whether the weights will have one scale, or one for each output channel."),
    ] = "channel"
    damping: Annotated[
        float,
        Option(
            "Share of the mean squared input that is added to each squared input. Larger values "
            "change weights less.",
            minimum=1e-6,
            maximum=1,
        ),
    ] = 0.1
    minimum_size: Annotated[
        int, Option("Weights with fewer elements do not change.", minimum=0)
    ] = 0

    def apply(self, graph: Graph, context: Context) -> Result:
        """Round the weights of all layers that the outputs need."""
        check_inputs(graph, "")
        ends = [parse_ref(name).node for name in context.outputs]
        needed = reachable(graph, [e for e in ends if e in graph]) if ends else graph.by_name

        def is_candidate(layer: Node, weights: Node) -> bool:
            size = weights.attr_tensor("value").size
            return layer.name in needed and size >= max(self.minimum_size, 1)

        biased = with_biases(graph, is_candidate, context.protected)
        # Files store equal constants once, whether or not they are one node.
        users = Counter(map(_content, biased.layers))
        reasons = {
            layer.layer.name: _reason(layer, users[_content(layer)]) for layer in biased.layers
        }
        layers = [layer for layer in biased.layers if not reasons[layer.layer.name]]
        skipped = Counter(reason for reason in reasons.values() if reason)
        if not layers:
            return Result(graph, skipped=skipped)
        if self.data is None:
            raise refuse(self.transform_name, "it needs samples", "name a .npz file with `data`")
        runs = feeds_from_file(graph, context.inputs, Path(self.data), self.samples)
        return Result(self._reconstructed(biased.graph, layers, runs), len(layers), skipped)

    def _reconstructed(
        self, graph: Graph, layers: Sequence[BiasedLayer], runs: Sequence[Mapping[str, Array]]
    ) -> Graph:
        """Return the graph with the rounded weights of all layers.

        Stores outputs of layers while later layers need them, in the float network and in the
        rounded one, so that each part of both runs once.
        """
        floats, rounded = [dict(run) for run in runs], [dict(run) for run in runs]
        now, interpreter = graph, Interpreter(graph)
        names = [layer.layer.name for layer in layers]
        last = last_uses(graph, names)
        for at, layer in enumerate(layers):
            source = str(layer.layer.data_inputs[0])
            inputs = []
            for feeds in floats:
                value, output = interpreter.run([source, names[at]], feeds)
                inputs.append(value)
                feeds[names[at]] = output
            current = Interpreter(now)
            changed = [current.run([source], feeds)[0] for feeds in rounded]
            weights, bias = self._rounded(layer, inputs, changed)
            now = replaced(now, {weights.name: weights, bias.name: bias})
            current = Interpreter(now)
            for feeds, value in zip(rounded, changed, strict=True):
                (feeds[names[at]],) = current.run([names[at]], {**feeds, source: value})
            for feeds in (*floats, *rounded):
                for name in [n for n in feeds if last.get(n, len(names)) <= at]:
                    del feeds[name]
        return now

    def _rounded(
        self, layer: BiasedLayer, inputs: Sequence[Array], changed: Sequence[Array]
    ) -> tuple[Node, Node]:
        """Return the rounded weights and the corrected bias of a layer.

        Args:
            inputs: the layer's input in the float network, for each run.
            changed: its input in the rounded network.
        """
        old = layer.weights
        values = old.attr_tensor("value").array()
        matrix = _Matrix(layer.layer, values, inputs[0])
        sums = _Sums(matrix)
        for value, other in zip(inputs, changed, strict=True):
            sums.add(value, other, -(-_MOST_POSITIONS // len(inputs)))
        weights = matrix.grouped(values.astype(np.float64))
        squares, products = sums.moments(self.damping)
        fitted = weights + np.linalg.solve(squares, products @ weights)
        most = (1 << (self.bits - 1)) - 1
        steps = self._steps(matrix, fitted, most)
        rounded = _levels_in_order(fitted / steps, squares, most) * steps
        shift = sums.mean @ weights - sums.changed_mean @ rounded
        packed = Tensor.packed(matrix.restored(rounded + 0.0).astype(np.float32))
        new = constant(old.name, packed, old.device, old.inputs)
        return new, shifted(layer.bias, shift.reshape(-1))

    def _steps(self, matrix: _Matrix, values: Array, most: int) -> Array:
        """Return the steps of each output's weights: ``[groups, 1, outputs of a group]``."""
        method: ChannelMethod = "min_max" if self.bits == _WHOLE_BITS else "mse"
        weights = matrix.restored(values).astype(np.float32)
        axes = matrix.axes if self.granularity == "channel" else ()
        steps = channel_steps(weights, axes, method, most).astype(np.float64)
        return matrix.grouped(np.broadcast_to(steps, weights.shape))[:, :1]


def _content(layer: BiasedLayer) -> tuple[tuple[int, ...], bytes]:
    weights = layer.weights.attr_tensor("value").array()
    return weights.shape, hashlib.sha256(weights.tobytes()).digest()


def _reason(layer: BiasedLayer, users: int) -> str:
    """Return why the weights of a layer cannot be reconstructed; empty if they can."""
    node = layer.layer
    shape = layer.weights.attr_tensor("value").shape
    if node.op not in _SUPPORTED or node.attr_bool("transpose_a", False):
        return f"the weights of {node.op} are not supported"
    if math.prod(shape[axis] for axis in _summed_axes(node, shape)) > _MOST_PRODUCTS:
        return f"a sum has more than {_MOST_PRODUCTS} products"
    return _SHARED if users > 1 else ""


def _summed_axes(layer: Node, shape: tuple[int, ...]) -> list[int]:
    """Return the axes of the weights that are summed."""
    outputs = [axis + len(shape) for axis in layer_kind(layer).channels]
    return [axis for axis in range(len(shape)) if axis not in outputs]


class _Matrix:
    """The weights of a layer as matrices: ``[groups, products of a sum, outputs of a group]``.

    A depthwise convolution has a group for each input channel.

    Args:
        weights: the layer's weights.
        value: an input of the layer.
    """

    def __init__(self, layer: Node, weights: Array, value: Array) -> None:
        self._layer = layer
        self._weights = weights
        self.axes = layer_kind(layer).channels
        self._is_product = layer.op == "MatMul"
        self._is_transposed = self._is_product and self.axes == (-2,)
        channels = value.shape[-1] if self._is_product else self._channels_last(value).shape[-1]
        is_depthwise = layer.op == "DepthwiseConv2dNative"
        self._depth = 1 if is_depthwise else weights.shape[input_axis(layer)]
        self._groups = channels // self._depth

    def rows(self, value: Array, count: int) -> Array:
        """Return the inputs of up to ``count`` sums: ``[groups, rows, products]``."""
        if self._is_product:
            return value[_spread(len(value), count)][np.newaxis]
        x = self._channels_last(value)
        window = filter_window(self._layer, x, self._weights, layout_of(self._layer))
        windows = patches(x, window, whole_tile(x, window), window.positions(x.shape[1:-1]))
        places = windows.shape[: x.ndim - 1]
        chosen = windows[np.unravel_index(_spread(math.prod(places), count), places)]
        split = chosen.reshape(len(chosen), -1, self._groups, self._depth).transpose(2, 0, 1, 3)
        return split.reshape(self._groups, len(chosen), -1)

    def grouped(self, values: Array) -> Array:
        """Return values of the weights' shape as matrices."""
        if self._is_transposed:
            values = values.T
        products = math.prod(self._weights.shape[axis] for axis in self._summed)
        return values.reshape(products, self._groups, -1).transpose(1, 0, 2)

    def restored(self, matrices: Array) -> Array:
        """Return matrices in the weights' shape."""
        shape = self._weights.shape
        values = matrices.transpose(1, 0, 2)
        if self._is_transposed:
            return values.reshape(shape[::-1]).T
        return values.reshape(shape)

    @property
    def _summed(self) -> list[int]:
        return _summed_axes(self._layer, self._weights.shape)

    def _channels_last(self, value: Array) -> Array:
        return value if layout_of(self._layer) == NHWC else np.moveaxis(value, 1, -1)


def _spread(length: int, count: int) -> NDArray[np.int64]:
    """Return up to ``count`` indices, evenly spread over a length."""
    return np.arange(length) if length <= count else np.arange(count) * length // count


class _Sums:
    """Sums over a layer's inputs in the float network and in the rounded one."""

    def __init__(self, matrix: _Matrix) -> None:
        self._matrix = matrix
        self._count = 0
        self._squares: Array | float = 0.0
        self._products: Array | float = 0.0
        self._sum: Array | float = 0.0
        self._changed_sum: Array | float = 0.0

    def add(self, value: Array, changed: Array, positions: int) -> None:
        """Add the inputs of one run."""
        rows = self._matrix.rows(value, positions).astype(np.float64)
        other = self._matrix.rows(changed, positions).astype(np.float64)
        turned = other.transpose(0, 2, 1)
        self._count += rows.shape[1]
        self._squares = self._squares + turned @ other
        self._products = self._products + turned @ (rows - other)
        self._sum = self._sum + rows.sum(axis=1, keepdims=True)
        self._changed_sum = self._changed_sum + other.sum(axis=1, keepdims=True)

    @property
    def mean(self) -> Array:
        """Mean input in the float network: ``[groups, 1, products]``."""
        return np.asarray(self._sum / max(self._count, 1))

    @property
    def changed_mean(self) -> Array:
        """Mean input in the rounded network: ``[groups, 1, products]``."""
        return np.asarray(self._changed_sum / max(self._count, 1))

    def moments(self, damping: float) -> tuple[Array, Array]:
        """Return second moments around the means, because the bias corrects means.

        Returns:
            Moments of the rounded network's inputs with themselves, damped, and with the difference
            from the float network's inputs; ``[groups, products, products]`` each.
        """
        count, mean = max(self._count, 1), self.changed_mean
        turned = mean.transpose(0, 2, 1)
        squares = self._squares / count - turned @ mean
        products = self._products / count - turned @ (self.mean - mean)
        diagonal = np.diagonal(squares, axis1=1, axis2=2)
        level = diagonal.mean(axis=1)
        added = np.where(level > 0, damping * level, 1.0)
        return squares + added[:, np.newaxis, np.newaxis] * np.eye(mean.shape[-1]), products


def _levels_in_order(values: Array, squares: Array, most: int) -> Array:
    """Round weights one after the other, and let the remaining ones compensate for each error.

    Args:
        values: weights in steps, ``[groups, products, outputs]``; the largest of each output are at
            least ``most``, and keep that level.
        squares: second moments of the inputs, ``[groups, products, products]``.
        most: the highest magnitude of a level.

    Returns:
        Whole numbers in float64, of the same shape.
    """
    order = np.argsort(-np.diagonal(squares, axis1=1, axis2=2), axis=1, kind="stable")
    rest = np.take_along_axis(values, order[:, :, np.newaxis], axis=1)
    ends = np.where(np.abs(rest) >= most - _SLACK, np.sign(rest) * most, 0.0)
    sorted_squares = np.take_along_axis(
        np.take_along_axis(squares, order[:, :, np.newaxis], axis=1),
        order[:, np.newaxis, :],
        axis=2,
    )
    upper = np.linalg.cholesky(np.linalg.inv(sorted_squares)).transpose(0, 2, 1)
    levels = np.empty_like(rest)
    products = rest.shape[1]
    for start in range(0, products, _BLOCK):
        stop = min(start + _BLOCK, products)
        errors = np.empty_like(rest[:, start:stop])
        for at in range(start, stop):
            nearest = np.clip(np.rint(rest[:, at]), -most, most)
            levels[:, at] = np.where(ends[:, at] != 0, ends[:, at], nearest)
            error = (rest[:, at] - levels[:, at]) / upper[:, at, at, np.newaxis]
            errors[:, at - start] = error
            line = upper[:, at, at + 1 : stop, np.newaxis]
            rest[:, at + 1 : stop] -= line * error[:, np.newaxis]
        rest[:, stop:] -= upper[:, start:stop, stop:].transpose(0, 2, 1) @ errors
    out = np.empty_like(levels)
    np.put_along_axis(out, order[:, :, np.newaxis], levels, axis=1)
    return out
