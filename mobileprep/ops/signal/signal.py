"""Fourier transforms, spectrograms, and audio files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, integers, scalar
from mobileprep.ops.kernel import Sizes, flop_rule, free, kernel
from mobileprep.ops.numerics.texts import decode_wav, desired_sound, file_contents
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    at_least_rank,
    shape_fn,
    unknown_dims,
    with_rank,
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


@kernel("DecodeWav", flops=free)
def decode_wav_samples(node: Node, contents: Array) -> tuple[Array, Array]:
    """Decode a WAV file to float32 [samples, channels], and its rate in Hz.

    Attributes may set the number of samples (truncated, or padded with zeros) and of channels
    (truncated, or with the last one repeated).
    """
    samples, rate = decode_wav(file_contents(contents))
    count = node.attr_int("desired_samples", -1)
    channels = node.attr_int("desired_channels", -1)
    return desired_sound(samples, count, channels), np.array(rate, np.int32)


@shape_fn("DecodeWav")
def decode_wav_shape(args: ShapeArgs) -> OutputShapes:
    """Return samples by channels, and a scalar."""
    samples = args.node.attr_int("desired_samples", -1)
    channels = args.node.attr_int("desired_channels", -1)
    return [(max(samples, UNKNOWN), max(channels, UNKNOWN)), ()]


# Number of windows to transform at once, to limit scratch memory.
_WINDOWS = 1024
_LONGEST_WINDOW = 1 << 24


@kernel("AudioSpectrogram")
def audio_spectrogram(node: Node, x: Array) -> Array:
    """Compute the strength of each frequency over time.

    Args:
        node: with ``window_size`` and ``stride`` in samples, and ``magnitude_squared`` for squared
            magnitudes.
        x: float32 [samples, channels].

    Returns:
        float32 [channels, windows, frequencies].

    Source: ``spectrogram.cc`` of TensorFlow: a periodic Hann window, padded with zeros to a power
    of two, transformed in double precision.
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
def audio_spectrogram_shape(args: ShapeArgs) -> OutputShapes:
    """Return channels by windows by frequencies, half the next power of two and one."""
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
    """Count a window, a real Fourier transform, and the squares of its parts, for each window."""
    channels, windows, frequencies = sizes.output()
    length = 2 * (frequencies - 1)
    root = 0 if sizes.node.attr_bool("magnitude_squared", False) else 1
    transform = 2.5 * length * math.log2(length)
    one = sizes.node.attr_int("window_size") + transform + (3 + root) * frequencies
    return channels * windows * one


# Minimum energy for the logarithm, as in TensorFlow.
_LEAST_ENERGY = 1e-12


@kernel("Mfcc")
def mfcc(node: Node, spectrogram: Array, rate: Array) -> Array:
    """Compute mel-frequency cepstral coefficients of a squared spectrogram.

    Args:
        node: with ``lower_frequency_limit``, ``upper_frequency_limit`` in Hz,
            ``filterbank_channel_count``, and ``dct_coefficient_count``.
        spectrogram: float32 [channels, windows, frequencies].
        rate: the sample rate in Hz.

    Source: ``mfcc.cc`` and ``mfcc_mel_filterbank.cc`` of TensorFlow.
    """
    bands = node.attr_int("filterbank_channel_count", 40)
    coefficients = node.attr_int("dct_coefficient_count", 13)
    lower = node.attr_float("lower_frequency_limit", 20.0)
    upper = node.attr_float("upper_frequency_limit", 4000.0)
    hertz = scalar(rate)
    if spectrogram.ndim != 3 or spectrogram.shape[2] < 2 or hertz < 1 or not 0 <= lower < upper:
        message = f"frequencies from {lower} to {upper} Hz of samples at {hertz} Hz"
        raise ValueError(message)
    if not 1 <= coefficients <= bands:
        message = f"{coefficients} coefficients of {bands} bands"
        raise ValueError(message)
    check_allocation((spectrogram.shape[2] + coefficients, bands), np.dtype(np.float64))
    filters = _mel_filters(spectrogram.shape[2], hertz, bands, lower, upper)
    energy = np.sqrt(spectrogram.astype(np.float64)) @ filters
    angles = np.outer(np.arange(bands) + 0.5, np.arange(coefficients)) * (math.pi / bands)
    cosines = math.sqrt(2 / bands) * np.cos(angles)
    out: Array = np.log(np.maximum(energy, _LEAST_ENERGY)) @ cosines
    return out.astype(np.float32)


@shape_fn("Mfcc")
def mfcc_shape(args: ShapeArgs) -> OutputShapes:
    """Return channels by windows by coefficients."""
    channels, windows, _ = with_rank(args.shapes[0], 3)
    return [(channels, windows, args.node.attr_int("dct_coefficient_count", 13))]


@flop_rule("Mfcc")
def mfcc_flops(sizes: Sizes) -> float:
    """Count roots, overlapping sums, logarithms, and a cosine transform, for each window."""
    channels, windows, frequencies = sizes.input(0)
    bands = sizes.node.attr_int("filterbank_channel_count", 40)
    coefficients = sizes.node.attr_int("dct_coefficient_count", 13)
    return channels * windows * (5 * frequencies + bands + 2 * bands * coefficients)


def _mel_filters(count: int, rate: int, bands: int, lower: float, upper: float) -> Array:
    """Return the weight of each of ``count`` frequencies in each band: overlapping triangles."""
    step = 0.5 * rate / (count - 1)
    # Skip the first even if the lower limit is 0: it is the mean of the samples.
    first, last = int(1.5 + lower / step), int(upper / step)
    if last >= count:
        message = f"the upper limit of {upper} Hz is beyond the half of {rate} Hz"
        raise ValueError(message)
    low, high = _mel(np.array([lower, upper]))
    centers = low + (high - low) / (bands + 1) * np.arange(1, bands + 2)
    places = np.arange(first, last + 1)
    mels = _mel(places * step)
    # A frequency is on the falling side of this band, and on the rising side of the next one.
    band = np.minimum(np.searchsorted(centers, mels, side="left"), bands) - 1
    edges = np.concatenate([[low], centers])
    share = (edges[band + 2] - mels) / (edges[band + 2] - edges[band + 1])
    filters = np.zeros((count, bands + 2))
    filters[places, band + 1] = share
    filters[places, band + 2] = 1 - share
    return filters[:, 1 : bands + 1]


def _mel(frequency: Array) -> Array:
    mels: Array = 1127.0 * np.log1p(frequency / 700.0)
    return mels
