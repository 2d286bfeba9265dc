"""Cast and Bitcast."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests, refused
from tests.ops.graphs import run

OP_CASES = [
    case("Cast", [(2, -1)], [(2, -1)], DstT=DType.INT32),
    case("Bitcast", [(2, 3)], [(2, 3)], T=DType.FLOAT, type=DType.INT32),
    case("Bitcast", [(2, 3)], [(2, 3, 4)], T=DType.FLOAT, type=DType.UINT8),
    case("Bitcast", [(-1,)], [(-1, 8)], T=DType.DOUBLE, type=DType.INT8),
    case("Bitcast", [(2, 3, 2)], [(2, 3)], T=DType.INT16, type=DType.FLOAT),
    case("Bitcast", [None], [None], T=DType.FLOAT, type=DType.UINT8),
    refused("Bitcast", [()], T=DType.INT16, type=DType.FLOAT),
    refused("Bitcast", [(2, 3)], T=DType.INT16, type=DType.FLOAT),
    case("Bitcast", [(5, 2)], [(5,)], T=DType.FLOAT, type=DType.DOUBLE),
    case("Bitcast", [(5,)], [(5, 2)], T=DType.DOUBLE, type=DType.FLOAT),
    case("Bitcast", [(5,)], [(5, 4)], T=DType.DOUBLE, type=DType.INT16),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_bitcast() -> None:
    x = np.array([[1.0, -2.0]], np.float32)
    bits = [[0x3F800000, 0xC0000000]]
    assert run("Bitcast", x, type=DType.UINT32).tolist() == bits
    halves = run("Bitcast", x, type=DType.UINT16)
    assert halves.tolist() == [[[0, 0x3F80], [0, 0xC000]]]
    assert run("Bitcast", halves, type=DType.FLOAT).tolist() == [[1, -2]]
    assert run("Bitcast", x[0], type=DType.UINT64).tolist() == 0xC00000003F800000
    for odd in (np.float32(1), np.ones(3, np.float32)):
        with pytest.raises(InvalidGraphError, match="does not make one"):
            run("Bitcast", odd, type=DType.UINT64)


def test_cast_truncates_and_wraps() -> None:
    x = np.array([-1.9, 1.9, 255.9, 300, -2], np.float32)
    whole = run("Cast", x, DstT=DType.INT32)
    assert (whole.tolist(), whole.dtype) == ([-1, 1, 255, 300, -2], np.int32)
    assert run("Cast", x, DstT=DType.UINT8).tolist() == [255, 1, 255, 44, 254]
    assert run("Cast", x, DstT=DType.INT8).tolist() == [-1, 1, -1, 44, -2]
    assert run("Cast", x[:2], DstT=DType.UINT64).tolist() == [2**64 - 1, 1]
    big = np.array([2.0**63], np.float64)
    assert run("Cast", big, DstT=DType.UINT64).tolist() == [2**63]


def test_cast_drops_the_imaginary_part() -> None:
    z = np.array([1.5 + 2j], np.complex64)
    assert run("Cast", z, DstT=DType.FLOAT).tolist() == [1.5]
    assert run("Cast", z, DstT=DType.COMPLEX128).tolist() == [1.5 + 2j]
    assert run("Cast", z, DstT=DType.INT32).tolist() == [1]


def test_cast_to_string_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="cannot be cast to string"):
        run("Cast", np.ones(1, np.float32), DstT=DType.STRING)


def test_cast_of_string_to_string() -> None:
    strings = np.array([b"1", b""], dtype=object)
    assert run("Cast", strings, SrcT=DType.STRING, DstT=DType.STRING).tolist() == [b"1", b""]
