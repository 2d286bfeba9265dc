from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType, listed_values, packed_values
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import DOUBLE_FIELD, FLOAT_FIELD, Payload


@pytest.mark.parametrize(
    ("dtype", "field", "listed", "expected"),
    [
        (DType.FLOAT, "float_val", [1.5, -2], np.array([1.5, -2], dtype="f4")),
        (DType.INT8, "int_val", [1, -2, 300], np.array([1, -2, 44], dtype="i1")),
        (DType.QUINT8, "int_val", [0, 255], np.array([0, 255], dtype="u1")),
        (DType.UINT64, "uint64_val", [2**64 - 1], np.array([2**64 - 1], dtype="u8")),
        (DType.BOOL, "bool_val", [True, False], np.array([True, False])),
        (DType.HALF, "half_val", [0x3C00], np.array([1], dtype="f2")),
        (DType.BFLOAT16, "half_val", [0x3F80], np.array([1], dtype=ml_dtypes.bfloat16)),
        (DType.COMPLEX64, "scomplex_val", [1, 2, 3], np.array([1 + 2j], dtype="c8")),
        (DType.FLOAT8_E5M2, "float8_val", b"\x3c", np.array([1], dtype=ml_dtypes.float8_e5m2)),
        (DType.STRING, "string_val", [b"a", b""], np.array([b"a", b""], dtype=object)),
    ],
)
def test_elements_are_read_from_the_field_of_their_type(dtype, field, listed, expected):
    values = listed_values(pb.TensorProto(**{field: listed}), dtype)
    assert values.dtype == expected.dtype
    assert values.tolist() == expected.tolist()


def test_tensor_without_listed_values():
    assert listed_values(pb.TensorProto(int_val=[1]), DType.FLOAT) is None
    assert listed_values(pb.TensorProto(), DType.RESOURCE) is None


def test_packed_values_are_a_view():
    data = np.array([1.5, 2.5], dtype="<f8").tobytes()
    values = packed_values(Payload(DOUBLE_FIELD, memoryview(data)), "file")
    assert values.tolist() == [1.5, 2.5]
    assert not values.flags.owndata


def test_partial_element_is_refused():
    with pytest.raises(CorruptFileError, match="whole number"):
        packed_values(Payload(FLOAT_FIELD, memoryview(b"12345")), "file")
