"""Flops of convolutions, matrix products and what is made of them."""

from __future__ import annotations

import math

from mobileprep.ops.flops import Sizes, UnknownCostError, flop_rule

# What fused ops do to each element after the product.
_AFTERWARDS = {
    b"BiasAdd": 1,
    b"Add": 1,
    b"Relu": 1,
    b"Relu6": 2,
    b"LeakyRelu": 2,
    b"Elu": 2,
    b"Tanh": 1,
    b"Sigmoid": 4,
    b"FusedBatchNorm": 2,
}


def _fused(sizes: Sizes) -> float:
    ops = sizes.node.attr_strings("fused_ops") if "fused_ops" in sizes.node.attrs else ()
    return sizes.made() * sum(_AFTERWARDS.get(op, 1) for op in ops)


@flop_rule("Conv2D", "Conv3D", "QuantizedConv2D", "_FusedConv2D")
def convolution(sizes: Sizes) -> float:
    """A multiplication and an addition for each element of the filter, for each output."""
    return 2 * sizes.made() * math.prod(sizes.input(1)[:-1]) + _fused(sizes)


@flop_rule(*("DepthwiseConv2dNative", "QuantizedDepthwiseConv2D", "_FusedDepthwiseConv2dNative"))
def depthwise(sizes: Sizes) -> float:
    """As a convolution of one channel."""
    return 2 * sizes.made() * math.prod(sizes.input(1)[:2]) + _fused(sizes)


@flop_rule("FusedPadConv2D")
def padded_convolution(sizes: Sizes) -> float:
    """The convolution; the border costs nothing."""
    return 2 * sizes.made() * math.prod(sizes.input(2)[:-1])


@flop_rule("FusedResizeAndPadConv2D")
def resized_convolution(sizes: Sizes) -> float:
    """The convolution; the shapes do not tell how large the resized image is."""
    return 2 * sizes.made() * math.prod(sizes.input(3)[:-1])


@flop_rule("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def transposed(sizes: Sizes) -> float:
    """For each element that comes in, one multiplication and addition for each of its filters'."""
    return 2 * sizes.taken(2) * math.prod(sizes.input(1)[:-1])


@flop_rule("DepthwiseConv2dNativeBackpropInput")
def transposed_depthwise(sizes: Sizes) -> float:
    """As ``transposed``, of one channel."""
    return 2 * sizes.taken(2) * math.prod(sizes.input(1)[:2])


@flop_rule("Dilation2D")
def dilation(sizes: Sizes) -> float:
    """An addition and a comparison for each element of the filter, for each output."""
    return 2 * sizes.made() * math.prod(sizes.input(1)[:2])


@flop_rule("MatMul", "QuantizedMatMul", "_FusedMatMul")
def matrix_product(sizes: Sizes) -> float:
    """A multiplication and an addition for each pair that meets."""
    inner = sizes.input(0)[0 if sizes.node.attr_bool("transpose_a", False) else 1]
    return 2 * sizes.made() * inner + _fused(sizes)


@flop_rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_product(sizes: Sizes) -> float:
    """As of one matrix product, for each."""
    inner = sizes.input(0)[-2 if sizes.node.attr_bool("adj_x", False) else -1]
    return 2 * sizes.made() * inner


@flop_rule("Einsum")
def einsum(sizes: Sizes) -> float:
    """A multiplication and an addition for each combination of indices; of one tensor a sum."""
    left = sizes.node.attr_str("equation").replace(" ", "").split("->")[0]
    terms = left.split(",")
    if len(terms) != len(sizes.inputs) or "." in left:
        raise UnknownCostError
    extents: dict[str, int] = {}
    for index, term in enumerate(terms):
        extents.update(zip(term, sizes.input(index), strict=True))
    combinations = math.prod(extents.values())
    return 2 * combinations if len(terms) > 1 else max(combinations - sizes.made(), 0)


@flop_rule("Cholesky", "MatrixDeterminant", "MatrixInverse", "MatrixSolve")
def factorization(sizes: Sizes) -> float:
    """The terms of highest order of the usual algorithms."""
    shape = sizes.input(0)
    order, batch = shape[-1], math.prod(shape[:-2])
    if sizes.node.op == "Cholesky":
        return batch * order**3 / 3
    if sizes.node.op == "MatrixDeterminant":
        return batch * order**3 * 2 / 3
    if sizes.node.op == "MatrixInverse":
        return batch * order**3 * 2
    return batch * (order**3 * 2 / 3 + 2 * order**2 * sizes.input(1)[-1])


@flop_rule("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D")
def fourier(sizes: Sizes) -> float:
    """5 n log2 n, the usual count of a complex transform."""
    return 5 * _transform(sizes, sizes.output())


@flop_rule("RFFT", "RFFT2D", "RFFT3D")
def real_fourier(sizes: Sizes) -> float:
    """Half as many as of complex numbers."""
    return 2.5 * _transform(sizes, sizes.input(0))


@flop_rule("IRFFT", "IRFFT2D", "IRFFT3D")
def inverse_real_fourier(sizes: Sizes) -> float:
    """Half as many as of complex numbers."""
    return 2.5 * _transform(sizes, sizes.output())


def _transform(sizes: Sizes, shape: tuple[int, ...]) -> float:
    rank = {"2D": 2, "3D": 3}.get(sizes.node.op[-2:], 1)
    length = math.prod(shape[-rank:])
    return math.prod(shape) * math.log2(length) if length > 1 else 0


@flop_rule("LSTMBlockCell")
def lstm_cell(sizes: Sizes) -> float:
    """One step of ``lstm``."""
    return _lstm_step(sizes.input(0)[0], sizes.input(3))


@flop_rule("BlockLSTM", "BlockLSTMV2")
def lstm(sizes: Sizes) -> float:
    """A product with the weights of four gates, and what a cell does, at each time."""
    times, batch = sizes.input(1)[:2]
    return times * _lstm_step(batch, sizes.input(4))


def _lstm_step(batch: int, weights: tuple[int, ...]) -> float:
    wide = weights[1]
    # Three sigmoids, two hyperbolic tangents, biases, and the sums and products of the state.
    return batch * (2 * weights[0] * wide + wide + 19 * wide / 4)


@flop_rule("GRUBlockCell")
def gru_cell(sizes: Sizes) -> float:
    """A product with the weights of two gates and of the candidate, and what a cell does."""
    batch, cells = sizes.input(0)[0], sizes.input(3)[1]
    return batch * (2 * sizes.input(3)[0] * 3 * cells + 3 * cells + 14 * cells)
