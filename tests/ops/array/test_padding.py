"""Padding and tiling."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.cases import Partly, case, case_tests, refused
from tests.ops.graphs import run

OP_CASES = [
    case("Tile", [(2, 3), [4, 5]], [(8, 15)]),
    case("Tile", [(2, -1), [4, 5]], [(8, -1)]),
    case("Tile", [(2, 0), Partly((4, -1))], [(8, 0)]),
    case("Tile", [(2, 3), (2,)], [(-1, -1)]),
    case("Tile", [None, (-1,)], [None]),
    refused("Tile", [(2, 3), [4]]),
    case("Pad", [(2, 3), [[1, 2], [0, 4]]], [(5, 7)]),
    case("Pad", [(2, -1), [[1, 2], [0, 4]]], [(5, -1)]),
    case("Pad", [None, [[1, 2], [0, 4]]], [(-1, -1)]),
    case("Pad", [(2, 3), (2, 2)], [(-1, -1)]),
    case("Pad", [(2, 3), (-1, 2)], [(-1, -1)]),
    case("Pad", [None, (-1, 2)], [None]),
    refused("Pad", [(2, 3), [[1, 2]]]),
    refused("Pad", [(2, 3), (2,)]),
    case("PadV2", [(2, 3), [[1, 2], [0, 4]], 0.0], [(5, 7)]),
    case("MirrorPad", [(3, 4), [[1, 2], [0, 1]]], [(6, 5)], mode="REFLECT"),
    case("Tile", [(), (0,)], [()]),
    case("Pad", [(), (0, 2)], [()]),
]

test_shapes_and_costs = case_tests(OP_CASES)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirror_pad_of_a_scalar(mode: str) -> None:
    out = run("MirrorPad", np.float32(3), np.zeros((0, 2), np.int32), mode=mode)
    assert (out.shape, out.tolist()) == ((), 3)
