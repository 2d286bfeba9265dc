"""Ops that count."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused, unlike

OP_CASES = [
    case("Bincount", [(4,), 7, (4,)], [(7,)]),
    case("Bincount", [(4,), (), (4,)], [(-1,)]),
    case("DenseBincount", [(4, 5), 7, (0,)], [(4, 7)]),
    case("DenseBincount", [(4,), 7, (0,)], [(7,)]),
    case("DenseBincount", [None, 7, (0,)], [None]),
    unlike(case("RaggedBincount", [(4,), (9,), 7, (0,)], [(3, 7)])),
    unlike(case("RaggedBincount", [(-1,), (9,), (), (0,)], [(-1, -1)])),
    unlike(refused("RaggedBincount", [(4, 1), (9,), 7, (0,)])),
    case("SparseBincount", [(4, 2), (4,), [5, 6], 7, (0,)], [(5, 7)]),
    case("SparseBincount", [(4, 1), (4,), [5], 7, (0,)], [(7,)]),
    unlike(case("SparseBincount", [(4, 2), (4,), [5, 6], (), (0,)], [(5, -1)])),
    unlike(case("SparseBincount", [(4, 2), (4,), (2,), 7, (0,)], [(-1, 7)])),
    case("SparseBincount", [(4, 2), (4,), (-1,), 7, (0,)], [None]),
    refused("SparseBincount", [(4, 3), (4,), [5, 6, 7], 7, (0,)]),
    case("HistogramFixedWidth", [(9,), (2,), 5], [(5,)]),
    case("HistogramFixedWidth", [(9,), (2,), ()], [(-1,)]),
    unlike(case("RaggedBincount", [(0,), (9,), 7, (0,)], [(-1, 7)])),
    unlike(case("RaggedBincount", [(1,), (9,), 7, (0,)], [(0, 7)])),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
