"""Shape inference of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import NEWEST, TF115, op_names
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.shape_function import (
    ShapeConflictError,
    broadcast,
    common,
    concatenate,
    divide_dim,
    element_count,
    is_full,
    merge,
    multiply_dims,
    shape_fn_names,
    with_rank,
)
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.transforms.tf115 import Tf115Values
from tests.ops.graphs import f32, i32, run, run_all

VERSIONS = Versions(producer=100)
F, INT = DType.FLOAT, DType.INT32


def _attr(value):
    if isinstance(value, AttrValue):
        return value
    if isinstance(value, bool):
        return attr.boolean(value)
    if isinstance(value, int) and not isinstance(value, DType):
        return attr.integer(value)
    if isinstance(value, DType):
        return attr.dtype(value)
    return attr.string(value) if isinstance(value, str) else attr.integers(*value)


def node(name, op, inputs="", **attrs):
    kinds = {k: _attr(v) for k, v in {"T": F, **attrs}.items()}
    return Node(name, op, tuple(parse_ref(i) for i in inputs.split()), attrs=kinds)


def fed(name, shape, kind=F):
    return Node(name, "Placeholder", attrs={"dtype": attr.dtype(kind), "shape": attr.shape(shape)})


def const(name, values, kind=np.int32):
    return constant(name, Tensor.of(np.asarray(values, kind)))


def shapes(*nodes, **kwargs):
    return infer_shapes(Graph(nodes, versions=VERSIONS), **kwargs)


def shape(*nodes, **kwargs):
    """The shape of the last node's first output."""
    return shapes(*nodes, **kwargs)[nodes[-1].name][0]


CONV = {"strides": (1, 2, 2, 1), "padding": "SAME"}
VALID = {"strides": (1, 2, 2, 1), "padding": "VALID"}
NCHW = {"strides": (1, 1, 2, 2), "padding": "VALID", "data_format": "NCHW"}
POOL = {"ksize": (1, 3, 3, 1), **VALID}

