"""Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, integers
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import (
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    at_least_rank,
    shape_fn,
    unknown_dims,
)

_COMPLEX: dict[int, np.dtype[Any]] = {4: np.dtype(np.complex64), 8: np.dtype(np.complex128)}


@kernel("RFFT", "RFFT2D", "RFFT3D")
def rfft(node: Node, x: Array, length: Array) -> Array:
    """Compute the Fourier transform of real numbers over the last one, two, or three axes."""
    sizes = _sizes(length, x, _rank(node))
    _check_lengths(x, sizes)
    out: Array = np.fft.rfftn(x, sizes, axes=range(-len(sizes), 0))
    return out.astype(_COMPLEX[x.dtype.itemsize], copy=False)


@shape_fn("RFFT", "RFFT2D", "RFFT3D")
def rfft_shape(args: ShapeArgs) -> OutputShapes:
    """Return the given lengths in the last dimensions, n // 2 + 1 in the last one."""
    *others, last = _given_lengths(args)
    # A length of zero results in zero elements.
    return [_with_lengths(args, (*others, last // 2 + 1 if last > 0 else last))]


@flop_rule("RFFT", "RFFT2D", "RFFT3D")
def real_fourier_flops(sizes: Sizes) -> float:
    """Count half of a complex transform."""
    return 2.5 * _transform(sizes, sizes.input(0))


@kernel("IRFFT", "IRFFT2D", "IRFFT3D")
def irfft(node: Node, x: Array, length: Array) -> Array:
    """Compute the inverse of ``RFFT``, real."""
    sizes = _sizes(length, x, _rank(node))
    # Half of the last axis is stored: the rest is its mirror image.
    _check_lengths(x, (*sizes[:-1], sizes[-1] // 2 + 1))
    out = np.fft.irfftn(x, sizes, axes=range(-len(sizes), 0))
    return out.astype(np.float32 if x.dtype.itemsize == 8 else np.float64, copy=False)


@shape_fn("IRFFT", "IRFFT2D", "IRFFT3D")
def irfft_shape(args: ShapeArgs) -> OutputShapes:
    """Return the given lengths in the last dimensions."""
    return [_with_lengths(args, _given_lengths(args))]


@flop_rule("IRFFT", "IRFFT2D", "IRFFT3D")
def inverse_real_fourier_flops(sizes: Sizes) -> float:
    """Count half of a complex transform."""
    return 2.5 * _transform(sizes, sizes.output())


@kernel("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D")
def fft(node: Node, x: Array) -> Array:
    """Compute the Fourier transform of complex numbers, or its inverse, over the last axes."""
    if not x.size:
        return x
    transform = np.fft.ifftn if node.op.startswith("I") else np.fft.fftn
    return transform(x, axes=range(-_rank(node), 0)).astype(x.dtype, copy=False)


@shape_fn("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D")
def fft_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape."""
    return [at_least_rank(args.shapes[0], _rank(args.node))]


@flop_rule("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D")
def fourier_flops(sizes: Sizes) -> float:
    """Count 5 n log2 n, the usual operations of a complex transform."""
    return 5 * _transform(sizes, sizes.output())


def _check_lengths(x: Array, needed: tuple[int, ...]) -> None:
    if any(d < n for d, n in zip(x.shape[-len(needed) :], needed, strict=True)):
        message = f"a transform of {list(needed)} numbers from the shape {list(x.shape)}"
        raise ValueError(message)


def _rank(node: Node) -> int:
    """Return the number of axes of a transform."""
    return {"2D": 2, "3D": 3}.get(node.op[-2:], 1)


def _sizes(length: Array, x: Array, rank: int) -> tuple[int, ...]:
    sizes = integers(length)
    if len(sizes) != rank or x.ndim < rank:
        message = f"lengths {list(sizes)} for a transform over {rank} axes of {x.ndim}"
        raise ValueError(message)
    check_allocation((*x.shape[:-rank], *sizes), np.dtype(np.complex128))
    return sizes


def _given_lengths(args: ShapeArgs) -> tuple[int, ...]:
    rank = _rank(args.node)
    lengths = args.integers(1)
    if lengths is not None and len(lengths) != rank:
        message = f"{rank} lengths are needed, not {list(lengths)}"
        raise ShapeConflictError(message)
    return unknown_dims(rank) if lengths is None else lengths


def _with_lengths(args: ShapeArgs, lengths: tuple[int, ...]) -> TensorShape:
    shape = at_least_rank(args.shapes[0], len(lengths))
    return None if shape is None else (*shape[: -len(lengths)], *lengths)


def _transform(sizes: Sizes, shape: tuple[int, ...]) -> float:
    """Return n log2 n for each transform of a tensor of that shape."""
    length = math.prod(shape[-_rank(sizes.node) :])
    return math.prod(shape) * math.log2(length) if length > 1 else 0
