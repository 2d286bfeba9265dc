"""Slicing, splitting, joining, and reversing tensors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import Partly, case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all

X = np.arange(24).reshape(2, 3, 4)

_INDICES = (
    ((0, 1), (2, 3), (1, 1), {}, np.s_[0:2, 1:3]),
    ((1, 9), (-9, -9), (-1, -2), {"end_mask": 3}, np.s_[1::-1, 9::-2]),
    ((5, 1), (0, 3), (1, 1), {"begin_mask": 1, "end_mask": 1}, np.s_[:, 1:3]),
    ((1, -1), (2, 0), (1, 1), {"shrink_axis_mask": 3}, np.s_[1, -1]),
    (
        (0, 0, 1),
        (0, 0, 3),
        (1, 1, 1),
        {"ellipsis_mask": 2, "shrink_axis_mask": 1},
        np.s_[0, ..., 1:3],
    ),
    ((0, 1), (0, 2), (1, 1), {"new_axis_mask": 1}, np.s_[None, 1:2]),
    (
        (0, 0, 0),
        (0, 0, 2),
        (1, 1, 1),
        {"ellipsis_mask": 1, "new_axis_mask": 2},
        np.s_[..., None, 0:2],
    ),
    ((9,), (99,), (1,), {}, np.s_[9:99]),
)


@pytest.mark.parametrize(("begin", "end", "strides", "masks", "index"), _INDICES)
def test_strided_slice_matches_numpy(begin, end, strides, masks, index) -> None:
    out = run("StridedSlice", X, i32(list(begin)), i32(list(end)), i32(list(strides)), **masks)
    np.testing.assert_array_equal(out, X[index])
    assert out.shape == X[index].shape


def test_new_axis_bit_at_the_ellipsis_is_ignored() -> None:
    masks = {"ellipsis_mask": 1, "new_axis_mask": 1}
    out = run("StridedSlice", X, i32(0, 1), i32(0, 2), i32(1, 1), **masks)
    np.testing.assert_array_equal(out, X[..., 1:2])


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "message"),
    [
        ((0,), (1,), (0,), {}, "a stride cannot be 0"),
        ((2,), (3,), (1,), {"shrink_axis_mask": 1}, "no element 2 among 2"),
        ((0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1), {}, "4 axes are indexed"),
        ((0, 0), (1,), (1, 1), {}, "differ in length"),
    ],
)
def test_invalid_strided_slice_is_refused(begin, end, strides, masks, message) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        run("StridedSlice", X, i32(list(begin)), i32(list(end)), i32(list(strides)), **masks)


def test_strided_slice_of_one_element_is_an_array() -> None:
    out = run("StridedSlice", i32(4, 5), i32([1]), i32([2]), i32([1]), shrink_axis_mask=1)
    assert isinstance(out, np.ndarray)
    assert (out.shape, int(out)) == ((), 5)


def test_slice() -> None:
    out = run("Slice", X, i32(1, 0, 2), i32(1, -1, 2))
    np.testing.assert_array_equal(out, X[1:2, :, 2:4])
    with pytest.raises(InvalidGraphError, match="do not lie within 2"):
        run("Slice", X, i32(1, 0, 2), i32(2, -1, 2))


def test_split() -> None:
    parts = run_all("Split", i32(2), X, num_split=2)
    np.testing.assert_array_equal(parts[1], X[:, :, 2:])
    with pytest.raises(InvalidGraphError, match="cannot be split into 2 equal parts"):
        run_all("Split", i32(1), X, num_split=2)


def test_split_v() -> None:
    parts = run_all("SplitV", X, i32(1, -1), i32(2), num_split=2)
    assert [p.shape for p in parts] == [(2, 3, 1), (2, 3, 3)]
    with pytest.raises(InvalidGraphError, match="do not add up to 4"):
        run_all("SplitV", X, i32(1, 2), i32(2), num_split=2)


def test_unpack() -> None:
    parts = run_all("Unpack", i32(7, 8), num=2)
    assert [(p.shape, int(p)) for p in parts] == [((), 7), ((), 8)]
    with pytest.raises(InvalidGraphError, match="2 slices cannot become 3"):
        run_all("Unpack", i32(7, 8), num=3)


@pytest.mark.parametrize("open_ends", [{"begin_mask": 1}, {"end_mask": 1}])
def test_shrunk_axis_ignores_begin_and_end_masks(open_ends: dict[str, int]) -> None:
    """TensorFlow ignores both masks there."""
    vector, one = i32(4, 5, 6), i32([1])
    out = run("StridedSlice", vector, i32([2]), i32([3]), one, shrink_axis_mask=1, **open_ends)
    assert out.tolist() == 6
    with pytest.raises(InvalidGraphError, match="no element 7 among 3"):
        run("StridedSlice", vector, i32([7]), i32([8]), one, shrink_axis_mask=1, **open_ends)


def test_slice_of_a_scalar_is_an_array() -> None:
    none = np.zeros(0, np.int32)
    assert isinstance(run("Slice", np.array(7), none, none), np.ndarray)


def test_strided_slice_update_changes_a_copy() -> None:
    x = i32(1, 2, 3)
    out = run("TensorStridedSliceUpdate", x, i32([1]), i32([3]), i32([1]), i32(8, 9))
    assert (out.tolist(), x.tolist()) == ([1, 8, 9], [1, 2, 3])


OP_CASES = [
    case("Slice", [(4, 5), [1, 2], [2, 3]], [(2, 3)]),
    case("Slice", [(4, 5), [1, 2], [-1, -1]], [(3, 3)]),
    case("Slice", [(4, -1), [1, 2], [-1, -1]], [(3, -1)]),
    case("Slice", [(4, 5), (2,), [-1, 5]], [(-1, 5)]),
    case("Slice", [(4, 5), [1, 2], (2,)], [(-1, -1)]),
    case("Slice", [(4, 5), [1, 2], Partly((2, -1))], [(2, -1)]),
    case("Slice", [None, [1, 2], [2, 3]], [(2, 3)]),
    case("Slice", [None, (-1,), (-1,)], [None]),
    case("Slice", [None, (3,), (-1,)], [(-1, -1, -1)]),
    unlike(refused("Slice", [(4, 5), [1, 2], [2, 4]])),
    unlike(refused("Slice", [(4, 5), [1, 2], [5, 1]])),
    refused("Slice", [(4, 5), [1], [2]]),
    case("Roll", [(4, -1), 1, 0], [(4, -1)]),
    case("Slice", [(4, 5), [1, 2], [0, 3]], [(0, 3)]),
    case("Slice", [(0, 5), [0, 0], [0, -1]], [(0, 5)]),
    case("Slice", [(0, 5), [0, 0], [-1, -1]], [(0, 5)]),
    unlike(refused("Slice", [(0, 5), [0, 0], [1, 5]])),
    case("Slice", [(), (0,), (0,)], [()]),
    case("Slice", [None, (0,), (-1,)], [()]),
    case("Slice", [(1, 5), [0, 0], [-1, -1]], [(1, 5)]),
]


def test_roll() -> None:
    """The example of the ``tf.roll`` documentation."""
    assert run("Roll", i32(range(5)), i32(2), i32(0)).tolist() == [3, 4, 0, 1, 2]
    x = i32([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    result = run("Roll", x, i32(1, -2), i32(0, 1))
    assert result.tolist() == [[7, 8, 9, 5, 6], [2, 3, 4, 0, 1]]
    assert run("Roll", x, i32(2, -3), i32(1, 1)).tolist() == [[1, 2, 3, 4, 0], [6, 7, 8, 9, 5]]
    assert run("Roll", x[:, :2], i32(1), i32(-1)).tolist() == [[1, 0], [6, 5]]
    with pytest.raises(InvalidGraphError, match="no axis 2 among 2"):
        run("Roll", x, i32(1), i32(2))


OP_CASES += [
    case("Split", [1, (4, 6)], [(4, 2)] * 3, num_split=3),
    case("Split", [-2, (4, 6)], [(2, 6)] * 2, num_split=2),
    case("Split", [0, (-1, 6)], [(-1, 6)] * 2, num_split=2),
    case("Split", [(), (4, 6)], [(-1, -1)] * 2, num_split=2),
    case("Split", [0, None], [None] * 2, num_split=2),
    refused("Split", [1, (4, 5)], num_split=2),
    refused("Split", [2, (4, 6)], num_split=2),
    case("SplitV", [(4, 6), [1, 5], 1], [(4, 1), (4, 5)], num_split=2),
    case("SplitV", [(4, 6), [1, -1], 1], [(4, 1), (4, 5)], num_split=2),
    case("SplitV", [(4, -1), [1, -1], 1], [(4, 1), (4, -1)], num_split=2),
    case("SplitV", [(4, 6), (2,), 1], [(4, -1), (4, -1)], num_split=2),
    unlike(case("SplitV", [(4, 6), (1,), 1], [(4, 6)], num_split=1)),
    unlike(case("SplitV", [(4, 6), [1, 5], ()], [(-1, -1), (-1, -1)], num_split=2)),
    case("SplitV", [None, [1, 5], 1], [None, None], num_split=2),
    refused("SplitV", [(4, 6), [1, 5], 2], num_split=2),
    case("Unpack", [(4, 6)], [(6,)] * 4, num=4),
    case("Unpack", [(4, -1)], [(4,)] * 2, num=2, axis=-1),
    case("Unpack", [None], [None] * 2, num=2),
    refused("Unpack", [(4, 6)], num=3),
    refused("Unpack", [(4, 6)], num=4, axis=2),
    case("SplitV", [(4, 6), [0, 6], 1], [(4, 0), (4, 6)], num_split=2),
    case("SplitV", [(4, 0), [0, -1], 1], [(4, 0), (4, 0)], num_split=2),
    case("SplitV", [(4, 6), [1, 0, -1], 1], [(4, 1), (4, 0), (4, 5)], num_split=3),
]


OP_CASES += [
    case("StridedSlice", [(9, 8), [1, 2], [7, 8], [2, 3]], [(3, 2)]),
    case("StridedSlice", [(9, 8), [1], [7], [2]], [(3, 8)]),
    case("StridedSlice", [(9, 8), [1, 2], [7, 8], [2, 3]], [(5, 2)], begin_mask=1, end_mask=1),
    case("StridedSlice", [(9, 8), [1, 2], [7, 5], [2, 3]], [(3, 2)], end_mask=2),
    case("StridedSlice", [(9, 8), [-1, 2], [0, 8], [-2, 3]], [(4, 2)]),
    case("StridedSlice", [(9, 8), [1, 2], [2, 8], [1, 3]], [(2,)], shrink_axis_mask=1),
    case("StridedSlice", [(9, 8, 7), [0, 1], [0, 3], [1, 1]], [(9, 8, 2)], ellipsis_mask=1),
    case("StridedSlice", [(9, 8), [0, 1], [0, 3], [1, 1]], [(1, 2, 8)], new_axis_mask=1),
    case("StridedSlice", [(9, 8), (2,), [7, 8], [2, 3]], [(-1, -1)]),
    unlike(case("StridedSlice", [(9, 8), (2,), [7, 8], [2, 3]], [(4, -1)], begin_mask=1)),
    unlike(case("StridedSlice", [(9, 8), [1, 2], (2,), [2, 3]], [(-1, 2)], end_mask=2)),
    case("StridedSlice", [(-1, 8), [1, 2], [7, 8], [2, 3]], [(-1, 2)]),
    case("StridedSlice", [(9, 8), [1, 2], [7, 8], (2,)], [None]),
    case("StridedSlice", [None, [1, 2], [7, 8], [2, 3]], [None]),
    refused("StridedSlice", [(9,), [1, 2], [7, 8], [2, 3]]),
    refused("StridedSlice", [(9, 8), [1], [7, 8], [2, 3]]),
    refused("StridedSlice", [(9, 8), [1, 2], [7, 8], [0, 3]]),
    case("TensorStridedSliceUpdate", [(9, 8), [1, 2], [7, 8], [2, 3], (3, 2)], [(9, 8)]),
    case("StridedSlice", [(0, 8), [0, 2], [7, 8], [2, 3]], [(0, 2)]),
    case(
        "StridedSlice",
        [(9, 8, 7), [1, 0, 3], [7, 0, 4], [1, 1, 1]],
        [(6, 8)],
        ellipsis_mask=2,
        shrink_axis_mask=4,
    ),
    case("StridedSlice", [(9, 8), [1, 0, 3], [7, 0, 5], [1, 1, 1]], [(6, 1, 2)], new_axis_mask=2),
    case("StridedSlice", [(9, 8), [1, 3], [7, 5], [1, 1]], [(6, 5)], begin_mask=2),
]


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


OP_CASES += [
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


OP_CASES += [
    case("ReverseV2", [(2, -1), [0]], [(2, -1)]),
    case("Reverse", [(2, -1), [True, False]], [(2, -1)]),
    case("Reverse", [None, (3,)], [(-1, -1, -1)]),
    case("Reverse", [None, (-1,)], [None]),
    refused("Reverse", [(2, 3), [True]]),
    case("ReverseSequence", [(-1, 5, 6), (4,)], [(4, 5, 6)], seq_dim=1),
    case("ReverseSequence", [(3, -1), (4,)], [(3, 4)], seq_dim=0, batch_dim=1),
    case("ReverseSequence", [(-1, 5, 6), (-1,)], [(-1, 5, 6)], seq_dim=1),
    case("ReverseSequence", [None, (4,)], [None], seq_dim=1),
    refused("ReverseSequence", [(3, 5), (4,)], seq_dim=1),
    refused("ReverseSequence", [(3, 5), (3,)], seq_dim=1, batch_dim=2),
    refused("ReverseSequence", [(3, 5), (3, 1)], seq_dim=1),
    case("Reverse", [(), (0,)], [()]),
    refused("Reverse", [(3,), (0,)]),
]


def test_reverse_of_a_scalar_is_an_array() -> None:
    assert isinstance(run("ReverseV2", np.array(7), np.zeros(0, np.int32)), np.ndarray)


def test_duplicate_reverse_axis_is_refused() -> None:
    """Same as TensorFlow."""
    with pytest.raises(InvalidGraphError, match="the axis 0 is named twice"):
        run("ReverseV2", np.ones((2, 3)), i32(0, -2))


OP_CASES += [
    case("DynamicPartition", [(4, 5, 6), (4, 5)], [(-1, 6)] * 3, num_partitions=3),
    case("DynamicPartition", [(4, -1), (4,)], [(-1, -1)], num_partitions=1),
    case("DynamicPartition", [None, (4,)], [None] * 2, num_partitions=2),
    case("DynamicPartition", [(4,), None], [None] * 2, num_partitions=2),
    case("DynamicStitch", [[0, 5], [2], (2, 7), (1, 7)], [(6, 7)]),
    case("DynamicStitch", [[0, 5], (1,), (2, 7), (1, -1)], [(-1, 7)]),
    case("DynamicStitch", [(2,), None, (2, -1), (1, 7)], [(-1, -1)]),
    case("DynamicStitch", [None, None, (2, 7), (1, 7)], [None]),
    case("DynamicStitch", [[], [], (0, 7), (0, 7)], [(0, 7)]),
    refused("DynamicStitch", [(2,), (1,), (2, 7), (1, 8)]),
    case("ParallelDynamicStitch", [[[0, 1]], [2], (1, 2, 7), (1, 7)], [(3, 7)]),
]


test_shapes_and_costs = case_tests(OP_CASES)
