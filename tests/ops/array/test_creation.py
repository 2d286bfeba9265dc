"""Fill, Range, and other ops that create tensors."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import Partly, case, case_tests, refused
from tests.ops.graphs import run

OP_CASES = [
    case("Fill", [[2, 3], 0.0], [(2, 3)]),
    case("Fill", [Partly((2, -1)), 0.0], [(2, -1)]),
    case("Fill", [(-1,), 0.0], [None]),
    case("Empty", [[2, 3]], [(2, 3)]),
    case("FakeParam", [], [(2, -1)], shape=(2, -1)),
    case("Range", [2, 11, 3], [(3,)], 3, Tidx=DType.INT32),
    case("Range", [11, 2, -3], [(3,)], 3, Tidx=DType.INT32),
    case("Range", [2, 12, 3], [(4,)], 4, Tidx=DType.INT32),
    case("Range", [0.0, 1.0, 0.25], [(4,)], 4, Tidx=DType.FLOAT),
    case("Range", [0.0, 1.1, 0.25], [(5,)], 5, Tidx=DType.FLOAT),
    case("Range", [3, 3, 1], [(0,)], 0, Tidx=DType.INT32),
    case("Range", [2, (), 3], [(-1,)], None, Tidx=DType.INT32),
    refused("Range", [2, 11, 0], Tidx=DType.INT32),
    refused("Range", [2, 11, -1], Tidx=DType.INT32),
    refused("Range", [11, 2, 1], Tidx=DType.INT32),
    case("LinSpace", [0.0, 1.0, 5], [(5,)], 5),
    case("LinSpace", [0.0, 1.0, ()], [(-1,)], None),
    case("Range", [2.0, 3.0, 0.5], [(2,)], 2, Tidx=DType.FLOAT),
]

test_shapes_and_costs = case_tests(OP_CASES)


@pytest.mark.parametrize(("start", "limit", "step"), [(4, 1, 1), (1, 4, -1)])
@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_range_away_from_its_limit_is_refused(
    start: int, limit: int, step: int, kind: type
) -> None:
    ends = (np.array(x, kind) for x in (start, limit, step))
    with pytest.raises(InvalidGraphError, match="empty range from"):
        run("Range", *ends)
