"""Diagonals and bands of matrices."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused, unlike

OP_CASES = [
    case("MatrixBandPart", [(2, -1, 3), 1, 1], [(2, -1, 3)]),
    case("MatrixDiagPart", [(2, 3, 4)], [(2, 3)]),
    case("MatrixDiagPart", [(2, 5, 4)], [(2, 4)]),
    case("MatrixDiagPart", [(2, -1, 4)], [(2, -1)]),
    case("MatrixDiagPart", [(2, -1, 0)], [(2, 0)]),
    case("MatrixDiagPart", [None], [None]),
    refused("MatrixDiagPart", [(3,)]),
    case("MatrixDiagPartV2", [(2, 5, 7), 0, 0.0], [(2, 5)]),
    case("MatrixDiagPartV2", [(2, 5, 7), 3, 0.0], [(2, 4)]),
    case("MatrixDiagPartV2", [(2, 5, 7), [-2], 0.0], [(2, 3)]),
    case("MatrixDiagPartV2", [(2, 5, 7), [-2, 1], 0.0], [(2, 4, 5)]),
    case("MatrixDiagPartV2", [(2, 5, 7), [3, 4], 0.0], [(2, 2, 4)]),
    case("MatrixDiagPartV2", [(2, 5, 7), [-4, -2], 0.0], [(2, 3, 3)]),
    case("MatrixDiagPartV2", [(0, 0), 0, 0.0], [(0,)]),
    case("MatrixDiagPartV2", [(2, 5, -1), [0, 1], 0.0], [(2, 2, -1)]),
    case("MatrixDiagPartV2", [(2, 5, 7), (1,), 0.0], [None]),
    case("MatrixDiagPartV2", [None, 0, 0.0], [None]),
    case("MatrixDiagPartV3", [(2, 5, 7), [6, 6], 0.0], [(2, 1)]),
    refused("MatrixDiagPartV3", [(2, 5, 7), 7, 0.0]),
    refused("MatrixDiagPartV3", [(2, 5, 7), -5, 0.0]),
    refused("MatrixDiagPartV3", [(2, 5, 7), [1, 0], 0.0]),
    refused("MatrixDiagPartV3", [(2, 5, 7), [0, 1, 2], 0.0]),
    refused("MatrixDiagPartV3", [(5,), 0, 0.0]),
    unlike(refused("MatrixDiagPartV3", [(5, -1), -5, 0.0])),
    unlike(refused("MatrixDiagPartV3", [(-1, 7), 7, 0.0])),
    case("MatrixDiagPartV3", [(-1, 7), -9, 0.0], [(-1,)]),
    case("MatrixDiag", [(2, 3)], [(2, 3, 3)]),
    case("MatrixDiag", [None], [None]),
    refused("MatrixDiag", [()]),
    case("MatrixDiagV2", [(2, 3), 0, -1, -1, 0.0], [(2, 3, 3)]),
    case("MatrixDiagV2", [(2, 3), 1, -1, -1, 0.0], [(2, 4, 4)]),
    case("MatrixDiagV2", [(2, 3), -2, -1, -1, 0.0], [(2, 5, 5)]),
    case("MatrixDiagV2", [(2, 3), 0, 3, 6, 0.0], [(2, 3, 6)]),
    case("MatrixDiagV2", [(2, 3), 0, -1, 6, 0.0], [(2, 3, 6)]),
    case("MatrixDiagV2", [(2, 3), 2, 4, -1, 0.0], [(2, 4, 5)]),
    case("MatrixDiagV2", [(2, 3, 4), [-1, 1], -1, -1, 0.0], [(2, 4, 4)]),
    case("MatrixDiagV3", [(2, 2, 4), [-2, -1], 7, -1, 0.0], [(2, 7, 4)]),
    unlike(case("MatrixDiagV3", [(2, 3), 0, (), 6, 0.0], [(2, -1, 6)])),
    unlike(case("MatrixDiagV3", [(2, 3), 0, 4, (), 0.0], [(2, 4, -1)])),
    unlike(case("MatrixDiagV3", [(2, -1), 0, 4, (), 0.0], [(2, 4, -1)])),
    case("MatrixDiagV3", [(2, 3), (), -1, -1, 0.0], [None]),
    case("MatrixDiagV3", [None, 0, -1, -1, 0.0], [None]),
    refused("MatrixDiagV3", [(2, 3), 0, 2, -1, 0.0]),
    refused("MatrixDiagV3", [(2, 3), 0, 4, 5, 0.0]),
    refused("MatrixDiagV3", [(2, 3), [1, 0], -1, -1, 0.0]),
    refused("MatrixDiagV3", [(2, 3), [0, 1, 2], -1, -1, 0.0]),
    refused("MatrixDiagV3", [(3, 4), [0, 1], -1, -1, 0.0]),
    refused("MatrixDiagV3", [(4,), [0, 1], -1, -1, 0.0]),
    refused("MatrixDiagV3", [(), 0, -1, -1, 0.0]),
    *(case(op, [(2, 3, 4), (2, 3)], [(2, 3, 4)]) for op in ("MatrixSetDiag",)),
    *(case(f"MatrixSetDiagV{i}", [(2, 3, 4), (2, 3), 0], [(2, 3, 4)]) for i in (2, 3)),
    case("Diag", [(2, 3)], [(2, 3, 2, 3)]),
    case("Diag", [None], [None]),
    case("DiagPart", [(2, -1, 2, 3)], [(2, 3)]),
    case("DiagPart", [None], [None]),
    refused("DiagPart", [(2, 3, 2, 4)]),
    refused("DiagPart", [(2, 3, 2)]),
    refused("MatrixDiagPartV2", [(2, 0, 7), -1, 0.0]),
    refused("MatrixDiagPartV2", [(2, 5, 0), 1, 0.0]),
    case("MatrixDiagPart", [(5, 4)], [(4,)]),
    case("MatrixDiag", [(3,)], [(3, 3)]),
    case("MatrixDiagV2", [(3,), 0, -1, -1, 0.0], [(3, 3)]),
    case("MatrixDiagV2", [(2, 0), 0, -1, 6, 0.0], [(2, 0, 6)]),
    case("MatrixDiagV2", [(2, 1), 0, -1, 6, 0.0], [(2, 1, 6)]),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
