"""Crosses of features."""

from __future__ import annotations

import pytest

from mobileprep.formats.dtypes import DType
from tests.ops.cases import OpCase, case

OP_CASES = [
    case(
        "SparseCross",
        [(4, 2), (4,), (2,), (3, 5)],
        [(-1, 2), (-1,), (2,)],
        N=1,
        hashed_output=True,
        num_buckets=7,
        hash_key=1,
        sparse_types=(DType.INT64,),
        dense_types=(DType.INT64,),
        out_type=DType.INT64,
        internal_type=DType.INT64,
    ),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
