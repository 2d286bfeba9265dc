"""SparseCross."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests

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

test_shapes_and_costs = case_tests(OP_CASES)
