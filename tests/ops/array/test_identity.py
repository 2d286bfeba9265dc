"""Placeholders, identities, casts, created tensors, and shapes."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph, Versions
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import Partly, case, case_tests, refused, unlike
from tests.ops.graphs import c, f32, i32, n, run, run_all

UNCHANGED = (
    *("Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2"),
    *("DebugIdentityV3", "DeepCopy", "GuaranteeConst", "Identity", "PreventGradient"),
    *("RefIdentity", "Snapshot", "StopGradient"),
)

OP_CASES = [
    *(case(op, [(2, -1)], [(2, -1)]) for op in UNCHANGED),
    case("LoopCond", [()], [()]),
    case("EnsureShape", [(2, -1)], [(2, 3)], shape=(-1, 3)),
    case("EnsureShape", [None], [(-1, 3)], shape=(-1, 3)),
    unlike(case("EnsureShape", [(2, 3)], [(2, 3)], shape=None)),
    refused("EnsureShape", [(2, 3)], shape=(2, 4)),
    case("IdentityN", [(2, 3), None], [(2, 3), None], T=(DType.FLOAT, DType.FLOAT)),
    case("NoOp", [], []),
    case("ControlTrigger", [], []),
    case("CheckNumerics", [(2, -1)], [(2, -1)], message="x"),
    case("CheckNumericsV2", [(2, -1)], [(2, -1)], message="x"),
]


def test_identity_ops() -> None:
    for op in ("Identity", "Snapshot", "StopGradient", "PreventGradient"):
        assert run(op, i32(1, 2)).tolist() == [1, 2]
    first, second = run_all("IdentityN", i32(1, 2), f32(0.5), T=[DType.INT32, DType.FLOAT])
    assert (first.tolist(), second.tolist()) == ([1, 2], 0.5)
    assert run("LoopCond", np.array(True)).tolist() is True


@pytest.mark.parametrize("shape", [(2, 3), (-1, 3), (-1, -1), None])
def test_ensure_shape_accepts_matching_shape(shape: tuple[int, ...] | None) -> None:
    x = np.ones((2, 3), np.float32)
    assert run("EnsureShape", x, shape=attr.shape(shape)).shape == (2, 3)


@pytest.mark.parametrize("shape", [(2, 4), (3, -1), (2,), (2, 3, 1), ()])
def test_ensure_shape_refuses_other_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match=r"the shape \[2, 3\] does not fit"):
        run("EnsureShape", np.ones((2, 3), np.float32), shape=attr.shape(shape))


@pytest.mark.parametrize("op", ["CheckNumerics", "CheckNumericsV2"])
def test_check_numerics(op: str) -> None:
    assert run(op, f32(1, -2), message="logits").tolist() == [1, -2]
    for bad, kind in ((np.inf, "Inf"), (-np.inf, "Inf"), (np.nan, "NaN")):
        with pytest.raises(InvalidGraphError, match=f"found {kind}: logits"):
            run(op, f32(1, bad), message="logits")
    with pytest.raises(InvalidGraphError, match="found NaN"):
        run(op, f32(np.inf, np.nan), message="logits")


@pytest.mark.parametrize("op", ["NoOp", "ControlTrigger"])
def test_no_op_as_control_input(op: str) -> None:
    graph = Graph([c("a", 1.0), n("wait", op, "^a"), n("y", "Identity", "a", "^wait")])
    assert Interpreter(graph).run(["y"], {})[0].tolist() == 1


OP_CASES += [
    case("Cast", [(2, -1)], [(2, -1)], DstT=DType.INT32),
    case("Bitcast", [(2, 3)], [(2, 3)], T=DType.FLOAT, type=DType.INT32),
    case("Bitcast", [(2, 3)], [(2, 3, 4)], T=DType.FLOAT, type=DType.UINT8),
    case("Bitcast", [(-1,)], [(-1, 8)], T=DType.DOUBLE, type=DType.INT8),
    case("Bitcast", [(2, 3, 2)], [(2, 3)], T=DType.INT16, type=DType.FLOAT),
    case("Bitcast", [None], [None], T=DType.FLOAT, type=DType.UINT8),
    refused("Bitcast", [()], T=DType.INT16, type=DType.FLOAT),
    refused("Bitcast", [(2, 3)], T=DType.INT16, type=DType.FLOAT),
    case("Bitcast", [(5, 2)], [(5,)], T=DType.FLOAT, type=DType.DOUBLE),
    case("Bitcast", [(5,)], [(5, 2)], T=DType.DOUBLE, type=DType.FLOAT),
    case("Bitcast", [(5,)], [(5, 4)], T=DType.DOUBLE, type=DType.INT16),
]


def test_bitcast() -> None:
    x = np.array([[1.0, -2.0]], np.float32)
    bits = [[0x3F800000, 0xC0000000]]
    assert run("Bitcast", x, type=DType.UINT32).tolist() == bits
    halves = run("Bitcast", x, type=DType.UINT16)
    assert halves.tolist() == [[[0, 0x3F80], [0, 0xC000]]]
    assert run("Bitcast", halves, type=DType.FLOAT).tolist() == [[1, -2]]
    assert run("Bitcast", x[0], type=DType.UINT64).tolist() == 0xC00000003F800000
    for odd in (np.float32(1), np.ones(3, np.float32)):
        with pytest.raises(InvalidGraphError, match="does not make one"):
            run("Bitcast", odd, type=DType.UINT64)


def test_cast_truncates_and_wraps() -> None:
    x = np.array([-1.9, 1.9, 255.9, 300, -2], np.float32)
    whole = run("Cast", x, DstT=DType.INT32)
    assert (whole.tolist(), whole.dtype) == ([-1, 1, 255, 300, -2], np.int32)
    assert run("Cast", x, DstT=DType.UINT8).tolist() == [255, 1, 255, 44, 254]
    assert run("Cast", x, DstT=DType.INT8).tolist() == [-1, 1, -1, 44, -2]
    assert run("Cast", x[:2], DstT=DType.UINT64).tolist() == [2**64 - 1, 1]
    big = np.array([2.0**63], np.float64)
    assert run("Cast", big, DstT=DType.UINT64).tolist() == [2**63]


def test_cast_drops_the_imaginary_part() -> None:
    z = np.array([1.5 + 2j], np.complex64)
    assert run("Cast", z, DstT=DType.FLOAT).tolist() == [1.5]
    assert run("Cast", z, DstT=DType.COMPLEX128).tolist() == [1.5 + 2j]
    assert run("Cast", z, DstT=DType.INT32).tolist() == [1]


def test_cast_to_string_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="cannot be cast to string"):
        run("Cast", np.ones(1, np.float32), DstT=DType.STRING)


def test_cast_of_string_to_string() -> None:
    strings = np.array([b"1", b""], dtype=object)
    assert run("Cast", strings, SrcT=DType.STRING, DstT=DType.STRING).tolist() == [b"1", b""]


OP_CASES += [
    case("Fill", [[2, 3], 0.0], [(2, 3)]),
    case("Fill", [Partly((2, -1)), 0.0], [(2, -1)]),
    case("Fill", [(-1,), 0.0], [None]),
    case("Empty", [[2, 3]], [(2, 3)]),
    case("FakeParam", [], [(2, -1)], shape=(2, -1)),
    case("Range", [2, 11, 3], [(3,)], 3, Tidx=DType.INT32),
    case("Range", [11, 2, -3], [(3,)], 3, Tidx=DType.INT32),
    case("Range", [2, 12, 3], [(4,)], 4, Tidx=DType.INT32),
    case("Range", [0.0, 1.0, 0.25], [(4,)], 4, Tidx=DType.FLOAT),
    case("Range", [0.0, 1.1, 0.25], [(5,)], 5, Tidx=DType.FLOAT),
    case("Range", [3, 3, 1], [(0,)], 0, Tidx=DType.INT32),
    case("Range", [2, (), 3], [(-1,)], None, Tidx=DType.INT32),
    refused("Range", [2, 11, 0], Tidx=DType.INT32),
    refused("Range", [2, 11, -1], Tidx=DType.INT32),
    refused("Range", [11, 2, 1], Tidx=DType.INT32),
    case("LinSpace", [0.0, 1.0, 5], [(5,)], 5),
    case("LinSpace", [0.0, 1.0, ()], [(-1,)], None),
    case("Range", [2.0, 3.0, 0.5], [(2,)], 2, Tidx=DType.FLOAT),
]


@pytest.mark.parametrize(("start", "limit", "step"), [(4, 1, 1), (1, 4, -1)])
@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_range_away_from_its_limit_is_refused(
    start: int, limit: int, step: int, kind: type
) -> None:
    ends = (np.array(x, kind) for x in (start, limit, step))
    with pytest.raises(InvalidGraphError, match="empty range from"):
        run("Range", *ends)


OP_CASES += [
    case("PlaceholderWithDefault", [(2, 3)], [(-1, 3)], shape=(-1, 3)),
    case("Const", [], [(2, 3)], value=np.zeros((2, 3), np.float32), dtype=DType.FLOAT),
    unlike(case("HostConst", [], [()], value=np.float32(1), dtype=DType.FLOAT)),
    case("Placeholder", [], [(2, -1)], shape=(2, -1)),
    case("Placeholder", [], [()], shape=()),
    case("PlaceholderV2", [], [None], shape=None),
    case("ImmutableConst", [], [(4, 5)], shape=(4, 5), memory_region_name="x"),
]


def test_placeholder_default_is_used_without_a_feed() -> None:
    graph = Graph([c("a", 1.0), n("y", "PlaceholderWithDefault", "a", dtype=np.float32)])
    assert Interpreter(graph).run(["y"], {})[0].tolist() == 1
    assert Interpreter(graph).run(["y"], {"y": f32(5)})[0].tolist() == 5


@pytest.mark.parametrize(("producer", "shape"), [(21, None), (22, ())])
def test_empty_placeholder_shape_is_unknown_in_old_graphs(
    producer: int, shape: tuple[int, ...] | None
) -> None:
    """As in the shape function of ``Placeholder`` in TensorFlow's array_ops.cc."""
    empty = n("x", "Placeholder", dtype=np.float32, shape=attr.shape(()))
    shaped = n("y", "Placeholder", dtype=np.float32, shape=attr.shape((2,)))
    inferred = infer_shapes(Graph([empty, shaped], versions=Versions(producer)))
    assert (inferred["x"][0], inferred["y"][0]) == (shape, (2,))


def test_empty_variable_shape_is_unknown() -> None:
    shapes = {"": (), "2": (2,)}
    nodes = [
        n(f"v{name}", "Variable", dtype=np.float32, shape=attr.shape(shape))
        for name, shape in shapes.items()
    ]
    inferred = infer_shapes(Graph(nodes, versions=Versions(1000)))
    assert (inferred["v"][0], inferred["v2"][0]) == (None, (2,))


OP_CASES += [
    case("BroadcastTo", [(3,), [2, 3]], [(2, 3)]),
    case("BroadcastTo", [(3,), Partly((-1, 3))], [(-1, 3)]),
    case("BroadcastArgs", [(2,), (3,)], [(3,)]),
    case("BroadcastArgs", [(4,), (3,)], [(4,)]),
    case("BroadcastArgs", [(4,), (-1,)], [(-1,)]),
    refused("BroadcastArgs", [(4,), (1, 3)]),
    case("BroadcastGradientArgs", [(4,), (3,)], [(-1,), (-1,)]),
    case("BroadcastArgs", [(0,), (3,)], [(3,)]),
]


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


OP_CASES += [
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


test_shapes_and_costs = case_tests(OP_CASES)
