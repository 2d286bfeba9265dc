"""Cases of ops that shape, cut, join, gather and scatter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mobileprep.formats.dtypes import DType
from tests.reference.cases.base import BF16, F32, FLOATS, INTEGERS, Case, Make, i32, scalar


def shapes() -> Iterator[Case]:
    make = Make(11)
    x = make.real(2, 3, 4)
    for kind in (*FLOATS, *INTEGERS, np.bool_, BF16):
        y = make.bits(2, 3) if kind is np.bool_ else make.real(2, 3, kind=kind)
        yield Case("Reshape", (y, i32(3, -1)))
        yield Case("Transpose", (y, i32(1, 0)))
        yield Case("Identity", (y,))
    for op in ("StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "GuaranteeConst"):
        yield Case(op, (x,), {"message": "bad"} if op == "CheckNumerics" else {})
    yield Case("CheckNumerics", (np.array([1, np.nan], F32),), {"message": "bad"}, note="nan")
    yield Case("EnsureShape", (x,), {"shape": (2, -1, 4)})
    yield Case("EnsureShape", (x,), {"shape": (2, -1, 5)}, note="misfit")
    yield Case("IdentityN", (x, i32(1, 2)))
    yield Case("PlaceholderWithDefault", (x,), {"shape": (2, 3, 4)})
    yield Case("Reshape", (make.real(0, 3), i32(3, 0)), note="empty")
    yield Case("Reshape", (make.real(0, 3), i32(3, -1)), note="empty unknown")
    yield Case("Reshape", (make.real(0, 3), i32(-1, 0)), note="empty beside a 0")
    yield Case("Reshape", (make.real(0, 3, 4), i32(6, -1, 0)), note="empty shared out")
    yield Case("Reshape", (make.real(0, 3), i32(0, -1, 2)), note="empty rounded down")
    yield Case("Reshape", (make.real(4), i32([-2])), note="negative")
    yield Case("Reshape", (make.real(1), i32()), note="to scalar")
    yield Case("Reshape", (x, i32(5, -1)), note="misfit")
    yield Case("Transpose", (x, i32(2, 0, 1)))
    yield Case("ConjugateTranspose", ((make.real(2, 3) + 1j).astype(np.complex64), i32(1, 0)))
    for op in ("Shape", "Size"):
        yield Case(op, (x,))
        yield Case(op, (x,), {"out_type": np.int64})
        yield Case(op, (make.real(),), note="scalar")
    yield Case("ShapeN", (x, make.real(5)))
    yield Case("Rank", (x,))
    for axis in (0, 1, -1, 3):
        yield Case("ExpandDims", (x, scalar(axis)), note=str(axis))
    yield Case("Squeeze", (make.real(1, 3, 1),))
    yield Case("Squeeze", (make.real(1, 3, 1),), {"squeeze_dims": [-1]})
    yield Case("Squeeze", (make.real(2, 3, 1),), {"squeeze_dims": [0]}, note="misfit")
    yield Case("BroadcastTo", (make.real(3, 1), i32(2, 3, 4)))
    yield Case("BroadcastArgs", (i32(2, 1), i32(3, 1, 5)))
    yield Case("InvertPermutation", (i32(2, 0, 1),))
    yield Case("InvertPermutation", (i32(2, 2, 1),), note="misfit")
    yield Case("Fill", (i32(2, 3), scalar(7.5, F32)))
    yield Case("Fill", (i32(), scalar(7, np.int64)), note="scalar")
    for start, stop, step in ((0, 5, 1), (5, 0, -2), (0, 0, 1), (3, 10, 4)):
        yield Case(
            "Range", (scalar(start), scalar(stop), scalar(step)), note=f"{start}{stop}{step}"
        )
    yield Case("Range", (scalar(0, F32), scalar(1, F32), scalar(0.1, F32)))
    yield Case("Range", (scalar(0), scalar(5), scalar(0)), note="misfit")
    yield Case("LinSpace", (scalar(-1, F32), scalar(2, F32), scalar(7)))
    yield Case("LinSpace", (scalar(-1, F32), scalar(2, F32), scalar(1)))
    yield Case("Bitcast", (x,), {"type": np.int32})
    yield Case("Bitcast", (x,), {"type": np.uint8})
    yield Case("Bitcast", (make.whole(0, 255, 3, 4, kind=np.uint8),), {"type": np.float32})
    for source in ("NHWC", "NCHW"):
        other = "NCHW" if source == "NHWC" else "NHWC"
        formats = {"src_format": source, "dst_format": other}
        yield Case("DataFormatVecPermute", (i32(7, 8, 9, 10),), formats, note=source)
        yield Case("DataFormatDimMap", (i32(0, 1, 2, 3, -1),), formats, note=source)


def slices() -> Iterator[Case]:
    make = Make(12)
    x = make.real(4, 5, 6)
    yield Case("Slice", (x, i32(1, 0, 2), i32(2, -1, 3)))
    yield Case("Slice", (x, i32(4, 0, 0), i32(0, 5, 6)), note="empty")
    yield Case("Slice", (x, i32(1, 0, 2), i32(9, -1, 3)), note="misfit")
    index = (
        ((1, 0, 5), (3, 5, 0), (1, 2, -2), {}),
        ((1, 0, 5), (3, 5, 0), (1, 1, 1), {"shrink_axis_mask": 5}),
        ((0, 0, 0), (2, 2, 2), (1, 1, 1), {"begin_mask": 1, "end_mask": 6}),
        ((-1, -2), (-9, 9), (-1, 1), {"begin_mask": 1, "end_mask": 1}),
        ((1, 0, 1), (2, 0, 3), (1, 1, 1), {"ellipsis_mask": 2}),
        ((0, 1), (0, 2), (1, 1), {"ellipsis_mask": 1, "shrink_axis_mask": 2}),
        ((0, 1, 0), (0, 2, 0), (1, 1, 1), {"new_axis_mask": 5}),
        ((0, 0, 0, 0), (0, 0, 9, 9), (1, 1, 1, 1), {"new_axis_mask": 1, "ellipsis_mask": 2}),
        ((-1,), (0,), (1,), {"shrink_axis_mask": 1}),
        ((9,), (99,), (1,), {}),
        ((9,), (99,), (1,), {"shrink_axis_mask": 1}),
        ((3,), (0,), (1,), {}),
        ((0,), (4,), (0,), {}),
        ((0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1), {}),
    )
    for begin, end, strides, masks in index:
        note = f"{begin}{end}{strides}{masks}".replace(" ", "")
        yield Case("StridedSlice", (x, i32(*begin), i32(*end), i32(*strides)), masks, note=note)
    update = make.real(2, 5, 6)
    yield Case("TensorStridedSliceUpdate", (x, i32(1), i32(3), i32(1), update))
    yield Case("Split", (scalar(1), make.real(2, 6, 3)), {"num_split": 3})
    yield Case("Split", (scalar(-1), make.real(2, 6, 3)), {"num_split": 2}, note="misfit")
    yield Case("SplitV", (make.real(2, 6), i32(1, -1, 2), scalar(1)), {"num_split": 3})
    yield Case(
        "SplitV", (make.real(2, 6), i32(1, 1, 2), scalar(1)), {"num_split": 3}, note="misfit"
    )
    yield Case("Unpack", (make.real(2, 3, 4),), {"num": 3, "axis": 1})
    yield Case("Unpack", (make.real(2, 3, 4),), {"num": 2})
    yield Case("Roll", (x, i32(2, -1), i32(0, 2)))
    yield Case("Roll", (x, scalar(7), scalar(1)))


def joins() -> Iterator[Case]:
    make = Make(13)
    for kind in (np.float32, np.int64, np.uint8, BF16):
        parts = tuple(make.real(2, n, kind=kind) for n in (1, 0, 3))
        yield Case("ConcatV2", (*parts, scalar(1)))
        yield Case("ConcatV2", (*parts, scalar(-1)), note="negative")
        yield Case("Pack", tuple(make.real(2, 3, kind=kind) for _ in range(3)), {"axis": 1})
    yield Case("ConcatV2", (make.real(2, 3), make.real(3, 3), scalar(1)), note="misfit")
    yield Case("Concat", (scalar(0), make.real(2, 3), make.real(1, 3)))
    yield Case("ConcatOffset", (scalar(1), i32(2, 3), i32(2, 5), i32(2, 1)))
    yield Case("Pack", (make.real(), make.real()), note="scalars")
    yield Case("Pack", (make.real(2), make.real(2)), {"axis": -1})
    yield Case("Tile", (make.real(2, 3), i32(2, 3)))
    yield Case("Tile", (make.real(2, 3), i32(0, 3)), note="empty")
    paddings = np.array([[1, 0], [2, 3]], np.int32)
    for kind in (np.float32, np.int32, np.bool_):
        x = make.bits(2, 4) if kind is np.bool_ else make.real(2, 4, kind=kind)
        yield Case("Pad", (x, paddings))
    yield Case("PadV2", (make.real(2, 4), paddings, scalar(-7, F32)))
    yield Case("MirrorPad", (make.real(3, 4), paddings), {"mode": "REFLECT"})
    yield Case("MirrorPad", (make.real(3, 4), paddings), {"mode": "SYMMETRIC"}, note="symmetric")
    yield Case("MirrorPad", (make.real(1, 3), paddings), {"mode": "REFLECT"}, note="misfit")
    yield Case("ReverseV2", (make.real(2, 3, 4), i32(0, -1)))
    yield Case("Reverse", (make.real(2, 3), np.array([True, False])))
    for sequence, batch in ((1, 0), (0, 1), (2, 0)):
        lengths = make.whole(0, 4, 3)
        attrs = {"seq_dim": sequence, "batch_dim": batch}
        shape = [4, 4, 4]
        shape[batch] = 3
        yield Case("ReverseSequence", (make.real(*shape), lengths), attrs, note=str(attrs))
    yield Case("SpaceToDepth", (make.real(2, 4, 6, 3),), {"block_size": 2})
    yield Case("DepthToSpace", (make.real(2, 2, 3, 12),), {"block_size": 2})
    yield Case(
        "SpaceToBatch",
        (make.real(2, 3, 4, 2), np.array([[0, 1], [2, 0]], np.int32)),
        {"block_size": 2},
    )
    yield Case(
        "BatchToSpace",
        (make.real(8, 2, 3, 2), np.array([[0, 1], [2, 0]], np.int32)),
        {"block_size": 2},
    )
    block = i32(2, 3)
    yield Case(
        "SpaceToBatchND", (make.real(2, 3, 4, 2), block, np.array([[1, 0], [1, 1]], np.int32))
    )
    yield Case(
        "BatchToSpaceND", (make.real(12, 2, 2, 2), block, np.array([[1, 0], [1, 1]], np.int32))
    )
    yield Case("SpaceToBatchND", (make.real(2, 5, 3), i32(2), np.array([[0, 1]], np.int32)))


def selections() -> Iterator[Case]:
    make = Make(14)
    x = make.real(4, 5, 6)
    indices = make.whole(0, 4, 2, 3)
    yield Case("Gather", (x, indices))
    yield Case("Gather", (x, i32(0, 4)), note="misfit")
    for axis in (0, 1, -1):
        yield Case("GatherV2", (x, indices, scalar(axis)), note=str(axis))
    yield Case("GatherV2", (x, scalar(2), scalar(1)), note="scalar")
    yield Case("GatherV2", (x, make.whole(0, 5, 4, 2), scalar(1)), {"batch_dims": 1})
    yield Case("GatherV2", (x, make.whole(0, 6, 4, 5, 2), scalar(2)), {"batch_dims": -1})
    yield Case("GatherV2", (make.real(0, 3), i32(), scalar(0)), note="empty")
    yield Case("GatherNd", (x, make.whole(0, 4, 3, 2)))
    yield Case("GatherNd", (x, make.whole(0, 4, 2, 2, 3)))
    yield Case("GatherNd", (x, np.zeros((2, 0), np.int32)), note="whole")
    yield Case("GatherNd", (x, np.array([[0, 9]], np.int32)), note="misfit")
    for kind in (np.float32, np.int32, np.bool_):
        a, b = (make.bits(3, 4) if kind is np.bool_ else make.real(3, 4, kind=kind) for _ in "ab")
        yield Case("Select", (make.bits(3, 4), a, b))
        yield Case("Select", (make.bits(3), a, b), note="rows")
        yield Case("Select", (np.array(True), a, b), note="scalar")
        yield Case("SelectV2", (make.bits(4), a, b), note="broadcast")
    yield Case("SelectV2", (make.bits(3, 1), make.real(4), make.real(2, 1, 1)))
    for kind in (np.bool_, np.float32, np.int32):
        condition = make.bits(3, 4) if kind is np.bool_ else make.real(3, 4, kind=kind).round()
        yield Case("Where", (condition,))
    yield Case("Where", (np.array(True),), note="scalar")
    yield Case("OneHot", (i32(0, 2, -1, 5), scalar(3), scalar(1, F32), scalar(0, F32)))
    for axis in (0, 1, -1):
        inputs = (make.whole(0, 4, 2, 3), scalar(4), scalar(5), scalar(-5))
        yield Case("OneHot", inputs, {"axis": axis}, note=str(axis))
    yield Case("ScatterNd", (np.array([[1], [3], [1]], np.int32), make.real(3, 2), i32(5, 2)))
    places = np.array([[0, 1], [2, 0], [0, 1]], np.int32)
    for op in ("TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"):
        yield Case(op, (make.real(3, 2, 4), places, make.real(3, 4)))
    yield Case("ScatterNdNonAliasingAdd", (make.real(3, 2, 4), places, make.real(3, 4)))
    yield Case("TensorScatterUpdate", (make.real(3, 2), places[:2], make.real(2)))
    yield Case("DynamicPartition", (make.real(6, 2), i32(0, 2, 1, 0, 2, 2)), {"num_partitions": 4})
    stitched = (i32(0, 5), i32(3, 1, 2), make.real(2, 3), make.real(3, 3))
    for op in ("DynamicStitch", "ParallelDynamicStitch"):
        yield Case(op, stitched[:2] + stitched[2:], {"N": 2})
    sparse = (np.array([[0, 1], [2, 0]], np.int32), i32(3, 3), make.real(2), scalar(-1, F32))
    yield Case("SparseToDense", sparse)
    ids = i32(0, 0, 1, 3)
    for kind in ("Sum", "Mean", "Max", "Min", "Prod"):
        yield Case(f"Segment{kind}", (make.real(4, 3), ids))
        if kind != "Mean":
            inputs = (make.real(4, 3), i32(2, 0, -1, 2), scalar(4))
            yield Case(f"UnsortedSegment{kind}", inputs)


def orders() -> Iterator[Case]:
    make = Make(15)
    ties = make.whole(0, 4, 3, 9)
    for x in (ties, ties.astype(F32), make.real(2, 7)):
        yield Case("TopKV2", (x, scalar(4)))
    yield Case("TopKV2", (make.real(2, 3), scalar(4)), note="misfit")
    yield Case("TopKV2", (make.real(2, 3), scalar(0)), note="none")
    yield Case("TopK", (make.real(2, 5),), {"k": 2})
    yield Case("NthElement", (make.real(2, 5), scalar(2)))
    yield Case("NthElement", (make.real(2, 5), scalar(1)), {"reverse": True})
    for x in (make.whole(0, 4, 9), make.whole(0, 3, 9).astype(F32)):
        yield Case("Unique", (x,))
        yield Case("UniqueWithCounts", (x,), {"out_idx": np.int64})
    yield Case("UniqueV2", (make.whole(0, 2, 6, 2), i32(0)))
    yield Case("UniqueWithCountsV2", (make.whole(0, 2, 6, 2), i32(0)))
    yield Case("ListDiff", (i32(1, 2, 3, 4, 2), i32(2, 9)))
    rows = np.array([[1, 9, 3], [4, 4, 1], [np.nan, 1, 2]], F32)
    for k in (1, 2):
        yield Case("InTopKV2", (rows, i32(2, 1, 1), scalar(k)), note=str(k))
    yield Case("InTopK", (rows, i32(1, 0, 7)), {"k": 1})
    ascending = np.sort(make.real(2, 6), axis=1)
    for op in ("LowerBound", "UpperBound"):
        yield Case(op, (ascending, np.concatenate([ascending[:, :2], make.real(2, 3)], axis=1)))
    yield Case("Bucketize", (make.real(3, 4),), {"boundaries": [-1.0, 0.5, 2.0]})
    yield Case("Bincount", (make.whole(0, 5, 9), scalar(4), make.real(0)))
    yield Case("Bincount", (make.whole(0, 5, 9), scalar(6), make.real(9)))
    yield Case("Bincount", (make.whole(0, 5, 2, 9), scalar(4), make.real(0)), note="two rows")
    yield Case("DenseBincount", (make.whole(0, 5, 2, 9), scalar(4), make.real(0)))
    yield Case(
        "DenseBincount", (make.whole(0, 5, 9), scalar(6), make.real(0)), {"binary_output": True}
    )
    yield Case("UnravelIndex", (i32(0, 5, 11), i32(3, 4)))
    yield Case("Size", (np.zeros((0, 4), F32),), note="empty")


def casts() -> Iterator[Case]:
    make = Make(16)
    kinds = (np.float32, np.float64, np.float16, BF16, *INTEGERS, np.uint16, np.bool_)
    for source in kinds:
        for target in kinds:
            if source is np.bool_:
                x = make.bits(5)
            else:
                low = 0 if np.dtype(source).kind == "u" or np.dtype(target).kind == "u" else -99
                x = make.real(5, kind=source, low=low, high=99)
            yield Case("Cast", (x,), {"SrcT": source, "DstT": target}, note=np.dtype(target).name)
    wide = np.array([300, -300, 70000, 2**31 - 1], np.int64)
    for target in (np.int8, np.uint8, np.int16, np.int32):
        yield Case(
            "Cast", (wide,), {"SrcT": np.int64, "DstT": target}, note=f"wrap{target.__name__}"
        )
    z = np.array([1 + 2j, -3.7 - 1j], np.complex64)
    yield Case("Cast", (z,), {"SrcT": np.complex64, "DstT": np.float32})
    yield Case("Cast", (make.real(3),), {"SrcT": np.float32, "DstT": DType.COMPLEX64})


def matrices() -> Iterator[Case]:
    make = Make(17)
    x = make.real(2, 4, 5)
    for low, high in ((1, 1), (0, -1), (-1, 0), (2, 0)):
        yield Case(
            "MatrixBandPart",
            (x, scalar(low, np.int64), scalar(high, np.int64)),
            note=f"{low}{high}",
        )
    yield Case("MatrixDiag", (make.real(2, 3),))
    yield Case("MatrixDiagPart", (x,))
    yield Case("MatrixSetDiag", (x, make.real(2, 4)))
    zero = scalar(-9, F32)
    for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"):
        for k in (i32(0), i32(-1, 2), i32(1), i32(-2, -1), i32(-3, 4)):
            yield Case("MatrixDiagPartV3", (x, k, zero), {"align": align}, note=f"{align}{k}")
        diagonals = make.real(2, 3, 4)
        inputs = (diagonals, i32(-1, 1), scalar(4), scalar(4), zero)
        yield Case("MatrixDiagV3", inputs, {"align": align}, note=align)
        yield Case(
            "MatrixSetDiagV3", (x, make.real(2, 4, 4), i32(-1, 2)), {"align": align}, note=align
        )
    for k in (i32(0), i32(1), i32(-2)):
        inputs = (make.real(3), k, scalar(-1), scalar(-1), zero)
        yield Case("MatrixDiagV2", inputs, note=str(k))
    yield Case("MatrixDiagPartV2", (x, i32(-1, 2), zero))
    yield Case("MatrixSetDiagV2", (x, make.real(2, 4, 4), i32(-1, 2)))
    yield Case("Diag", (make.real(2, 3),))
    yield Case("DiagPart", (make.real(2, 3, 2, 3),))
    square = make.real(2, 4, 4) + 5 * np.eye(4, dtype=F32)
    for op in ("MatrixInverse", "MatrixDeterminant"):
        yield Case(op, (square,), tolerance=1e-4)
    symmetric = square @ np.swapaxes(square, 1, 2)
    yield Case("Cholesky", (symmetric,), tolerance=1e-4)
    yield Case("MatrixSolve", (square, make.real(2, 4, 2)), tolerance=1e-4)
    for op, count in (("RFFT", 1), ("RFFT2D", 2)):
        yield Case(op, (make.real(3, 6, 8), i32(*[6, 8][-count:])))
        yield Case(op, (make.real(3, 6, 8), i32(*[5, 7][-count:])), note="cut")
    z = (make.real(3, 5) + 1j * make.real(3, 5)).astype(np.complex64)
    yield Case("IRFFT", (z, i32(8)))
    yield Case("IRFFT", (z, i32(7)), note="odd")
    yield Case("RFFT", (make.real(3, 6), i32(8)), note="misfit")
    yield Case("IRFFT", (z, i32(9)), note="misfit")
    for op in ("FFT", "IFFT", "FFT2D", "IFFT2D"):
        yield Case(op, (z,))
    yield Case("RFFT3D", (make.real(2, 3, 4, 6), i32(3, 4, 6)))
    cube = (make.real(2, 3, 4, 4) + 1j * make.real(2, 3, 4, 4)).astype(np.complex64)
    yield Case("IRFFT3D", (cube, i32(3, 4, 6)))
    yield Case("IRFFT2D", (cube, i32(4, 6)))
    for op in ("FFT3D", "IFFT3D"):
        yield Case(op, (cube,))


def cases() -> Iterator[Case]:
    yield from shapes()
    yield from slices()
    yield from joins()
    yield from selections()
    yield from orders()
    yield from casts()
    yield from matrices()
