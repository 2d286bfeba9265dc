"""Concatenation, padding, reversal, and blocks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused
from tests.ops.graphs import f32, i32, run, run_all


def test_concat() -> None:
    a, b = np.zeros((2, 1), np.float32), np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(run("ConcatV2", a, b, i32(-1)), [[0, 1, 1]] * 2)
    np.testing.assert_array_equal(run("Concat", i32(1), a, b), [[0, 1, 1]] * 2)
    with pytest.raises(InvalidGraphError, match=r"float32\[2, 1\], float32\[2, 2\]"):
        run("ConcatV2", a, b, i32(0))


def test_concat_offset() -> None:
    assert [o.tolist() for o in run_all("ConcatOffset", i32(1), i32(2, 3), i32(2, 5))] == [
        [0, 0],
        [0, 3],
    ]


def test_concat_offset_of_complex_sizes() -> None:
    sizes = np.array([2 + 1j], np.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [o.dtype for o in run_all("ConcatOffset", i32(0), sizes, sizes)] == ["c8", "c8"]


def test_pack() -> None:
    out = run("Pack", i32(1, 2), i32(3, 4), axis=-1)
    np.testing.assert_array_equal(out, [[1, 3], [2, 4]])


def test_tile() -> None:
    np.testing.assert_array_equal(run("Tile", i32([[1, 2]]), i32(2, 2)), [[1, 2, 1, 2]] * 2)
    with pytest.raises(InvalidGraphError, match="passes"):
        run("Tile", i32([[1, 2]]), i32(2**30, 2**30))


def test_pad() -> None:
    widths = i32([[1, 2]])
    assert run("Pad", i32(7, 8), widths).tolist() == [0, 7, 8, 0, 0]
    assert run("PadV2", i32(7, 8), widths, i32(-1)).tolist() == [-1, 7, 8, -1, -1]
    with pytest.raises(InvalidGraphError, match="negative"):
        run("Pad", i32(7, 8), i32([[-1, 0]]))


def test_mirror_pad() -> None:
    widths = i32([[2, 1]])
    assert run("MirrorPad", i32(1, 2, 3), widths, mode="REFLECT").tolist() == [3, 2, 1, 2, 3, 2]
    assert run("MirrorPad", i32(1, 2, 3), widths, mode="SYMMETRIC").tolist() == [2, 1, 1, 2, 3, 3]
    with pytest.raises(InvalidGraphError, match="wider than the mirrored part"):
        run("MirrorPad", i32(1, 2), widths, mode="REFLECT")


def test_reverse() -> None:
    x = i32([[1, 2], [3, 4]])
    np.testing.assert_array_equal(run("ReverseV2", x, i32([1])), [[2, 1], [4, 3]])
    np.testing.assert_array_equal(run("Reverse", x, np.array([True, False])), [[3, 4], [1, 2]])


def test_reverse_sequence() -> None:
    x = i32([[1, 2, 3], [4, 5, 6]])
    out = run("ReverseSequence", x, i32(2, 3), seq_dim=1, batch_dim=0)
    np.testing.assert_array_equal(out, [[2, 1, 3], [6, 5, 4]])
    out = run("ReverseSequence", x.T.copy(), i32(2, 3), seq_dim=0, batch_dim=1)
    np.testing.assert_array_equal(out, [[2, 6], [1, 5], [3, 4]])


def test_space_to_depth_and_back() -> None:
    x = np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    deep = run("SpaceToDepth", x, block_size=2)
    assert deep.shape == (2, 2, 3, 12)
    np.testing.assert_array_equal(deep[0, 0, 0], x[0, :2, :2].ravel())
    np.testing.assert_array_equal(run("DepthToSpace", deep, block_size=2), x)


def test_space_to_batch_and_back() -> None:
    x = np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    cut = run("SpaceToBatchND", x, i32(2, 3), i32([[0, 0], [0, 0]]))
    assert cut.shape == (12, 2, 2, 3)
    # Entry 2 * (1 * 3 + 2) of the batch holds the pixels at row 1 and column 2 of each block.
    np.testing.assert_array_equal(cut[10], x[0, 1::2, 2::3])
    np.testing.assert_array_equal(run("BatchToSpaceND", cut, i32(2, 3), i32([[0, 0], [0, 0]])), x)
    with pytest.raises(InvalidGraphError, match="cannot be cut into blocks"):
        run("SpaceToBatchND", x, i32(3, 3), i32([[0, 0], [0, 0]]))


def test_space_to_batch_pads_and_crops() -> None:
    x = f32(range(5)).reshape(1, 5, 1, 1)
    cut = run("SpaceToBatchND", x, i32(2, 1), i32([[1, 0], [0, 0]]))
    np.testing.assert_array_equal(cut[:, :, 0, 0], [[0, 1, 3], [0, 2, 4]])
    back = run("BatchToSpaceND", cut, i32(2, 1), i32([[1, 0], [0, 0]]))
    np.testing.assert_array_equal(back, x)


OP_CASES = [
    case("ConcatV2", [(2, 3), (2, 4), 1], [(2, 7)]),
    case("ConcatV2", [(2, 3), (2, 4), -1], [(2, 7)]),
    case("ConcatV2", [(2, -1, 3), (-1, 4, 3), 2], [(2, 4, 6)]),
    case("ConcatV2", [(2, 3), (2, -1), 1], [(2, -1)]),
    case("ConcatV2", [(2, 3), None, 0], [(-1, 3)]),
    case("ConcatV2", [(2, 3), (2, 4), ()], [(-1, -1)]),
    case("ConcatV2", [None, None, 0], [None]),
    refused("ConcatV2", [(2, 3), (3, 4), 1]),
    refused("ConcatV2", [(2, 3), (2,), 1]),
    refused("ConcatV2", [(2, 3), (2, 4), 2]),
    case("Concat", [0, (2, 3), (4, 3)], [(6, 3)]),
    case("Concat", [(), (2, 3), (4, 3)], [(-1, -1)]),
    refused("Concat", [0, (2, 3), (4, 2)]),
    case("ConcatOffset", [0, (2,), (2,)], [(2,), (2,)]),
    case("Pack", [(2, 3), (2, -1), (-1, -1)], [(3, 2, 3)]),
    case("Pack", [(2, 3), (2, 3)], [(2, 3, 2)], axis=2),
    case("Pack", [(2, 3), (2, 3)], [(2, 2, 3)], axis=-2),
    case("Pack", [None, None], [None]),
    case("Pack", [None, (4,)], [(2, 4)]),
    refused("Pack", [(2, 3), (2, 4)]),
    refused("Pack", [(2, 3), (2, 3)], axis=3),
    case("ParallelConcat", [(1, 3), (1, 3)], [(2, 3)], shape=(2, 3)),
]

test_shapes_and_costs = case_tests(OP_CASES)
