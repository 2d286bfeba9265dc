"""Cases of ops on served examples and features: dense, sparse and ragged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.wire import delimited
from tests.ops.examples import example, floats_of, integers_of, texts_of
from tests.ops.pictures import encoded, text
from tests.reference.cases.base import F32, Case, Make, i32, scalar
from tests.reference.cases.texts import WORDS, vector

I64 = np.int64
NO_TEXTS = vector()
NONE = np.zeros(0, F32)


def i64(*values: Any) -> np.ndarray:
    return np.array(values, I64)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, F32)


EXAMPLES = {
    "usual": example(a=floats_of(1, 2), b=integers_of(5, -1, 300), c=texts_of(b"x", b"yz")),
    "unpacked": example(
        a=floats_of(3, 4, packed=False),
        b=integers_of(2**62, -(2**63), packed=False),
        c=texts_of(b""),
    ),
    "missing": example(c=texts_of(b"q")),
    "none": b"",
    "untyped": example(a=b"", b=b"", c=b""),
    "empty": example(a=floats_of(), b=integers_of(), c=texts_of()),
    "twice": example(a=floats_of(1, 1), b=integers_of(7)) + example(b=integers_of(8, 9)),
    "strangers": example(z=floats_of(9), b=integers_of(1)) + delimited(9, b"abc") + b"\x10\x05",
    "long": example(a=floats_of(0.5, 0.25), b=integers_of(*range(0, 2000, 7))),
}
WRONG = {
    "cut": EXAMPLES["usual"][:-1],
    "type": example(a=integers_of(1, 2)),
    "count": example(a=floats_of(1)),
    "noise": b"\xff\xff\xff\xff",
    "field": example(a=delimited(2, b"\x1a\x01a")),
    "number": example(b=delimited(3, delimited(1, b"\x80"))),
    "kind": example(a=delimited(5, b"")),
}


def _groups() -> Iterator[tuple[str, np.ndarray]]:
    yield "all", vector(*EXAMPLES.values())
    yield "no examples", NO_TEXTS
    for note, data in {**EXAMPLES, **WRONG}.items():
        yield note, vector(data)


TYPES = (DType.FLOAT, DType.INT64, DType.STRING)
FIXED, OPEN = ((2,), (), (1,)), ((2,), (-1,), (-1, 1))
FULL = (f32(7, 8), scalar(3, I64), vector("d"))
PADS = (f32(7, 8), i64(-5), vector("p"))
BARE = (NONE, i64(), NO_TEXTS)


def parsing() -> Iterator[Case]:
    keys = tuple(text(k) for k in (b"a", b"b", b"c"))
    for note, data in _groups():
        sparse = {
            "sparse_types": TYPES,
            "Nsparse": 3,
            "Ndense": 0,
            "Tdense": (),
            "dense_shapes": (),
        }
        yield Case("ParseExample", (data, NO_TEXTS, *keys), sparse, note=f"sparse {note}")
        for shapes, defaults in product((FIXED, OPEN), (FULL, PADS, BARE)):
            attrs = {
                "sparse_types": (),
                "Nsparse": 0,
                "Ndense": 3,
                "Tdense": TYPES,
                "dense_shapes": shapes,
            }
            inputs = (data, NO_TEXTS, *keys, *defaults)
            title = f"{note} {shapes} {[d.shape for d in defaults]}"
            yield Case("ParseExample", inputs, attrs, note=title)


def parsing_v2() -> Iterator[Case]:
    names = vector("a", "b", "c")
    for (note, data), single in product(_groups(), (True, False)):
        if single and len(data) != 1:
            continue
        fed = data.reshape(()) if single else data
        sparse: dict[str, Any] = {
            "Tdense": (),
            "num_sparse": 3,
            "sparse_types": TYPES,
            "ragged_value_types": (),
            "ragged_split_types": (),
            "dense_shapes": (),
        }
        inputs = (fed, NO_TEXTS, names, NO_TEXTS, NO_TEXTS)
        yield Case("ParseExampleV2", inputs, sparse, note=f"sparse {note} {single}")
        lists = {
            **sparse,
            "num_sparse": 0,
            "sparse_types": (),
            "ragged_value_types": TYPES,
            "ragged_split_types": (DType.INT32, DType.INT64, DType.INT32),
        }
        inputs = (fed, NO_TEXTS, NO_TEXTS, NO_TEXTS, names)
        yield Case("ParseExampleV2", inputs, lists, note=f"ragged {note} {single}")
        for shapes, defaults in product((FIXED, OPEN), (FULL, PADS, BARE)):
            dense: dict[str, Any] = {
                "Tdense": TYPES,
                "num_sparse": 0,
                "sparse_types": (),
                "ragged_value_types": (),
                "ragged_split_types": (),
                "dense_shapes": shapes,
            }
            inputs = (fed, NO_TEXTS, NO_TEXTS, names, NO_TEXTS, *defaults)
            title = f"{note} {single} {shapes} {[d.shape for d in defaults]}"
            yield Case("ParseExampleV2", inputs, dense, note=title)


def parsing_one() -> Iterator[Case]:
    for note, data in _groups():
        if len(data) != 1:
            continue
        for shapes, defaults in ((FIXED, FULL), (OPEN, PADS), (OPEN, BARE)):
            attrs: dict[str, Any] = {
                "num_sparse": 1,
                "sparse_keys": ("c",),
                "sparse_types": TYPES[2:],
                "dense_keys": ("a", "b"),
                "dense_shapes": shapes[:2],
                "Tdense": TYPES[:2],
            }
            title = f"{note} {shapes} {len(defaults[0])}"
            yield Case("ParseSingleExample", (data.reshape(()), *defaults[:2]), attrs, note=title)


def records() -> Iterator[Case]:
    defaults = (i32(1), f32(2.5), vector("s"), i64())
    lines = {
        "usual": "1,2.5,a,4",
        "missing": ",,,5",
        "needed": "1,2,a,",
        "few": "1,2,3",
        "many": "1,2,a,4,5",
        "quotes": '"1",2e1,"a ""b"", c",-7',
        "spaces": " 1 , 2 ,  a b ,4 ",
        "stray": '1,2,a"b,4',
        "open": '1,2,"ab,4',
        "single": '1,2,"a"b",4',
        "line": "1,2,a,4\r\n",
        "lines": "\n1,2,a,4",
        "NA": "NA,NA,NA,4",
        "word": "x,2,a,4",
        "none": "",
        "commas": ",,,",
        "quoted end": '1,2,"a,4"',
        "empty quotes": '"","","",9',
        "big": "99999999999,1,a,2",
    }
    for (note, line), quoted, missing in product(lines.items(), (True, False), ("", "NA")):
        attrs = {"use_quote_delim": quoted, "na_value": missing}
        inputs = (vector(line), *defaults)
        yield Case("DecodeCSV", inputs, attrs, note=f"{note} {quoted} {missing}")
    table = vector("1|x|2", "|y|", "3||4").reshape(3, 1)
    yield Case("DecodeCSV", (table, i64(9), vector("?"), f32(0)), {"field_delim": "|"}, note="bar")
    for chosen in ((0, 2), (1, 2), (2, 3)):
        chosen_defaults = (vector("?"), vector("!"))
        yield Case(
            "DecodeCSV",
            (vector("a,b,c", "d,,"), *chosen_defaults),
            {"select_cols": chosen},
            note=f"columns {chosen}",
        )


def hashing() -> Iterator[Case]:
    rng = np.random.default_rng(3)
    lengths = [*range(70), 127, 128, 129, 192, 500, 1000]
    noise = [rng.integers(0, 256, n, dtype=np.uint8).tobytes() for n in lengths]
    for x, count in product((WORDS, WORDS.reshape(2, 5), vector(*noise), NO_TEXTS), (1, 10, 2**62)):
        for op in ("StringToHashBucket", "StringToHashBucketFast"):
            yield Case(op, (x,), {"num_buckets": count}, note=str(count))
        attrs = {"num_buckets": count, "key": (12345, -6)}
        yield Case("StringToHashBucketStrong", (x,), attrs, note=str(count))


SPARSE = (
    i64([0, 1, 2], [0, 0, 1], [2, 1, 0], [2, 3, 4], [1, 0, 0]),
    f32(1, -2, 3, -4, 5),
    i64(4, 4, 5),
)
MATRIX = (i64([0, 1], [0, 3], [2, 0], [4, 2]), f32(1, 2, -3, 4), i64(6, 4))


def arranging() -> Iterator[Case]:
    for sparse in (SPARSE, MATRIX):
        yield Case("SparseReorder", sparse)
        rank = len(sparse[2])
        for axes, keep_dims, op in product(
            ((0,), (-1,), (0, 1), (), tuple(range(rank))),
            (True, False),
            ("SparseReduceSum", "SparseReduceMax"),
        ):
            yield Case(
                op, (*sparse, i32(*axes)), {"keep_dims": keep_dims}, note=f"{axes}{keep_dims}"
            )
    indices, _, dims = SPARSE
    for shape in ((80,), (-1, 5), (20, 4), (2, 2, -1), (-1, -1), (3, -1), (80, 1, 1)):
        yield Case("SparseReshape", (indices, dims, i64(*shape)), note=str(shape))
    yield Case("SparseReshape", (i64()[:0].reshape(0, 2), i64(0, 3), i64(-1, 3)), note="empty")
    yield Case("SparseFillEmptyRows", (*MATRIX, scalar(9, F32)))
    words = vector("a", "b", "c", "d")
    yield Case("SparseFillEmptyRows", (MATRIX[0], words, MATRIX[2], text(b"z")), note="texts")
    unordered = MATRIX[0][::-1]
    yield Case("SparseFillEmptyRows", (unordered, *MATRIX[1:], scalar(9, F32)), note="unordered")
    nothing = (np.zeros((0, 2), I64), NONE)
    for rows in (0, 3):
        yield Case("SparseFillEmptyRows", (*nothing, i64(rows, 2), scalar(9, F32)), note=str(rows))
    yield Case("SparseFillEmptyRows", (i64([7, 0]), f32(1), i64(6, 4), scalar(9, F32)), note="out")
    for start, size in (((0, 0, 0), (2, 2, 2)), ((1, 0, 0), (9, 9, 9)), ((5, 0, 1), (1, 2, 3))):
        yield Case("SparseSlice", (*SPARSE, i64(*start), i64(*size)), note=str(start))
    for axis in (0, 1, -1):
        pair = (*(MATRIX[0],) * 2, *(MATRIX[1],) * 2, *(MATRIX[2],) * 2)
        yield Case("SparseConcat", pair, {"concat_dim": axis, "N": 2}, note=str(axis))


def computing() -> Iterator[Case]:
    make = Make(7)
    for kind, op in product(
        (F32, np.float64), ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")
    ):
        x = make.real(6, 5, kind=kind)
        for places, ids in (
            ((0, 5, 2, 2), (0, 0, 1, 3)),
            ((1,), (2,)),
            ((), ()),
            ((6,), (0,)),
            ((0, 1), (1, 0)),
        ):
            inputs = (x, i32(*places), i32(*ids))
            yield Case(op, inputs, note=str(ids))
            for count in (4, 2, 6):
                numbered = (*inputs, scalar(count))
                yield Case(f"{op}WithNumSegments", numbered, note=f"{ids}{count}")
    for adjoint_a, adjoint_b, kind in product((True, False), (True, False), (F32, np.complex64)):
        other = make.real(*((6, 3) if adjoint_a else (4, 3))).astype(kind)
        if kind is np.complex64:
            other = other + 1j * other[::-1]
        sparse = (MATRIX[0], (MATRIX[1] * (kind(1j) if kind is np.complex64 else 1)), MATRIX[2])
        attrs = {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b}
        fed = other.T if adjoint_b else other
        note = f"{adjoint_a}{adjoint_b}{kind}"
        yield Case(
            "SparseTensorDenseMatMul", (*sparse, np.ascontiguousarray(fed)), attrs, note=note
        )
    for op in ("SparseDenseCwiseMul", "SparseDenseCwiseDiv", "SparseDenseCwiseAdd"):
        for shape in ((4,), (6, 1), (6, 4), (), (2, 6, 4)):
            yield Case(op, (*MATRIX, make.real(*shape)), note=str(shape))
    yield Case("SparseSoftmax", (i64([0, 1], [0, 3], [2, 0], [4, 2]), MATRIX[1], MATRIX[2]))


def ragged() -> Iterator[Case]:
    for kind in (np.int32, I64, F32):
        rows = np.array([0, 5, 3, 2], kind), np.array([3, 5, -2, 9], kind)
        for step in (scalar(1, kind), scalar(-2, kind), np.array([1, 2, -1, 3], kind)):
            yield Case("RaggedRange", (*rows, step), {"Tsplits": DType.INT64}, note=str(step))
    yield Case("RaggedRange", (i32(1), i32(2), i32(0)), {"Tsplits": DType.INT32}, note="still")
    outer, inner = i64(0, 2, 2, 3), i64(0, 1, 4, 6)
    values = Make(1).real(6, 2)
    for places in (i32(2, 0, 0), i32(1), i32(), i32([0, 1], [2, 2]), i32([[1], [2]], [[0], [0]])):
        for nested in ((inner,), (outer, inner)):
            attrs = {
                "PARAMS_RAGGED_RANK": len(nested),
                "OUTPUT_RAGGED_RANK": len(nested) + places.ndim - 1,
            }
            yield Case("RaggedGather", (*nested, values, places), attrs, note=str(len(nested)))
    for nested, dense in product(((inner,), (outer, inner)), (values, values[:, 0], values[:5])):
        attrs = {"RAGGED_RANK": len(nested)}
        yield Case("RaggedTensorToSparse", (*nested, dense), attrs, note=str(len(nested)))
    splits = [(b"ROW_SPLITS",), (inner,)]
    deep = [(b"ROW_SPLITS", b"ROW_SPLITS"), (outer, inner)]
    ids = [(b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"), (scalar(4, I64), i64(0, 0, 2, 2, 2, 3))]
    for kinds, parts in (splits, deep, ids):
        rank = 3 if len(kinds) == 2 and kinds[0] == b"ROW_SPLITS" else 2
        for x in (values, values[:, 0]):
            full = rank + x.ndim - 1
            shapes = [i64(*(-1,) * full), scalar(-1, I64), i64(*(2,) * full)]
            shapes += [i64(5, *(-1,) * (full - 1)), i64(-1, 6, *(-1,) * (full - 2)), i64(1)]
            for shape in shapes:
                attrs = {
                    "row_partition_types": [k.decode() for k in kinds],
                    "num_row_partition_tensors": len(parts),
                    "Tindex": DType.INT64,
                }
                inputs = (shape, x, scalar(-7, F32), *parts)
                yield Case("RaggedTensorToTensor", inputs, attrs, note=f"{kinds}{shape}")


def counting() -> Iterator[Case]:
    numbers, splits = i32(0, 3, 3, 9, 1, 0), i64(0, 2, 2, 6)
    for binary, weights, size in product((True, False), (NONE, f32(1, 2, 3, 4, 5, 6)), (4, 10, 0)):
        attrs = {"binary_output": binary}
        end = (scalar(size), weights)
        note = f"{binary}{len(weights)}{size}"
        yield Case("RaggedBincount", (splits, numbers, *end), attrs, note=note)
        yield Case("DenseBincount", (numbers, *end), attrs, note=note)
        vector_of = (np.arange(6)[:, np.newaxis], numbers, i64(8))
        yield Case("SparseBincount", (*vector_of, *end), attrs, note=note)
        matrix_of = (i64([0, 1], [0, 2], [3, 0], [3, 1], [3, 4], [1, 1]), numbers, i64(5, 5))
        yield Case("SparseBincount", (*matrix_of, *end), attrs, note=note)


def ngrams() -> Iterator[Case]:
    words, splits = vector(*"abcdefg"), i64(0, 3, 3, 4, 7)
    for widths, pad, whole, sides in product(
        ((1,), (2,), (1, 2), (3, 5), (8,)), (-1, 0, 1, 3), (True, False), (("", ""), ("<", ">"))
    ):
        attrs = {
            "separator": " ",
            "ngram_widths": widths,
            "left_pad": sides[0],
            "right_pad": sides[1],
            "pad_width": pad,
            "preserve_short_sequences": whole,
        }
        yield Case("StringNGrams", (words, splits), attrs, note=f"{widths}{pad}{whole}{sides}")


def characters() -> Iterator[Case]:
    plain = "aé日😀\n"
    odd = (b"a\xffb", b"\xe6\x97", b"\xed\xa0\x80x", b"\xf0\x9f\x98", b"\xc0\xaf")
    sources = {
        "UTF-8": vector(plain, "", *odd),
        "UTF-16-BE": vector(plain.encode("utf-16-be"), b"\xd8\x00\x00a"),
        "UTF-32-BE": vector(plain.encode("utf-32-be"), ""),
    }
    for (source, x), errors, controls in product(
        sources.items(), ("replace", "ignore", "strict"), (True, False)
    ):
        attrs = {
            "input_encoding": source,
            "errors": errors,
            "replace_control_characters": controls,
            "replacement_char": 63,
        }
        note = f"{source}{errors}{controls}"
        yield Case("UnicodeDecode", (x,), {**attrs, "Tsplits": DType.INT32}, note=note)
        yield Case("UnicodeDecode", (x[:1],), {**attrs, "Tsplits": DType.INT64}, note=note)
        for target in sources:
            coded = {**attrs, "output_encoding": target}
            yield Case("UnicodeTranscode", (x,), coded, note=f"{note}{target}")


def crossing() -> Iterator[Case]:
    rows = i64([0, 0], [0, 1], [2, 0]), i64([0, 0], [2, 0], [2, 1])
    values = vector("a", "bb", "a text that is longer"), i64(-5, 6, 7)
    dense = vector("x", "y", "z", "u", "v", "w").reshape(3, 2)
    for buckets, key in product((0, 10, 1000), (0, 956888297470)):
        attrs: dict[str, Any] = {
            "N": 2,
            "hashed_output": True,
            "num_buckets": buckets,
            "hash_key": key,
            "sparse_types": (DType.STRING, DType.INT64),
            "dense_types": (DType.STRING,),
            "out_type": DType.INT64,
            "internal_type": DType.INT64,
        }
        inputs = (*rows, *values, i64(3, 2), i64(3, 2), dense)
        yield Case("SparseCross", inputs, attrs, note=f"{buckets} {key}")
        pair = {**attrs, "dense_types": ()}
        yield Case("SparseCross", inputs[:-1], pair, note=f"sparse {buckets} {key}")


def crops() -> Iterator[Case]:
    noise = Make(5).whole(0, 256, 40, 56, 3, kind=np.uint8)
    files = {"color": encoded(noise, "JPEG"), "gray": encoded(noise[..., 0], "JPEG")}
    for (note, data), channels in product(files.items(), (0, 1, 3)):
        # Windows reach the right edge: elsewhere TensorFlow loses color in the last column.
        for window in (
            (0, 0, 40, 56),
            (3, 5, 20, 51),
            (39, 55, 1, 1),
            (30, 0, 20, 5),
            (0, 0, 0, 1),
        ):
            attrs = {"channels": channels, "dct_method": "INTEGER_ACCURATE"}
            inputs = (text(data), i32(*window))
            yield Case("DecodeAndCropJpeg", inputs, attrs, note=f"{note}{channels}{window}")
        yield Case("ExtractJpegShape", (text(data),), {"output_type": DType.INT64}, note=note)
    png = text(encoded(noise, "PNG"))
    yield Case("DecodeAndCropJpeg", (png, i32(0, 0, 1, 1)), note="PNG")


_MAKERS = (
    *(parsing, parsing_v2, parsing_one, records, hashing, arranging, computing, ragged),
    *(counting, ngrams, characters, crossing, crops),
)


def cases() -> Iterator[Case]:
    for maker in _MAKERS:
        yield from maker()
