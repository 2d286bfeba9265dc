"""Shape, reshape, transpose, and range ops."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import Partly, case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_shape_ops() -> None:
    out = run("Shape", X)
    assert (out.tolist(), out.dtype) == ([2, 3, 4], np.int32)
    assert run("Shape", X, out_type=DType.INT64).dtype == np.int64
    assert run("Shape", f32(1)).shape == (0,)
    assert [o.tolist() for o in run_all("ShapeN", X, f32(1, 2))] == [[2, 3, 4], [2]]
    assert (int(run("Size", X)), int(run("Rank", X))) == (24, 3)
    assert run("Rank", X).shape == ()


def test_reshape_infers_one_dimension() -> None:
    assert run("Reshape", X, i32(4, -1)).shape == (4, 6)
    assert run("Reshape", np.zeros((0, 3), np.float32), i32(-1, 3)).shape == (0, 3)
    with pytest.raises(InvalidGraphError, match=r"float32\[2, 3, 4\], int32\[2\]"):
        run("Reshape", X, i32(5, -1))


def test_squeeze() -> None:
    x = np.zeros((1, 3, 1), np.float32)
    assert run("Squeeze", x).shape == (3,)
    assert run("Squeeze", x, squeeze_dims=[-1]).shape == (1, 3)
    with pytest.raises(InvalidGraphError, match="cannot run on"):
        run("Squeeze", x, squeeze_dims=[1])


def test_expand_dims() -> None:
    assert run("ExpandDims", X, i32(-1)).shape == (2, 3, 4, 1)
    with pytest.raises(InvalidGraphError, match="no axis 4 among 4"):
        run("ExpandDims", X, i32(4))


def test_transpose() -> None:
    np.testing.assert_array_equal(run("Transpose", X, i32(2, 0, 1)), X.transpose(2, 0, 1))
    z = np.array([[1 + 1j, 2]], np.complex64)
    np.testing.assert_array_equal(run("ConjugateTranspose", z, i32(1, 0)), z.conj().T)


def test_invert_permutation() -> None:
    assert run("InvertPermutation", i32(2, 0, 1)).tolist() == [1, 2, 0]
    with pytest.raises(InvalidGraphError, match="not a permutation"):
        run("InvertPermutation", i32(0, 0, 1))


@pytest.mark.parametrize(
    ("start", "stop", "step", "expected"),
    [
        (0, 3, 1, [0, 1, 2]),
        (5, 0, -2, [5, 3, 1]),
        (3, 3, 1, []),
        (0, 1.0, 0.25, [0, 0.25, 0.5, 0.75]),
    ],
)
def test_range(start, stop, step, expected) -> None:
    kind = np.float32 if isinstance(step, float) else np.int32
    out = run("Range", *(np.array(v, kind) for v in (start, stop, step)))
    assert (out.tolist(), out.dtype) == (expected, kind)


def test_range_with_zero_step_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="cannot be 0"):
        run("Range", i32(0), i32(3), i32(0))


def test_lin_space() -> None:
    assert run("LinSpace", f32(0), f32(1), i32(5)).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert run("LinSpace", f32(3), f32(9), i32(1)).tolist() == [3]


def test_fill() -> None:
    out = run("Fill", i32(2, 2), f32(7))
    np.testing.assert_array_equal(out, np.full((2, 2), 7, np.float32))
    assert run("Fill", np.zeros(0, np.int32), f32(7)).shape == ()


def test_empty_and_fake_param() -> None:
    assert run("Empty", i32(2, 3), dtype=np.int64).shape == (2, 3)
    assert run("FakeParam", dtype=np.float32, shape=(2, -1)).shape == (2, 0)


@pytest.mark.parametrize("dims", [(-1, 2), (2**20, 2**20)])
def test_invalid_fill_shape_is_refused(dims: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match=r"is not a shape|passes"):
        run("Fill", i32(list(dims)), f32(7))


def test_broadcast_to() -> None:
    np.testing.assert_array_equal(run("BroadcastTo", f32([[1], [2]]), i32(2, 2)), [[1, 1], [2, 2]])
    assert run("BroadcastArgs", i32(2, 1), i32(4, 1, 5)).tolist() == [4, 2, 5]


OP_CASES = [
    case("Shape", [(4, 5, 6)], [(3,)]),
    case("Shape", [None], [(-1,)]),
    case("ShapeN", [(4, 5), (), None], [(2,), (0,), (-1,)]),
    case("Size", [None], [()]),
    case("Rank", [None], [()]),
    case("Reshape", [(4, 6), [3, 8]], [(3, 8)]),
    case("Reshape", [(4, 6), [-1, 2, 3]], [(4, 2, 3)]),
    case("Reshape", [(-1, 6), [2, -1]], [(2, -1)]),
    case("Reshape", [(4, 6), Partly((-1, -1))], [(-1, -1)]),
    case("Reshape", [None, [2, 3]], [(2, 3)]),
    case("Reshape", [(4, 6), (3,)], [(-1, -1, -1)]),
    case("Reshape", [(0, 6), [0, -1]], [(0, -1)]),
    refused("Reshape", [(4, 6), [3, 7]]),
    refused("Reshape", [(4, 6), [5, -1]]),
    case("Squeeze", [(1, 4, 1, 5)], [(4, 5)]),
    case("Squeeze", [(1, 4, 1, 5)], [(4, 1, 5)], squeeze_dims=(0,)),
    case("Squeeze", [(-1, 4, 1)], [(-1, 4)], squeeze_dims=(-1,)),
    case("Squeeze", [(-1, 4, 1)], [(4, 1)], squeeze_dims=(0,)),
    case("Squeeze", [(1, -1)], [None]),
    case("Squeeze", [None], [None], squeeze_dims=(0,)),
    refused("Squeeze", [(1, 4)], squeeze_dims=(1,)),
    refused("Squeeze", [(1, 4)], squeeze_dims=(2,)),
    case("ExpandDims", [(4, 5), 1], [(4, 1, 5)]),
    case("ExpandDims", [(4, 5), -1], [(4, 5, 1)]),
    unlike(case("ExpandDims", [(4, 5), ()], [(-1, -1, -1)])),
    case("ExpandDims", [None, 0], [None]),
    refused("ExpandDims", [(4, 5), 3]),
    case("Reshape", [(0, 6), [2, 0]], [(2, 0)]),
    case("Reshape", [(0,), [-1]], [(0,)]),
    refused("Reshape", [(0, 6), [1]]),
    case("Reshape", [(0, 6), [5, -1]], [(5, 0)]),
]

test_shapes_and_costs = case_tests(OP_CASES)


@pytest.mark.parametrize(
    ("input_shape", "dims", "expected"),
    [
        # With a 0 among the sizes, the other sizes are inferred from the sizes that are not 0.
        ((0, 3), (-1, 0), (3, 0)),
        ((0, 3), (0, -1), (0, 3)),
        ((2, 0, 3), (0, -1, 2), (0, 3, 2)),
        ((0, 3, 4), (6, -1, 0), (6, 2, 0)),
        ((0, 3), (-1, 2), (0, 2)),
        ((0, 3), (0, -1, 2), (0, 1, 2)),
        ((0, 3), (2, -1), (2, 0)),
        ((2, 3), (3, -1, 1), (3, 2, 1)),
    ],
)
def test_reshape_of_empty_tensor_matches_tensorflow(
    input_shape: tuple[int, ...], dims: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert run("Reshape", np.zeros(input_shape, np.float32), i32(*dims)).shape == expected


@pytest.mark.parametrize(
    ("input_shape", "dims"),
    [((2, 3), (4, -1)), ((2, 3), (-1, -1)), ((2, 3), (-2,)), ((2, 3), (-1, -3))],
)
def test_invalid_reshape_is_refused(input_shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match="cannot run on"):
        run("Reshape", np.zeros(input_shape, np.float32), i32(*dims))
