"""Spectrograms: the strength of each frequency over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import UNKNOWN, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Windows that are transformed at once, so that scratch memory stays small.
_WINDOWS = 1024
_LONGEST_WINDOW = 1 << 24


@kernel("AudioSpectrogram")
def audio_spectrogram(node: Node, x: Array) -> Array:
    """The strength of each frequency over time.

    Args:
        node: with ``window_size`` and ``stride`` in samples; with ``magnitude_squared`` the
            squared magnitude is given.
        x: float32 [samples, channels].

    Returns:
        float32 [channels, windows, frequencies].

    Source: ``spectrogram.cc`` of TensorFlow: a periodic Hann window, filled up with zeros to a
    power of two, transformed in double precision.
    """
    window, stride = node.attr_int("window_size"), node.attr_int("stride")
    if x.ndim != 2 or not 2 <= window <= _LONGEST_WINDOW or stride < 1:
        message = f"windows of {window} samples every {stride} of a tensor of {x.ndim} axes"
        raise ValueError(message)
    length = 1 << (window - 1).bit_length()
    count = max(0, 1 + (len(x) - window) // stride)
    shape = (x.shape[1], count, length // 2 + 1)
    check_allocation(shape, np.dtype(np.float32))
    out = np.empty(shape, np.float32)
    if not out.size:
        return out
    hann = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(window) / window)
    for channel, samples in enumerate(x.T):
        views = np.lib.stride_tricks.sliding_window_view(samples, window)[::stride]
        for start in range(0, count, _WINDOWS):
            part = slice(start, min(start + _WINDOWS, count))
            spectrum = np.fft.rfft(views[part] * hann, length)
            out[channel, part] = np.square(spectrum.real) + np.square(spectrum.imag)
    return out if node.attr_bool("magnitude_squared", False) else np.sqrt(out)


@shape_fn("AudioSpectrogram")
def audio_spectrogram_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Channels by windows by frequencies, of which there are half the next power of two."""
    length, channels = with_rank(args.shapes[0], 2)
    window = args.node.attr_int("window_size")
    stride = args.node.attr_int("stride")
    frequencies = (1 << max(window - 1, 0).bit_length()) // 2 + 1
    if length < 0:
        return [(channels, UNKNOWN, frequencies)]
    windows = 0 if length < window else 1 + (length - window) // max(stride, 1)
    return [(channels, windows, frequencies)]


@flop_rule("AudioSpectrogram")
def spectrogram_flops(sizes: Sizes) -> float:
    """A window, a real Fourier transform, and the squares of its parts, at each place."""
    channels, windows, frequencies = sizes.output()
    length = 2 * (frequencies - 1)
    root = 0 if sizes.node.attr_bool("magnitude_squared", False) else 1
    transform = 2.5 * length * math.log2(length)
    one = sizes.node.attr_int("window_size") + transform + (3 + root) * frequencies
    return channels * windows * one
