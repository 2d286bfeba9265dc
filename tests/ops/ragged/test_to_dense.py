"""A ragged tensor padded to a dense one."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused

BY_ROW = ("FIRST_DIM_SIZE", "VALUE_ROWIDS")

OP_CASES = [
    case(
        "RaggedTensorToTensor",
        [[3, -1], (9,), 0.0, (4,)],
        [(3, -1)],
        row_partition_types=("ROW_SPLITS",),
    ),
    case(
        "RaggedTensorToTensor",
        [(3,), (9, 5), 0.0, (4,)],
        [(-1, -1, 5)],
        row_partition_types=("ROW_SPLITS",),
    ),
    case(
        "RaggedTensorToTensor",
        [-1, (9, 5), 0.0, (), (9,)],
        [(-1, -1, 5)],
        row_partition_types=BY_ROW,
    ),
    case(
        "RaggedTensorToTensor",
        [[3, 4, -1], (9, 5), 0.0, (), (9,)],
        [(3, 4, 5)],
        row_partition_types=BY_ROW,
    ),
    case(
        "RaggedTensorToTensor",
        [[3, 4], None, 0.0, (4,)],
        [(3, 4)],
        row_partition_types=("ROW_SPLITS",),
    ),
    refused(
        "RaggedTensorToTensor", [[3, 4, 6], (9, 5), 0.0, (4,)], row_partition_types=("ROW_SPLITS",)
    ),
    refused(
        "RaggedTensorToTensor", [[3, 4, 6], (9,), 0.0, (4,)], row_partition_types=("ROW_SPLITS",)
    ),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
