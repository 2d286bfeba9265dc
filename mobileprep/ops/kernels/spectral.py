"""Kernels of Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import check_allocation, integers

_COMPLEX: dict[int, np.dtype[Any]] = {4: np.dtype(np.complex64), 8: np.dtype(np.complex128)}


@kernel("RFFT", "RFFT2D", "RFFT3D")
def rfft(node: Node, x: Array, length: Array) -> Array:
    """The Fourier transform of real numbers over the last one, two or three axes."""
    sizes = _sizes(length, x, _rank(node))
    _check_lengths(x, sizes)
    out: Array = np.fft.rfftn(x, sizes, axes=range(-len(sizes), 0))
    return out.astype(_COMPLEX[x.dtype.itemsize], copy=False)


@kernel("IRFFT", "IRFFT2D", "IRFFT3D")
def irfft(node: Node, x: Array, length: Array) -> Array:
    """The inverse of ``RFFT``, real."""
    sizes = _sizes(length, x, _rank(node))
    # Of the last axis half is stored: the rest is its mirror.
    _check_lengths(x, (*sizes[:-1], sizes[-1] // 2 + 1))
    out = np.fft.irfftn(x, sizes, axes=range(-len(sizes), 0))
    return out.astype(np.float32 if x.dtype.itemsize == 8 else np.float64, copy=False)


@kernel("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D")
def fft(node: Node, x: Array) -> Array:
    """The Fourier transform of complex numbers, or its inverse, over the last axes."""
    transform = np.fft.ifftn if node.op.startswith("I") else np.fft.fftn
    return transform(x, axes=range(-_rank(node), 0)).astype(x.dtype, copy=False)


def _check_lengths(x: Array, needed: tuple[int, ...]) -> None:
    if any(d < n for d, n in zip(x.shape[-len(needed) :], needed, strict=True)):
        message = f"a transform of {list(needed)} numbers from the shape {list(x.shape)}"
        raise ValueError(message)


def _rank(node: Node) -> int:
    return {"2D": 2, "3D": 3}.get(node.op[-2:], 1)


def _sizes(length: Array, x: Array, rank: int) -> tuple[int, ...]:
    sizes = integers(length)
    if len(sizes) != rank or x.ndim < rank:
        message = f"lengths {list(sizes)} for a transform over {rank} axes of {x.ndim}"
        raise ValueError(message)
    check_allocation((*x.shape[:-rank], *sizes), np.dtype(np.complex128))
    return sizes