# The op, its inputs (a shape to feed, or constant integers in a list), attributes, result.
CASES = [
    ("Relu", [(2, -1)], {}, (2, -1)),
    ("Add", [(2, 1, -1), (3, 4)], {}, (2, 3, 4)),
    ("Add", [(-1,), (1,)], {}, (-1,)),
    ("Add", [(-1,), (5,)], {}, (5,)),
    ("Add", [(2,), None], {}, None),
    ("BiasAdd", [(-1, 4, 4, -1), (8,)], {}, (-1, 4, 4, 8)),
    ("BiasAdd", [(-1, -1, 4, 4), (8,)], {"data_format": "NCHW"}, (-1, 8, 4, 4)),
    ("Select", [(3,), (3, 4), (3, -1)], {}, (3, 4)),
    ("AddN", [(-1, 3), (2, -1)], {"N": 2}, (2, 3)),
    ("Mean", [(2, 3, 4), [1, 2]], {}, (2,)),
    ("Mean", [(2, 3, 4), [-1]], {"keep_dims": True}, (2, 3, 1)),
    ("ArgMax", [(2, 3, 4), 1], {}, (2, 4)),
    ("TopKV2", [(2, 9), 3], {}, (2, 3)),
    ("Reshape", [(2, 3, 4), [4, -1]], {}, (4, 6)),
    ("Reshape", [(-1, 3), [-1, 6]], {}, (-1, 6)),
    ("Reshape", [None, [2, 3]], {}, (2, 3)),
    ("ExpandDims", [(2, 3), -1], {}, (2, 3, 1)),
    ("Squeeze", [(1, 2, 1)], {}, (2,)),
    ("Squeeze", [(1, -1, 1)], {}, None),
    ("Squeeze", [(1, -1, 1)], {"squeeze_dims": (0, 2)}, (-1,)),
    ("Transpose", [(2, 3, 4), [2, 0, 1]], {}, (4, 2, 3)),
    ("Fill", [[2, 3], ()], {}, (2, 3)),
    ("Range", [2, 11, 3], {}, (3,)),
    ("OneHot", [(4,), 7, (), ()], {"axis": -1}, (4, 7)),
    ("Pack", [(2,), (-1,)], {"N": 2, "axis": 1}, (2, 2)),
    ("Unpack", [(3, 4)], {"num": 4, "axis": 1}, (3,)),
    ("ConcatV2", [(2, 3), (2, 4), -1], {"N": 2}, (2, 7)),
    ("ConcatV2", [(2, 3), (-1, -1), 1], {"N": 2}, (2, -1)),
    ("ConcatV2", [None, (2, 3), 0], {"N": 2}, (-1, 3)),
    ("Split", [1, (2, 6)], {"num_split": 3}, (2, 2)),
    ("SplitV", [(2, 6), [4, -1], 1], {"num_split": 2}, (2, 4)),
    ("Slice", [(5, 6), [1, 2], [2, -1]], {}, (2, 4)),
    ("Gather", [(5, 6), (2, 3)], {}, (2, 3, 6)),
    ("GatherV2", [(5, 6), (2, 3), 1], {}, (5, 2, 3)),
    ("GatherNd", [(5, 6, 7), (4, 2)], {}, (4, 7)),
    ("Tile", [(2, -1), [3, 4]], {}, (6, -1)),
    ("Pad", [(2, 3), [[1, 1], [0, 2]]], {}, (4, 5)),
    ("Where", [(2, 3)], {}, (-1, 2)),
    ("SpaceToDepth", [(1, 4, 6, 3)], {"block_size": 2}, (1, 2, 3, 12)),
    ("DepthToSpace", [(1, 2, 3, 12)], {"block_size": 2}, (1, 4, 6, 3)),
    ("SpaceToBatchND", [(1, 4, 5, 3), [2, 2], [[0, 0], [0, 1]]], {}, (4, 2, 3, 3)),
    ("BatchToSpaceND", [(4, 2, 3, 3), [2, 2], [[0, 0], [0, 1]]], {}, (1, 4, 5, 3)),
    ("StridedSlice", [(9, 8), [1, 0], [7, 0], [2, 1]], {"end_mask": 2}, (3, 8)),
    ("StridedSlice", [(9, 8), [-1], [0], [1]], {"shrink_axis_mask": 1}, (8,)),
    ("StridedSlice", [(9, 8), [0, 0], [0, 3], [1, 1]], {"ellipsis_mask": 1}, (9, 3)),
    ("StridedSlice", [(9, 8), [0, 0], [0, 3], [1, 1]], {"new_axis_mask": 1}, (1, 3, 8)),
    ("StridedSlice", [(9,), [8], [0], [-3]], {"end_mask": 1}, (3,)),
    ("MatMul", [(2, 3), (5, 3)], {"transpose_b": True}, (2, 5)),
    ("BatchMatMulV2", [(4, 1, 2, 3), (7, 3, 5)], {}, (4, 7, 2, 5)),
    ("Conv2D", [(-1, 9, 9, 3), (3, 3, 3, 8)], CONV, (-1, 5, 5, 8)),
    ("Conv2D", [(-1, 9, 8, 3), (3, 3, 3, 8)], VALID, (-1, 4, 3, 8)),
    ("Conv2D", [(1, 3, 9, 9), (3, 3, 3, 8)], NCHW, (1, 8, 4, 4)),
    ("Conv2D", [(1, 9, 9, 3), (3, 3, 3, 8)], {**VALID, "dilations": (1, 2, 2, 1)}, (1, 3, 3, 8)),
    ("DepthwiseConv2dNative", [(1, 9, 9, 3), (3, 3, 3, 2)], CONV, (1, 5, 5, 6)),
    ("Conv2DBackpropInput", [[1, 9, 9, 3], (3, 3, 3, 8), (1, 5, 5, 8)], CONV, (1, 9, 9, 3)),
    ("MaxPool", [(1, 9, -1, 3)], POOL, (1, 4, -1, 3)),
    ("FusedBatchNorm", [(1, 4, 4, -1), (8,), (8,), (8,), (8,)], {}, (1, 4, 4, 8)),
    ("ResizeBilinear", [(1, 4, 4, 3), [7, 8]], {}, (1, 7, 8, 3)),
    ("CropAndResize", [(1, 4, 4, 3), (5, 4), (5,), [7, 8]], {}, (5, 7, 8, 3)),
    ("Softmax", [(2, 10)], {}, (2, 10)),
    ("QuantizedMatMul", [(2, 3), (3, 4), (), (), (), ()], {}, (2, 4)),
    ("RFFT", [(2, 64), [64]], {}, (2, 33)),
    ("Mfcc", [(1, 98, 513), ()], {}, (1, 98, 13)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[1]}")
def test_output_shape(case):
    op, inputs, attrs, expected = case
    nodes = [
        const(f"i{i}", spec) if isinstance(spec, list | int) else fed(f"i{i}", spec)
        for i, spec in enumerate(inputs)
    ]
    names = " ".join(n.name for n in nodes)
    assert shape(*nodes, node("out", op, names, **attrs)) == expected


def test_all_outputs_have_shapes():
    result = shapes(
        fed("x", (4, 5, 5, 8)),
        *(fed(f"v{i}", (8,)) for i in range(4)),
        node("n", "FusedBatchNormV3", "x v0 v1 v2 v3", U=F),
    )
    assert result["n"] == ((4, 5, 5, 8), (8,), (8,), (8,), (8,), None)


def test_invalid_inputs_have_unknown_outputs():
    assert shape(fed("a", (2, 3)), fed("b", (4, 5)), node("n", "MatMul", "a b")) is None


@pytest.mark.parametrize("op", shape_fn_names())
def test_shape_functions_accept_incomplete_nodes(op):
    custom = [
        "TFLite_Detection_PostProcess",
        "UnidirectionalSequenceLSTM",
        "UnidirectionalSequenceRNN",
    ]  # LiteRT defines them
    libraries = ["GatherTree", "Addons>GatherTree"]
    assert op in (*op_names(TF115), *op_names(NEWEST), *custom, *libraries)
    result = infer_shapes(Graph([Node("n", op)]))["n"]
    assert all(shape is None or min(shape, default=0) >= -1 for shape in result)


def test_unknown_op_has_unknown_shapes():
    result = shapes(Node("n", "MyOwnOp"), node("r", "Relu", "n"))
    assert result == {"n": (), "r": (None,)}


def test_missing_input_is_an_error():
    with pytest.raises(InvalidGraphError, match="gone"):
        shapes(node("n", "Relu", "gone"))


def test_fed_shape_overrides_the_graph():
    nodes = [fed("x", (-1, 4)), node("n", "Relu", "x")]
    assert shape(*nodes, feeds={"x": (7, 4)}) == (7, 4)
    assert shape(*nodes, feeds={"n:0": (1,)}) == (1,)


def test_fed_constant_has_unknown_value():
    nodes = [fed("x", (2, 6)), const("to", [3, 4]), node("n", "Reshape", "x to")]
    assert shape(*nodes, feeds={"to": (2,)}) == (-1, -1)


def test_scalar_placeholder_of_an_old_graph_has_unknown_shape():
    x = fed("x", ())
    assert infer_shapes(Graph([x], versions=Versions(producer=21)))["x"] == (None,)
    assert infer_shapes(Graph([x], versions=Versions(producer=22)))["x"] == ((),)


def _strided(name, source, begin, end, **attrs):
    bounds = [const(f"{name}/{i}", [v]) for i, v in enumerate((begin, end, 1))]
    names = " ".join(n.name for n in bounds)
    return [*bounds, node(name, "StridedSlice", f"{source} {names}", T=INT, Index=INT, **attrs)]


def _shape_of(source):
    return node("s", "Shape", source, out_type=INT)


def test_shape_values_pass_through_slice_and_pack():
    result = shape(
        fed("x", (-1, 4, 6)),
        _shape_of("x"),
        *_strided("batch", "s", 0, 1, shrink_axis_mask=1),
        *_strided("width", "s", 2, 3, shrink_axis_mask=1),
        const("five", 5),
        node("to", "Pack", "batch five width", T=INT, N=3, axis=0),
        fed("y", None),
        node("n", "Reshape", "y to"),
    )
    assert result == (-1, 5, 6)


def test_shape_values_pass_through_arithmetic():
    result = shape(
        fed("x", (3, 4)),
        _shape_of("x"),
        *_strided("a", "s", 0, 1),
        *_strided("b", "s", 1, 2),
        node("to", "Mul", "a b", T=INT),
        fed("y", None),
        node("n", "Reshape", "y to"),
    )
    assert result == (12,)


def test_fed_value_is_unknown():
    result = shape(fed("x", (2, 6)), fed("to", (3,), INT), node("n", "Reshape", "x to"))
    assert result == (-1, -1, -1)


def test_tf115_does_not_use_a_shape_value_twice():
    nodes = [
        fed("x", (3, 4)),
        _shape_of("x"),
        node("to", "Maximum", "s s", T=INT),
        fed("y", None),
        node("n", "Reshape", "y to"),
    ]
    assert shape(*nodes) == (3, 4)
    assert shape(*nodes, values=Tf115Values) == (-1, -1)


def test_tf115_does_not_slice_partially_known_shapes():
    nodes = [
        fed("x", (-1, 4)),
        _shape_of("x"),
        *_strided("width", "s", 1, 2, shrink_axis_mask=1),
        node("to", "Pack", "width", T=INT, N=1, axis=0),
        fed("y", None),
        node("n", "Reshape", "y to"),
    ]
    assert shape(*nodes) == (4,)
    assert shape(*nodes, values=Tf115Values) == (-1,)


def test_recorded_shapes_are_optional():
    recorded = AttrValue("list(shape)", ((3, 4),))
    x = node("x", "Identity", "y", _output_shapes=recorded)
    assert shape(fed("y", (-1, 4)), x) == (-1, 4)
    assert shape(fed("y", (-1, 4)), x, recorded=True) == (3, 4)
    assert shape(fed("y", (-1, 5)), x, recorded=True) == (-1, 5)


def test_loop_variables_have_unknown_shapes():
    result = shapes(
        fed("x", (2, 3)),
        node("enter", "Enter", "x"),
        node("turn", "Merge", "enter next", N=2),
        node("next", "NextIteration", "turn"),
        node("fixed", "Enter", "x", is_constant=True),
    )
    assert result["turn"] == (None, ())
    assert result["fixed"] == ((2, 3),)


def test_merge_keeps_common_sizes():
    result = shapes(
        fed("x", (2, 3)),
        fed("y", (2, 4)),
        fed("p", (), DType.BOOL),
        node("s", "Switch", "x p"),
        node("m", "Merge", "s y", N=2),
    )
    assert result["s"] == ((2, 3), (2, 3))
    assert result["m"][0] == (2, -1)


def test_read_variable_has_the_variable_shape():
    handle = Node("v", "VarHandleOp", attrs={"shape": attr.shape((3, 4)), "dtype": attr.dtype(F)})
    read = node("read", "ReadVariableOp", "same", dtype=F)
    assert shape(handle, node("same", "Identity", "v", T=DType.RESOURCE), read) == (3, 4)


def test_tensor_array_read_has_the_element_shape():
    array = {
        "dtype": attr.dtype(F),
        "element_shape": attr.shape((5,)),
        "identical_element_shapes": attr.boolean(True),
    }
    nodes = [
        const("size", 3),
        Node("a", "TensorArrayV3", (parse_ref("size"),), attrs=array),
        const("at", 0),
        node("out", "TensorArrayReadV3", "a at a:1", dtype=F),
    ]
    assert shape(*nodes) == (5,)


def test_huge_range_is_not_allocated():
    result = shape(const("a", 0), const("b", 2**31 - 1), const("c", 1), node("n", "Range", "a b c"))
    assert result == (2**31 - 1,)


@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        ("SpaceToBatchND", "x sizes texts", (2, -1)),
        ("Pad", "x pairs", (-1, -1)),
        ("Range", "texts texts texts", (-1,)),
    ],
)
def test_strings_instead_of_numbers_are_accepted(op, inputs, expected):
    constants = [
        const("texts", [b"a"], object),
        const("pairs", [[b"a", b"b"]] * 2, object),
        const("sizes", [2]),
    ]
    assert shape(fed("x", (1, 4)), *constants, node("out", op, inputs)) == expected


