"""Blocks of pixels moved to channels or to the batch."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused, unlike

OP_CASES = [
    case("SpaceToDepth", [(2, 4, 6, 3)], [(2, 2, 3, 12)], block_size=2),
    case("SpaceToDepth", [(2, 3, 4, 6)], [(2, 12, 2, 3)], block_size=2, data_format="NCHW"),
    case("SpaceToDepth", [(2, -1, 6, -1)], [(2, -1, 2, -1)], block_size=3),
    case("SpaceToDepth", [None], [(-1, -1, -1, -1)], block_size=2),
    refused("SpaceToDepth", [(2, 4, 5, 3)], block_size=2),
    refused("SpaceToDepth", [(4, 4, 3)], block_size=2),
    case("DepthToSpace", [(2, 4, 6, 12)], [(2, 8, 12, 3)], block_size=2),
    case("DepthToSpace", [(2, 18, 4, 6)], [(2, 2, 12, 18)], block_size=3, data_format="NCHW"),
    case("DepthToSpace", [(-1, 4, -1, 8)], [(-1, 8, -1, 2)], block_size=2),
    refused("DepthToSpace", [(2, 4, 6, 6)], block_size=2),
    case("SpaceToBatchND", [(2, 4, 6, 5), [2, 3], [[0, 2], [1, 2]]], [(12, 3, 3, 5)]),
    case("SpaceToBatchND", [(-1, 4, -1, 5), [2, 3], [[0, 2], [1, 2]]], [(-1, 3, -1, 5)]),
    case("SpaceToBatchND", [(2, 4, 6, 5), [2, 3], (2, 2)], [(12, -1, -1, 5)]),
    case("SpaceToBatchND", [(2, 4, 6, 5), (2,), [[0, 2], [1, 2]]], [(-1, -1, -1, 5)]),
    unlike(case("SpaceToBatchND", [(2, 4, 6, 5), (-1,), (-1, 2)], [(-1, -1, -1, -1)])),
    case("SpaceToBatchND", [None, [2, 2], [[0, 0], [0, 0]]], [None]),
    refused("SpaceToBatchND", [(2, 4, 5), [2, 2], [[0, 0], [0, 0]]]),
    refused("SpaceToBatchND", [(2, 4), [2, 2], [[0, 0], [0, 0]]]),
    case("BatchToSpaceND", [(12, 3, 4, 5), [2, 3], [[0, 1], [2, 1]]], [(2, 5, 9, 5)]),
    case("BatchToSpaceND", [(12, -1, 4, 5), [2, 3], [[0, 1], [2, 1]]], [(2, -1, 9, 5)]),
    case("BatchToSpaceND", [(12, 3, 4, 5), [2, 3], (2, 2)], [(2, -1, -1, 5)]),
    refused("BatchToSpaceND", [(11, 3, 4, 5), [2, 3], [[0, 1], [2, 1]]]),
    case("SpaceToBatch", [(2, 3, 5, 7), [[1, 0], [1, 0]]], [(8, 2, 3, 7)], block_size=2),
    case("SpaceToBatch", [(2, 3, 5, 7), (2, 2)], [(8, -1, -1, 7)], block_size=2),
    refused("SpaceToBatch", [(2, 3, 5, 7), [[0, 0], [1, 0]]], block_size=2),
    case("BatchToSpace", [(8, 2, 3, 7), [[1, 0], [0, 2]]], [(2, 3, 4, 7)], block_size=2),
    refused("BatchToSpace", [(6, 2, 3, 7), [[1, 0], [0, 2]]], block_size=2),
    unlike(case("SpaceToBatchND", [(2, 4, 6), (0,), (0, 2)], [(-1, 4, 6)])),
    case("BatchToSpaceND", [(4, 1, 5), [2], [[1, 1]]], [(2, 0, 5)]),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
