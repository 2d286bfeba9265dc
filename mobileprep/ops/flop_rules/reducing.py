"""Flops of ops that make fewer numbers of many."""

from __future__ import annotations

from mobileprep.ops.flops import Sizes, flop_rule


@flop_rule("Sum", "Max", "Min", "Prod", "ArgMax", "ArgMin")
def reduction(sizes: Sizes) -> float:
    """One less operation than there are elements, for each output."""
    return sizes.taken() - sizes.made()


@flop_rule("Mean")
def mean(sizes: Sizes) -> float:
    """A sum and a quotient for each output."""
    return sizes.taken()


@flop_rule("EuclideanNorm", "RequantizationRange", "RequantizationRangePerChannel")
def two_passes(sizes: Sizes) -> float:
    """Two operations for each element: a square and its sum, or two extremes."""
    return 2 * sizes.taken()


@flop_rule("QuantizeDownAndShrinkRange")
def shrink_range(sizes: Sizes) -> float:
    """Two extremes, and a requantization."""
    return 5 * sizes.taken()


@flop_rule("L2Loss")
def l2_loss(sizes: Sizes) -> float:
    """Squares, halves and their sum, as TensorFlow computes it."""
    return 3 * sizes.taken() - 1


@flop_rule(
    *("SegmentMax", "SegmentMin", "SegmentProd", "SegmentSum", "InTopK", "InTopKV2"),
    *("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum"),
    "CTCGreedyDecoder",
)
def one_pass(sizes: Sizes) -> float:
    """One operation for each element."""
    return sizes.taken()


@flop_rule("SegmentMean")
def segment_mean(sizes: Sizes) -> float:
    """Sums, and a quotient for each output."""
    return sizes.taken() + sizes.made()


@flop_rule(
    *("TensorScatterAdd", "TensorScatterMax", "TensorScatterMin", "TensorScatterSub"),
    "ScatterNdNonAliasingAdd",
)
def scattered(sizes: Sizes) -> float:
    """One operation for each element of the updates."""
    return sizes.taken(2)


@flop_rule("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D", "MaxPoolWithArgmax")
def pool(sizes: Sizes) -> float:
    """One operation for each element of each window."""
    area = 1
    for extent in sizes.node.attr_ints("ksize"):
        area *= extent
    return sizes.made() * area


@flop_rule("QuantizedMaxPool", "QuantizedAvgPool")
def quantized_pool(sizes: Sizes) -> float:
    """As of pooling of reals."""
    return pool(sizes)