def test_value_passes_through_a_long_chain():
    chain = [
        const("n0", [2, 3]),
        *(node(f"n{i}", "Identity", f"n{i - 1}", T=INT) for i in range(1, 5000)),
    ]
    assert shape(*chain, fed("x", None), node("r", "Reshape", "x n4999")) == (2, 3)


def test_huge_output_count_is_not_listed():
    split = node("s", "Split", "axis x", num_split=1 << 62)
    nodes = [fed("x", (4,)), constant("axis", Tensor.of(np.int32(0))), split]
    assert infer_shapes(Graph(nodes))["s"] == ()


def test_full_shape_has_no_unknown_sizes():
    assert is_full(())
    assert is_full((0, 3))
    assert not is_full((2, -1))
    assert not is_full(None)


def test_element_count_needs_known_sizes():
    assert element_count((2, 0, 3)) == 0
    assert element_count(()) == 1
    assert element_count((2, -1)) == -1


def test_merge_combines_known_sizes():
    assert merge((2, -1), (-1, 3)) == (2, 3)
    assert merge(None, (1,)) == (1,)


@pytest.mark.parametrize(("a", "b"), [((2,), (3,)), ((2,), (2, 2))])
def test_merging_different_shapes_is_a_conflict(a, b):
    with pytest.raises(ShapeConflictError):
        merge(a, b)


