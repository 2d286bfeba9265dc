"""Elements under another type."""

from __future__ import annotations

import pytest

from mobileprep.formats.dtypes import DType
from tests.ops.cases import OpCase, case, refused

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


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
