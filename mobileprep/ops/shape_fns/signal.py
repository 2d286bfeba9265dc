"""Shapes of ops on audio, text and files."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import UNKNOWN, add_dims, at_least_rank, broadcast, merge_dim, with_rank
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("DecodeWav")
def decode_wav(args: ShapeArgs) -> Sequence[TensorShape]:
    """Samples by channels, and the sample rate."""
    samples = args.node.attr_int("desired_samples", -1)
    channels = args.node.attr_int("desired_channels", -1)
    return [(max(samples, UNKNOWN), max(channels, UNKNOWN)), ()]


@shape_fn("AudioSpectrogram")
def audio_spectrogram(args: ShapeArgs) -> Sequence[TensorShape]:
    """Channels by windows by frequencies, of which there are half the next power of two."""
    length, channels = with_rank(args.shapes[0], 2)
    window = args.node.attr_int("window_size")
    stride = args.node.attr_int("stride")
    frequencies = (1 << max(window - 1, 0).bit_length()) // 2 + 1
    if length < 0:
        return [(channels, UNKNOWN, frequencies)]
    windows = 0 if length < window else 1 + (length - window) // max(stride, 1)
    return [(channels, windows, frequencies)]


@shape_fn("Mfcc")
def mfcc(args: ShapeArgs) -> Sequence[TensorShape]:
    """Channels by windows by coefficients."""
    channels, windows, _ = with_rank(args.shapes[0], 3)
    return [(channels, windows, args.node.attr_int("dct_coefficient_count", 13))]


@shape_fn("StringJoin")
def string_join(args: ShapeArgs) -> Sequence[TensorShape]:
    """The common shape of the inputs that are no scalars."""
    if None in args.shapes:
        return [None]
    larger = [s for s in args.shapes if s != ()]
    return [larger[0] if larger else ()]


@shape_fn("StringSplit", "StringSplitV2")
def string_split(args: ShapeArgs) -> Sequence[TensorShape]:
    """A sparse matrix of texts."""
    return [(UNKNOWN, 2), (UNKNOWN,), (2,)]


@shape_fn("Substr")
def substr(args: ShapeArgs) -> Sequence[TensorShape]:
    """Texts, positions and lengths broadcast to each other."""
    return [broadcast(args.shapes[0], args.shapes[1])]


@shape_fn("DecodeRaw")
def decode_raw(args: ShapeArgs) -> Sequence[TensorShape]:
    """The texts' shape with one more dimension."""
    return [None if args.shapes[0] is None else (*args.shapes[0], UNKNOWN)]


@shape_fn("DecodeCSV")
def decode_csv(args: ShapeArgs) -> Sequence[TensorShape]:
    """The lines' shape for each column."""
    return [args.shapes[0]] * args.count()


@shape_fn("ReadFile", "WriteFile", "SerializeTensor", "Timestamp")
def one_text(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar for each output."""
    return [()] * args.count()


@shape_fn("ParseTensor")
def parse_tensor(args: ShapeArgs) -> Sequence[TensorShape]:
    """Whatever the text says."""
    return [None]


@shape_fn("MergeSummary", "ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummaryV2")
def summary(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar."""
    return [()]


@shape_fn("ParseExample")
def parse_example(args: ShapeArgs) -> Sequence[TensorShape]:
    """Sparse features as indices, values and shapes, then dense ones with the batch before."""
    batch = with_rank(args.shapes[0], 1)[0]
    sparse = args.node.attr_int("Nsparse")
    dense = args.node.attr_shapes("dense_shapes")
    rows: list[TensorShape] = [None if s is None else (batch, *s) for s in dense]
    return [*[(UNKNOWN, 2)] * sparse, *[(UNKNOWN,)] * sparse, *[(2,)] * sparse, *rows]


@shape_fn("ParseSingleExample")
def parse_single_example(args: ShapeArgs) -> Sequence[TensorShape]:
    """Sparse features as indices, values and shapes, then dense ones."""
    sparse = args.node.attr_int("num_sparse")
    dense = args.node.attr_shapes("dense_shapes")
    return [*[(UNKNOWN, 1)] * sparse, *[(UNKNOWN,)] * sparse, *[(1,)] * sparse, *dense]


@shape_fn("SparseToDense")
def sparse_to_dense(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the second input holds."""
    return [args.as_shape(1)]


@shape_fn("SparseTensorDenseMatMul")
def sparse_matmul(args: ShapeArgs) -> Sequence[TensorShape]:
    """Rows of the sparse by columns of the dense matrix."""
    left, right = with_rank(args.as_shape(2), 2), with_rank(args.shapes[3], 2)
    rows, inner = reversed(left) if args.node.attr_bool("adjoint_a", False) else left
    other, columns = reversed(right) if args.node.attr_bool("adjoint_b", False) else right
    merge_dim(inner, other)
    return [(rows, columns)]


@shape_fn("SparseReshape")
def sparse_reshape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The same elements under indices of another length."""
    count = with_rank(args.shapes[0], 2)[0]
    rank = with_rank(args.shapes[2], 1)[0]
    return [(count, rank), (rank,)]


@shape_fn("SparseFillEmptyRows")
def sparse_fill_empty_rows(args: ShapeArgs) -> Sequence[TensorShape]:
    """More indices and values, a flag for each row, and where each element went."""
    count, rank = with_rank(args.shapes[0], 2)
    rows = args.as_shape(2)
    return [(UNKNOWN, rank), (UNKNOWN,), (rows[0] if rows else UNKNOWN,), (count,)]


@shape_fn(
    *("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum"),
    *("SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtNWithNumSegments"),
    "SparseSegmentSumWithNumSegments",
)
def sparse_segments(args: ShapeArgs) -> Sequence[TensorShape]:
    """As many rows as there are segments, each as long as the data's."""
    data = at_least_rank(args.shapes[0], 1)
    if data is None:
        return [None]
    segments = args.scalar(3) if args.node.op.endswith("NumSegments") else None
    return [(UNKNOWN if segments is None else segments, *data[1:])]


@shape_fn("LookupTableFindV2", "LookupTableFind", "LookupTableSizeV2", "LookupTableSize")
def lookup(args: ShapeArgs) -> Sequence[TensorShape]:
    """A value for each key, of a shape that the table knows; a size is a scalar."""
    return [() if "Size" in args.node.op else None]


@shape_fn("Fingerprint")
def fingerprint(args: ShapeArgs) -> Sequence[TensorShape]:
    """Bytes for each row."""
    rows = at_least_rank(args.shapes[0], 1)
    return [(add_dims(0, UNKNOWN if rows is None else rows[0]), UNKNOWN)]
