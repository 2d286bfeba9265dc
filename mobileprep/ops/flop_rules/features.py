"""Flops of ops on serialized examples and images, hashes, and sparse and ragged tensors."""

from __future__ import annotations

from typing import Final

from mobileprep.ops.flops import Sizes, flop_rule

_FREE: Final = (
    "DecodeAndCropJpeg DecodeCSV ExtractJpegShape ParseExample ParseExampleV2 "
    "ParseSingleExample RaggedBincount RaggedGather "
    "RaggedTensorToSparse RaggedTensorToTensor SparseBincount SparseConcat SparseCross "
    "SparseFillEmptyRows SparseReorder SparseReshape SparseSlice StringNGrams "
    "StringToHashBucket StringToHashBucketFast StringToHashBucketStrong UnicodeDecode "
    "UnicodeTranscode"
)


@flop_rule(*_FREE.split())
def nothing(sizes: Sizes) -> float:
    """Elements are read and moved, none is computed with; hashes count bytes, not numbers."""
    return 0


@flop_rule("RaggedRange")
def ragged_range(sizes: Sizes) -> float:
    """A product and a sum for each number."""
    return 2 * sizes.made(1)


@flop_rule(
    *("SparseDenseCwiseAdd", "SparseDenseCwiseDiv", "SparseDenseCwiseMul"),
    *("SparseReduceMax", "SparseReduceSum"),
)
def by_values(sizes: Sizes) -> float:
    """One operation for each element that is there."""
    return sizes.taken(1)


@flop_rule("SparseSoftmax")
def sparse_softmax(sizes: Sizes) -> float:
    """As of a dense softmax, for each element that is there."""
    return 5 * sizes.taken(1)


@flop_rule("SparseTensorDenseMatMul")
def sparse_matmul(sizes: Sizes) -> float:
    """A product and a sum for each element that is there and each column."""
    return 2 * sizes.taken(1) * sizes.output()[1]


@flop_rule("SparseSegmentSum", "SparseSegmentSumWithNumSegments")
def segment_sum(sizes: Sizes) -> float:
    """One operation for each element of the chosen rows."""
    rows = sizes.input(0)[0]
    return sizes.taken(1) * sizes.taken() / rows if rows else 0


@flop_rule(
    *("SparseSegmentMean", "SparseSegmentMeanWithNumSegments"),
    *("SparseSegmentSqrtN", "SparseSegmentSqrtNWithNumSegments"),
)
def segment_mean(sizes: Sizes) -> float:
    """Sums, and a quotient for each output."""
    return segment_sum(sizes) + sizes.made()
