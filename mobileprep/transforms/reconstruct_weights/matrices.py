"""Layers as products of matrices: weights, and the inputs and outputs at chosen positions."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.windows import NHWC, attr_window, layout_of
from mobileprep.transforms.rewriting.layers import input_axis, layer_kind

Indices = NDArray[np.int64]


def summed_axes(layer: Node, shape: tuple[int, ...]) -> list[int]:
    """Return the axes of weights that a layer sums over."""
    outputs = [axis + len(shape) for axis in layer_kind(layer).channels]
    return [axis for axis in range(len(shape)) if axis not in outputs]


class LayerMatrices:
    """A layer as products: ``outputs [groups, rows, outputs] = inputs @ weights``.

    A depthwise convolution has a group for each input channel, and a row for each position. The
    weights are ``[groups, products of a sum, outputs of a group]``.

    Args:
        layer: a convolution, a transposed or depthwise one, or a product of matrices.
        weights: the layer's weights.
        value: an input of the layer.
    """

    def __init__(self, layer: Node, weights: Array, value: Array) -> None:
        self._layer = layer
        self._shape = weights.shape
        self.axes = layer_kind(layer).channels
        self._is_product = layer.op == "MatMul"
        self._is_transposed = self.axes == (-2,)
        channels = self._channels_last(value).shape[-1]
        is_depthwise = layer.op == "DepthwiseConv2dNative"
        self._depth = 1 if is_depthwise else weights.shape[input_axis(layer)]
        self._groups = channels // self._depth
        self.weights = self.grouped(weights)

    def has_blocks(self, size: int) -> bool:
        """Return whether LiteRT can store the weights of each output in blocks of a size."""
        strides = self._layer.attr_ints("strides") if self._layer.op == "Conv2D" else (1,)
        is_pointwise = self._shape[:-2] in ((), (1, 1)) and set(strides) == {1}
        is_dense = is_pointwise and self._layer.op in ("MatMul", "Conv2D") and self._groups == 1
        return is_dense and self.weights.shape[1] % size == 0

    def rows(self, output: Array) -> int:
        """Return the number of rows of an output: its size without the channels."""
        return math.prod(self._channels_last(output).shape[:-1])

    def output_rows(self, output: Array, chosen: Indices) -> Array:
        """Return chosen rows of an output: ``[groups, rows, outputs]``."""
        last = self._channels_last(output)
        flat = last.reshape(-1, last.shape[-1])[chosen]
        return flat.reshape(len(chosen), self._groups, -1).transpose(1, 0, 2)

    def input_rows(self, value: Array, output: Array, chosen: Indices) -> Array:
        """Return the inputs of chosen rows of an output: ``[groups, rows, products]``."""
        if self._is_product:
            return value[chosen][np.newaxis]
        x, places = self._channels_last(value), self._channels_last(output).shape[:-1]
        image, *where = np.unravel_index(chosen, places)
        size = self._shape[:2]
        extents = places[1:] if self._is_transposed else x.shape[1:3]
        window = attr_window(self._layer, extents, size, layout_of(self._layer))
        strides, pads = window.strides, [before for before, _ in window.pads]
        patches = np.zeros((*size, len(chosen), x.shape[-1]), x.dtype)
        for tap in np.ndindex(*size):
            covered, source = np.ones(len(chosen), bool), []
            for axis, step in enumerate(tap):
                offset = step * window.dilations[axis] - pads[axis]
                if self._is_transposed:
                    index, rest = np.divmod(where[axis] - offset, strides[axis])
                    covered &= rest == 0
                else:
                    index = where[axis] * strides[axis] + offset
                covered &= (index >= 0) & (index < x.shape[axis + 1])
                source.append(index)
            patches[tap][covered] = x[image[covered], source[0][covered], source[1][covered]]
        split = patches.reshape(math.prod(size), len(chosen), self._groups, self._depth)
        return split.transpose(2, 1, 0, 3).reshape(self._groups, len(chosen), -1)

    def grouped(self, values: Array) -> Array:
        """Return values of the weights' shape as matrices."""
        if self._is_transposed:
            values = values.swapaxes(-1, -2)
        products = math.prod(self._shape[axis] for axis in summed_axes(self._layer, self._shape))
        return values.reshape(products, self._groups, -1).transpose(1, 0, 2)

    def restored(self, matrices: Array) -> Array:
        """Return matrices in the weights' shape."""
        values = matrices.transpose(1, 0, 2)
        if self._is_transposed:
            *taps, outputs, inputs = self._shape
            return values.reshape(*taps, inputs, outputs).swapaxes(-1, -2)
        return values.reshape(self._shape)

    def _channels_last(self, value: Array) -> Array:
        is_last = self._is_product or layout_of(self._layer) == NHWC
        return value if is_last else np.moveaxis(value, 1, -1)
