"""Blocks, padding, and transposing."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import Partly, case, case_tests, refused, unlike
from tests.ops.graphs import i32, run

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


PIXELS = i32(range(1, 17)).reshape(1, 4, 4, 1)
PARTS = [[1, 3, 9, 11], [2, 4, 10, 12], [5, 7, 13, 15], [6, 8, 14, 16]]


def test_space_to_batch_and_back() -> None:
    """The example of the ``tf.space_to_batch`` documentation."""
    none = np.zeros((2, 2), np.int32)
    for blocks in (
        run("SpaceToBatch", PIXELS, none, block_size=2),
        run("SpaceToBatchND", PIXELS, i32(2, 2), none),
    ):
        assert blocks.shape == (4, 2, 2, 1)
        assert blocks.reshape(4, 4).tolist() == PARTS
        for back in (
            run("BatchToSpace", blocks, none, block_size=2),
            run("BatchToSpaceND", blocks, i32(2, 2), none),
        ):
            np.testing.assert_array_equal(back, PIXELS)


def test_space_to_batch_pads_and_crops() -> None:
    edges = i32([[1, 0], [0, 1]])
    row = i32(1, 2, 3).reshape(1, 1, 3, 1)
    blocks = run("SpaceToBatch", row, edges, block_size=2)
    assert blocks.reshape(4, 2).tolist() == [[0, 0], [0, 0], [1, 3], [2, 0]]
    assert run("BatchToSpace", blocks, edges, block_size=2).ravel().tolist() == [1, 2, 3]


@pytest.mark.parametrize(("batch", "crops"), [(3, [[0, 0], [0, 0]]), (4, [[3, 0], [0, 0]])])
def test_batch_that_does_not_fit_blocks_is_refused(batch: int, crops: list[list[int]]) -> None:
    with pytest.raises(InvalidGraphError, match=r"cannot fill|do not fit"):
        run("BatchToSpace", np.ones((batch, 1, 1, 1), np.float32), i32(crops), block_size=2)


def test_space_to_depth_and_back() -> None:
    """The example of the ``tf.nn.space_to_depth`` documentation."""
    blocks = run("SpaceToDepth", PIXELS, block_size=2)
    assert blocks.reshape(4, 4).tolist() == [
        [1, 2, 5, 6],
        [3, 4, 7, 8],
        [9, 10, 13, 14],
        [11, 12, 15, 16],
    ]
    np.testing.assert_array_equal(run("DepthToSpace", blocks, block_size=2), PIXELS)


OP_CASES += [
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


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirror_pad_of_a_scalar(mode: str) -> None:
    out = run("MirrorPad", np.float32(3), np.zeros((0, 2), np.int32), mode=mode)
    assert (out.shape, out.tolist()) == ((), 3)


OP_CASES += [
    case("Transpose", [(4, 5, 6), [2, 0, 1]], [(6, 4, 5)]),
    case("Transpose", [None, [1, 0]], [(-1, -1)]),
    case("Transpose", [(4, 5), (2,)], [(-1, -1)]),
    unlike(case("Transpose", [(4,), (1,)], [(4,)])),
    unlike(case("Transpose", [(4, 4), (2,)], [(4, 4)])),
    case("Transpose", [None, (3,)], [(-1, -1, -1)]),
    case("Transpose", [None, (-1,)], [None]),
    unlike(case("Transpose", [None, (255,)], [None])),
    unlike(case("Transpose", [None, (254,)], [(-1,) * 254])),
    unlike(refused("Transpose", [(4, 5), [0, 0]])),
    refused("Transpose", [(4, 5), [0]]),
    case("ConjugateTranspose", [(4, -1), [1, 0]], [(-1, 4)]),
    case("InvertPermutation", [(4,)], [(4,)]),
    refused("InvertPermutation", [(4, 4)]),
    unlike(case("Transpose", [None, (0,)], [()])),
]


def test_conjugate_transpose_of_bool() -> None:
    out = run("ConjugateTranspose", np.array([[True, False]]), i32([1, 0]))
    assert (out.dtype, out.tolist()) == (np.bool_, [[True], [False]])


test_shapes_and_costs = case_tests(OP_CASES)
