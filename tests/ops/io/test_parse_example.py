"""Files, CSV lines, summaries, and serialized Examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.examples import example, floats_of, integers_of, texts_of
from tests.ops.graphs import f32, i32, run_all
from tests.ops.strings.test_conversion import scalar, texts


def serialized(*examples: bytes) -> np.ndarray:
    out = np.empty(len(examples), object)
    out[:] = examples
    return out


TWO = serialized(example(x=floats_of(1, 2), w=texts_of(b"a", b"b")), example(w=texts_of(b"c")))
LISTS: dict[str, Any] = {
    "Tdense": (),
    "num_sparse": 0,
    "sparse_types": (),
    "ragged_value_types": (),
    "ragged_split_types": (),
    "dense_shapes": (),
}


def dense(data: np.ndarray, default: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    attrs = {"Nsparse": 0, "sparse_types": (), "Ndense": 1, "dense_shapes": (shape,)}
    inputs = (data, texts(), scalar("x"), default)
    return run_all("ParseExample", *inputs, Tdense=(DType.FLOAT,), **attrs)[0]


def test_missing_feature_has_its_default():
    assert dense(TWO, f32(7, 8), (2,)).tolist() == [[1, 2], [7, 8]]
    with pytest.raises(InvalidGraphError, match="'x' is missing and has no default"):
        dense(TWO, np.zeros(0, np.float32), (2,))


def test_variable_length_feature_is_padded():
    assert dense(TWO, f32(-1), (-1,)).tolist() == [[1, 2], [-1, -1]]
    assert dense(TWO, f32(-1), (-1, 2)).tolist() == [[[1, 2]], [[-1, -1]]]
    with pytest.raises(InvalidGraphError, match="3 does not divide"):
        dense(TWO, f32(-1), (-1, 3))


def test_invalid_features_are_refused():
    with pytest.raises(InvalidGraphError, match="'x' has 2 values, not 3"):
        dense(TWO, f32(1, 2, 3), (3,))
    with pytest.raises(InvalidGraphError, match="holds INT64, not FLOAT"):
        dense(serialized(example(x=integers_of(1))), f32(1), (1,))
    with pytest.raises(CorruptFileError, match="declared"):
        dense(serialized(TWO[0][:-1]), f32(1), (1,))


def test_sparse_and_ragged_features():
    sparse = {**LISTS, "num_sparse": 1, "sparse_types": (DType.STRING,)}
    none = texts()
    indices, values, shape = run_all("ParseExampleV2", TWO, none, texts("w"), none, none, **sparse)
    assert indices.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert values.tolist() == [b"a", b"b", b"c"]
    assert shape.tolist() == [2, 2]
    kinds = {"ragged_value_types": (DType.STRING,), "ragged_split_types": (DType.INT32,)}
    inputs = (TWO, none, none, none, texts("w"))
    values, splits = run_all("ParseExampleV2", *inputs, **{**LISTS, **kinds})
    assert (values.tolist(), splits.tolist()) == ([b"a", b"b", b"c"], [0, 2, 3])
    assert splits.dtype == np.int32


def test_parse_single_example():
    attrs = {
        "num_sparse": 1,
        "sparse_keys": ("w",),
        "sparse_types": (DType.STRING,),
        "dense_keys": ("x",),
        "dense_shapes": ((2,),),
        "Tdense": (DType.FLOAT,),
    }
    outputs = run_all("ParseSingleExample", TWO[:1].reshape(()), f32(0, 0), **attrs)
    assert [o.tolist() for o in outputs] == [[[0], [1]], [b"a", b"b"], [2], [1, 2]]


EXAMPLE = {
    "sparse_types": (DType.INT64,),
    "Tdense": (DType.FLOAT,),
    "dense_shapes": ((3,),),
}
FIRST = {**EXAMPLE, "Nsparse": 1, "Ndense": 1}
SECOND = {
    **EXAMPLE,
    "num_sparse": 1,
    "ragged_value_types": (DType.FLOAT,),
    "ragged_split_types": (DType.INT64,),
}

OP_CASES = [
    case(
        "ParseExample",
        [(4,), (0,), (), (), (3,)],
        [(-1, 2), (-1,), (2,), (4, 3)],
        **FIRST,
    ),
    unlike(
        case(
            "ParseExample",
            [(4,), (0,), (), (), (3,)],
            [(-1, 2), (-1,), (2,), None],
            **{**FIRST, "dense_shapes": (None,)},
        )
    ),
    refused("ParseExample", [(4, 1), (0,), (), (), (3,)], **FIRST),
    unlike(
        case(
            "ParseExampleV2",
            [(4,), (0,), (1,), (1,), (1,), (3,)],
            [(-1, 2), (-1,), (2,), (4, 3), (-1,), (-1,)],
            **SECOND,
        )
    ),
    case(
        "ParseExampleV2",
        [(), (0,), (1,), (1,), (1,), (3,)],
        [(-1, 1), (-1,), (1,), (3,), (-1,), (-1,)],
        **SECOND,
    ),
    unlike(case("ParseExampleV2", [None, (0,), (1,), (1,), (1,), (3,)], [None] * 6, **SECOND)),
    case(
        "ParseSingleExample",
        [(), (3,)],
        [(-1, 1), (-1,), (1,), (3,)],
        **EXAMPLE,
        num_sparse=1,
        sparse_keys=("a",),
        dense_keys=("b",),
    ),
]


OP_CASES += [
    case("AudioSummaryV2", [(), (2, 3), ()], [()]),
    case("HistogramSummary", [(), (2, 3)], [()]),
    case("ImageSummary", [(), (1, 2, 3, 1)], [()]),
    case("MergeSummary", [(), ()], [()]),
    case("ScalarSummary", [(), ()], [()]),
    case("Timestamp", [], [()]),
]


NEEDED = np.zeros(0, np.float32)


def test_column_types_and_defaults():
    lines = texts('1,2.5,"a ""b"", c"', ",,")
    result = run_all("DecodeCSV", lines, i32([7]), f32([0.5]), texts("?"))
    assert [c.tolist() for c in result] == [[1, 7], [2.5, 0.5], [b'a "b", c', b"?"]]


def test_selected_columns_delimiter_and_na_value():
    attrs = {"select_cols": (1,), "field_delim": ";", "na_value": "NA"}
    assert run_all("DecodeCSV", texts("a;2", "b;NA"), i32([9]), **attrs)[0].tolist() == [2, 9]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("1,2", "2 fields"),
        ('a"', "not quoted"),
        ('"a', "does not end"),
        ("", "0 fields"),
        ("x", "is not a number"),
    ],
)
def test_invalid_records_are_refused(line, match):
    with pytest.raises(InvalidGraphError, match=match):
        run_all("DecodeCSV", texts(line), NEEDED)


def test_missing_required_field_is_refused():
    with pytest.raises(InvalidGraphError, match="without a default is missing"):
        run_all("DecodeCSV", texts(",1"), NEEDED, NEEDED)


OP_CASES += [
    case(
        "DecodeCSV", [(4, -1), (1,), (0,)], [(4, -1), (4, -1)], OUT_TYPE=(DType.FLOAT, DType.INT32)
    ),
]


OP_CASES += [
    case("ReadFile", [()], [()]),
    case("WriteFile", [(), ()], []),
    case("SerializeTensor", [(2, 3)], [()]),
    case("ParseTensor", [()], [None], out_type=DType.FLOAT),
    case("ShardedFilename", [(), (), ()], [()]),
    case("MergeV2Checkpoints", [(3,), ()], []),
    case("RestoreV2", [(), (2,), (2,)], [None, None], dtypes=(DType.FLOAT, DType.FLOAT)),
    case("Save", [(), (1,), (2, 3)], [], T=(DType.FLOAT,)),
    case("SaveSlices", [(), (1,), (1,), (2, 3)], [], T=(DType.FLOAT,)),
    case("SaveV2", [(), (1,), (1,), (2, 3)], [], dtypes=(DType.FLOAT,)),
]


test_shapes_and_costs = case_tests(OP_CASES)
