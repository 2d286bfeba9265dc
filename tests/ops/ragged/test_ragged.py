"""Ragged tensors."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused, unlike

OP_CASES = [
    unlike(case("RaggedRange", [(3,), (3,), (3,)], [(-1,), (-1,)], None)),
    case(
        "RaggedGather",
        [(5,), (9, 4), (3,)],
        [(-1,), (-1, 4)],
        PARAMS_RAGGED_RANK=1,
        OUTPUT_RAGGED_RANK=1,
    ),
    case(
        "RaggedGather",
        [(5,), (7,), None, (3, 2)],
        [(-1,), (-1,), (-1,), None],
        PARAMS_RAGGED_RANK=2,
        OUTPUT_RAGGED_RANK=3,
    ),
    refused("RaggedGather", [(5,), (9, 4), (3, 2)], PARAMS_RAGGED_RANK=1, OUTPUT_RAGGED_RANK=1),
    refused("RaggedGather", [(5, 1), (9, 4), (3,)], PARAMS_RAGGED_RANK=1, OUTPUT_RAGGED_RANK=1),
    refused("RaggedGather", [(5,), (), (3,)], PARAMS_RAGGED_RANK=1, OUTPUT_RAGGED_RANK=1),
    unlike(case("RaggedTensorToSparse", [(5,), (9, 4)], [(-1, 3), (-1,), (3,)])),
    unlike(case("RaggedTensorToSparse", [(5,), (7,), (9,)], [(-1, 3), (-1,), (3,)])),
    case("RaggedTensorToSparse", [(5,), None], [(-1, -1), (-1,), (-1,)]),
    case(
        "RaggedGather",
        [(5,), (9,), (3,)],
        [(-1,), (-1,)],
        PARAMS_RAGGED_RANK=1,
        OUTPUT_RAGGED_RANK=1,
    ),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
