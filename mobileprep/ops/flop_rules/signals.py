"""Flops of ops on images and on sound."""

from __future__ import annotations

import math

from mobileprep.ops.flops import Sizes, flop_rule


@flop_rule("ResizeBilinear", "QuantizedResizeBilinear")
def bilinear(sizes: Sizes) -> float:
    """Three interpolations, each a difference, a product and a sum."""
    return 9 * sizes.made()


@flop_rule("ResizeBicubic")
def bicubic(sizes: Sizes) -> float:
    """Five weighted sums of four elements."""
    return 35 * sizes.made()


@flop_rule("ResizeArea")
def area(sizes: Sizes) -> float:
    """A product and a sum for each element that is covered."""
    return 2 * max(sizes.taken(), sizes.made())


@flop_rule("CropAndResize")
def crops(sizes: Sizes) -> float:
    """As of ``bilinear``; the nearest elements cost nothing."""
    return 0 if sizes.node.attr_str("method", "bilinear") == "nearest" else 9 * sizes.made()


@flop_rule("AudioSpectrogram")
def spectrogram(sizes: Sizes) -> float:
    """A window, a real Fourier transform, and the squares of its parts, at each place."""
    channels, windows, frequencies = sizes.output()
    length = 2 * (frequencies - 1)
    root = 0 if sizes.node.attr_bool("magnitude_squared", False) else 1
    transform = 2.5 * length * math.log2(length)
    one = sizes.node.attr_int("window_size") + transform + (3 + root) * frequencies
    return channels * windows * one


@flop_rule("Mfcc")
def mfcc(sizes: Sizes) -> float:
    """Roots, overlapping sums, logarithms and a cosine transform, at each place."""
    channels, windows, frequencies = sizes.input(0)
    bands = sizes.node.attr_int("filterbank_channel_count", 40)
    coefficients = sizes.node.attr_int("dct_coefficient_count", 13)
    return channels * windows * (5 * frequencies + bands + 2 * bands * coefficients)