def test_broadcast_aligns_last_dimensions():
    assert broadcast((4, 1), (3,)) == (4, 3)
    assert broadcast((-1,), (1,)) == (-1,)
    assert broadcast((-1,), (2,)) == (2,)
    assert broadcast(None, (2,)) is None
    with pytest.raises(ShapeConflictError):
        broadcast((2,), (3,))


def test_common_shape_keeps_equal_sizes():
    assert common([(2, 3), (2, 4)]) == (2, -1)
    assert common([(2,), (2, 2)]) is None


def test_arithmetic_with_unknown_sizes():
    assert multiply_dims(-1, 3) == -1
    assert multiply_dims(-1, 0) == 0
    assert divide_dim(-1, 3) == -1
    assert concatenate((1,), None) is None


def test_uneven_division_is_a_conflict():
    assert divide_dim(7, 2, evenly=False) == 3
    with pytest.raises(ShapeConflictError):
        divide_dim(7, 2)


def test_with_rank_checks_or_sets_the_rank():
    assert with_rank(None, 2) == (-1, -1)
    with pytest.raises(ShapeConflictError, match="rank 2"):
        with_rank((1,), 2)
    with pytest.raises(ShapeConflictError, match="no tensor has 9223372036854775807 dimensions"):
        with_rank(None, (1 << 63) - 1)


