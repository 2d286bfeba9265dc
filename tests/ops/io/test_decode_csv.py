"""DecodeCSV."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests
from tests.ops.graphs import f32, i32, run_all
from tests.ops.strings.test_joining import texts

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


OP_CASES = [
    case(
        "DecodeCSV", [(4, -1), (1,), (0,)], [(4, -1), (4, -1)], OUT_TYPE=(DType.FLOAT, DType.INT32)
    ),
]

test_shapes_and_costs = case_tests(OP_CASES)
