"""Constants and placeholders."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from tests.ops.cases import OpCase, case, unlike

OP_CASES = [
    case("PlaceholderWithDefault", [(2, 3)], [(-1, 3)], shape=(-1, 3)),
    case("Const", [], [(2, 3)], value=np.zeros((2, 3), np.float32), dtype=DType.FLOAT),
    unlike(case("HostConst", [], [()], value=np.float32(1), dtype=DType.FLOAT)),
    case("Placeholder", [], [(2, -1)], shape=(2, -1)),
    case("Placeholder", [], [()], shape=()),
    case("PlaceholderV2", [], [None], shape=None),
    case("ImmutableConst", [], [(4, 5)], shape=(4, 5), memory_region_name="x"),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