WINDOW: dict[str, Any] = {"ksize": [1, 1, 1, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
TYPE_ATTRIBUTES_CASES: dict[str, tuple[tuple[Any, ...], str]] = {
    "Shape": ((f32([1, 2]),), "out_type"),
    "UniqueV2": ((i32([1, 2]), i32([0])), "out_idx"),
    "TopKV2": ((f32([1, 2]), i32(1)), "index_type"),
    "ArgMax": ((f32([1, 2]), i32(0)), "output_type"),
    "BatchMatMulV3": ((f32([[1]]), f32([[1]])), "Tout"),
    "MaxPoolWithArgmax": ((np.ones((1, 1, 1, 1), np.float32),), "Targmax"),
    "Multinomial": ((f32([[1, 2]]), i32(1)), "output_dtype"),
}


@pytest.mark.parametrize("op", TYPE_ATTRIBUTES_CASES)
def test_invalid_type_attribute_is_refused(op: str) -> None:
    inputs, name = TYPE_ATTRIBUTES_CASES[op]
    more = WINDOW if op == "MaxPoolWithArgmax" else {}
    with pytest.raises(InvalidGraphError, match=name):
        run_all(op, *inputs, **more, **{name: attr.boolean(True)})


def test_unsupported_numpy_type_uses_the_default() -> None:
    assert run("Shape", f32([1, 2]), out_type=np.object_).dtype == np.int32
