"""Operators of five and more dimensions in forms that old runtimes support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.litert.convert import Mode, converted
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import Integers
from mobileprep.litert.ranks import MAX_RANKS
from mobileprep.litert.refusals import InexpressibleError
from tests.litert.graphs import answered, codes, const, expected, feed, model, op
from tests.litert.one_op import check_graph, compare, integers, numbers, one_node, run_both

_SIX: Final = (2, 3, 2, 4, 3, 2)
_SLICE: Final = (np.int32([0, 1, 0, 1, 0, 0]), np.int32([2, 3, 2, 3, 3, 1]))
_PADS: Final = np.int32([[1, 0], [0, 1], [0, 0], [2, 0], [0, 0], [1, 1]])


def run(
    kind: str,
    arrays: Sequence[Any],
    constant: Sequence[int] = (),
    open_sizes: Mapping[int, Sequence[int]] | None = None,
    **attrs: Any,
) -> list[str]:
    """Convert one node, check its ranks and results, and return the operators."""
    graph, feeds = one_node(kind, arrays, constant, open_sizes, **attrs)
    record = check_graph(graph, feeds)
    check_ranks(record)
    return codes(record)


def check_ranks(record: ModelRecord) -> None:
    """Require at most ``MAX_RANKS`` dimensions, unless all shapes are equal."""
    (subgraph,) = record.subgraphs
    for operator in subgraph.operators:
        code = operator.code.builtin
        shapes = [
            subgraph.tensors[i].signature or subgraph.tensors[i].shape
            for i in (*operator.inputs, *operator.outputs)
        ]
        if code in MAX_RANKS and len(set(shapes)) > 1:
            assert max(map(len, shapes)) <= MAX_RANKS[code], (code, shapes)


_TWO: Final = (
    *("FloorDiv", "FloorMod", "Maximum", "Minimum", "Sub", "Mul", "AddV2", "SquaredDifference"),
    *("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"),
)
_SHAPES: Final = {
    "number": (_SIX, (1,)),
    "channels": (_SIX, (2,)),
    "norm": ((2, 3, 4, 2, 3), (2, 1, 1, 2, 1)),
    "alternating": (_SIX, (1, 3, 1, 4, 1, 2)),
    "both": ((2, 1, 2, 1, 3, 2), (1, 3, 1, 4, 1, 2)),
    "eight": ((2, 1, 2, 1, 3, 1, 2, 2), (1, 3, 1, 2, 1, 2, 2, 1)),
}


@pytest.mark.parametrize("form", _SHAPES)
@pytest.mark.parametrize("kind", _TWO)
def test_integer_broadcast_uses_supported_ranks(kind: str, form: str) -> None:
    a, b = _SHAPES[form]
    run(kind, [integers(*a), integers(*b, low=1)])


@pytest.mark.parametrize("form", _SHAPES)
@pytest.mark.parametrize("kind", ["Pow", "RealDiv", "Greater", "SquaredDifference", "AddV2"])
def test_float_broadcast_uses_supported_ranks(kind: str, form: str) -> None:
    a, b = _SHAPES[form]
    run(kind, [abs(numbers(*a)) + 1, numbers(*b)])


@pytest.mark.parametrize("form", _SHAPES)
def test_select_and_logic_broadcast_uses_supported_ranks(form: str) -> None:
    a, b = _SHAPES[form]
    run("LogicalAnd", [numbers(*a) > 0, numbers(*b) > 0])
    run("SelectV2", [numbers(*b) > 0, numbers(*a), numbers(*b)])
    run("BitwiseXor", [integers(*a), integers(*b, low=0)])


def test_merged_dimensions_need_no_broadcast() -> None:
    a, b = _SHAPES["norm"]
    assert run("Greater", [numbers(*a), numbers(*b)]) == [
        *("RESHAPE", "RESHAPE", "GREATER", "RESHAPE")
    ]


@pytest.mark.parametrize("sizes", [(0,), (0, 1, 2), (1, 3)])
def test_open_sizes(sizes: Sequence[int]) -> None:
    run("Greater", [numbers(2, 3, 4, 2, 3), numbers(1, 3, 1, 2, 1)], (1,), {0: sizes})
    both = {0: sizes, 1: sizes}
    run("Greater", [numbers(2, 3, 4, 2, 3), numbers(2, 3, 1, 2, 3)], (), both)


def test_slices_and_pads() -> None:
    run("StridedSlice", [numbers(*_SIX), *_SLICE, np.int32([1, 1, 1, 2, 1, 1])], (1, 2, 3))
    reverse = (
        np.int32([0, 0, 1, 3, 2, 1]),
        np.int32([2, 3, 0, -5, 0, -9]),
        np.int32([1, 1, *[-1] * 4]),
    )
    run("StridedSlice", [numbers(*_SIX), *reverse], (1, 2, 3), end_mask=32)
    run(
        "StridedSlice", [numbers(*_SIX), *_SLICE, np.int32([1] * 6)], (1, 2, 3), shrink_axis_mask=36
    )
    run(
        "Slice",
        [numbers(*_SIX), np.int32([0, 1, 0, 1, 0, 1]), np.int32([-1, 2, 1, 2, 3, -1])],
        (1, 2),
    )
    run("Pad", [numbers(*_SIX), _PADS], (1,))
    run("PadV2", [numbers(*_SIX), np.int32([[1, 2]] * 6), np.float32(7)], (1, 2))
    run("Pad", [numbers(*_SIX), _PADS], (1,), {0: (0,)})


def test_matmul_and_transpose() -> None:
    run("BatchMatMulV2", [numbers(2, 3, 2, 2, 3, 4), numbers(2, 3, 2, 2, 4, 5)])
    run("BatchMatMulV2", [numbers(2, 3, 2, 2, 3, 4), numbers(2, 1, 2, 1, 4, 5)])
    run("BatchMatMulV2", [numbers(2, 1, 2, 1, 3, 4), numbers(1, 3, 1, 2, 5, 4)], adj_y=True)
    run("BatchMatMulV2", [numbers(2, 3, 2, 2, 3, 4), numbers(2, 4, 5)], (), {0: (0,)})
    run("Transpose", [numbers(2, 3, 2, 1, 3, 2, 2), np.int32([0, 2, 1, 3, 5, 6, 4])], (1,))
    run("Transpose", [numbers(2, 3, 2, 3, 2, 2, 3, 2), np.int32([7, 5, 3, 1, 6, 4, 2, 0])], (1,))
    run(
        "Transpose",
        [numbers(2, 3, 2, 3, 2, 2, 3), np.int32([4, 5, 0, 1, 6, 2, 3])],
        (1,),
        {0: (0,)},
    )


def test_seven_dimensions() -> None:
    """XNNPACK fails to prepare these in more than six dimensions."""
    x, last = numbers(2, 3, 2, 2, 3, 2, 2), numbers(2, 3)
    for kind in ("Mean", "Sum", "Max", "Min"):
        assert "RESHAPE" in run(kind, [x, np.int32([1, 2, -1])], (1,))
        run(kind, [x, np.int32([0, 4])], (1,), keep_dims=True)
    assert run("ConcatV2", [x, x, np.int32(-2)], (2,), N=2)[-1] == "RESHAPE"
    run("ConcatV2", [x, x, np.int32(0)], (2,), {0: (0,), 1: (0,)}, N=2)
    run("Split", [np.int32(4), x], (0,), num_split=3)
    run("BatchMatMulV2", [x, last], (1,))
    for kind in ("Relu", "Abs", "Tanh"):
        assert run(kind, [x], (), {0: (0,)})[0] == "RESHAPE"
    assert run("Maximum", [x, -x])[0] == "RESHAPE"


def test_no_reshape_between_merged_operators() -> None:
    """Operators of the same merged shape follow each other without a RESHAPE between."""
    x, c = numbers(2, 3, 4, 2, 3), numbers(2, 1, 1, 2, 1)
    nodes = [feed("x", x.shape), const("c", c), const("d", c + 1)]
    nodes += [op("s", "SquaredDifference", ["x", "c"]), op("y", "SquaredDifference", ["s", "d"])]
    record = check_graph(Graph(nodes), {"x": x})
    assert codes(record) == ["RESHAPE", "SQUARED_DIFFERENCE", "SQUARED_DIFFERENCE", "RESHAPE"]


def test_min_runtime_names_node_form_and_release() -> None:
    nodes = [feed("x", (2, 3, 4), DType.BOOL), const("at", np.int32([[0, 1]]))]
    graph = Graph([*nodes, op("y", "GatherNd", ["x", "at"])])
    specs = [CutInput("x")]
    assert _declared(converted(graph, specs, ["y"])) == "2.16.0"
    converted(graph, specs, ["y"], min_runtime="2.16")
    with pytest.raises(InexpressibleError) as caught:
        converted(graph, specs, ["y"], min_runtime="2.14", where="m.pb")
    assert caught.value.message == (
        "GatherNd 'y': GATHER_ND of bool[2, 3, 4], int32[1, 2] requires LiteRT's kernels of "
        "2.16.0, and `min_runtime` is 2.14"
    )
    assert caught.value.hint == "set `min_runtime` to 2.16.0, or replace the node"


def test_declared_release_covers_dimensions() -> None:
    """Operators of five dimensions were measured from 2.14 on."""
    for kind, release in (("Sub", "2.14.0"), ("Less", "1.14.0")):
        arrays = [numbers(2, 3, 4, 2, 3), numbers(3, 1, 1, 3)]
        graph, feeds = one_node(kind, arrays, constant=[1])
        assert _declared(model(graph, list(feeds), ["y"])) == release


def test_computed_slices_of_many_dimensions_need_a_new_release() -> None:
    nodes = [feed("x", _SIX), feed("b", (6,), DType.INT32), feed("e", (6,), DType.INT32)]
    nodes += [const("s", np.int32([1] * 6)), op("y", "StridedSlice", ["x", "b", "e", "s"])]
    assert _declared(model(Graph(nodes), ["x", "b", "e"], ["y"])) == "2.23.0"
    nodes = [feed("x", _SIX), feed("p", (6, 2), DType.INT32), op("y", "Pad", ["x", "p"])]
    with pytest.raises(InexpressibleError, match="PAD takes 5 dimensions at most"):
        model(Graph(nodes), ["x", "p"], ["y"])


def _declared(record: ModelRecord) -> str:
    return dict(record.metadata)["min_runtime_version"].rstrip(b"\0").decode()


@pytest.mark.parametrize("mode", ["weights", "int8", "int16x8"])
def test_per_channel_dense_layers_are_convolutions_in_old_releases(mode: Mode) -> None:
    x, w, b = (
        numbers(5, 40),
        numbers(40, 60) * np.linspace(0.1, 9, 60, dtype=np.float32),
        numbers(60),
    )
    nodes = [feed("x", (-1, 40)), const("w", w), const("b", b), op("m", "MatMul", ["x", "w"])]
    nodes += [op("a", "BiasAdd", ["m", "b"]), op("y", "Relu", ["a"])]
    graph, specs = Graph(nodes), [CutInput("x")]
    settings = None
    if mode != "weights":
        kind = DType.INT8 if mode == "int8" else DType.INT16
        settings = Integers(kind, {"x": (-4, 4), "y": (0, 400), "a": (-400, 400), "m": (-400, 400)})
    files = [
        converted(graph, specs, ["y"], mode=mode, integers=settings, min_runtime=runtime)
        for runtime in ("", "2.14")
    ]
    assert _declared(files[0]) == "2.17.0"
    assert "CONV_2D" in codes(files[1])
    assert "FULLY_CONNECTED" not in codes(files[1])
    assert len(model_bytes(files[1])) < 1.2 * len(model_bytes(files[0]))
    first, second = (answered(model_bytes(file), [x])[0] for file in files)
    np.testing.assert_allclose(second, first, rtol=0, atol=0.02 * np.abs(first).max())


def test_softmax_of_int16_works_on_rows() -> None:
    graph = Graph([feed("x", (2, 3, 2, 2, 4)), op("y", "Softmax", ["x"])])
    integers = Integers(DType.INT16, {"x": (-4, 4), "y": (0, 1)})
    file = converted(graph, [CutInput("x")], ["y"], mode="int16x8", integers=integers)
    check_ranks(file)
    result, reference = run_both(file, graph, {"x": numbers(2, 3, 2, 2, 4)})
    np.testing.assert_allclose(result, reference, atol=1e-3)


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
@pytest.mark.parametrize("kind", ["Mul", "Sub", "AddV2", "Maximum"])
def test_integers_keep_their_scales_in_merged_dimensions(kind: str, mode: Mode) -> None:
    a, b = _SHAPES["both"]
    nodes = [feed("x", a), feed("z", b), op("y", kind, ["x", "z"])]
    ranges = {"x": (-4, 4), "z": (-4, 4), "y": (-16, 16) if kind == "Mul" else (-8, 8)}
    integers = Integers(DType.INT8 if mode == "int8" else DType.INT16, ranges)
    specs = [CutInput("x"), CutInput("z")]
    file = converted(Graph(nodes), specs, ["y"], mode=mode, integers=integers)
    check_ranks(file)
    feeds = {"x": numbers(*a).clip(-3, 3), "z": numbers(*b, seed=5).clip(-3, 3)}
    result, reference = run_both(file, Graph(nodes), feeds)
    # Half a step of each input (three times in a product), and one step of the output.
    steps = 255 if mode == "int8" else 65534
    inputs, output = (3 * 8, 32) if kind == "Mul" else (8, 16)
    np.testing.assert_allclose(result, reference, rtol=0, atol=(inputs + output) / steps)


def test_shared_tensor_is_not_overwritten() -> None:
    """LiteRT divides in the memory that a RESHAPE shares with its input."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    x, outputs = abs(numbers(1, 2, 1, 1, 1, 2)) + 1, ["z:1", "y"]
    nodes = [feed("x", x.shape), const("half", np.float32(0.5)), op("q", "Square", ["x"])]
    nodes += [op("s", "AddV2", ["q", "half"]), op("y", "Reciprocal", ["s"])]
    nodes += [const("sizes", np.int32([1, 1])), const("axis", np.int32(-5))]
    nodes += [op("z", "SplitV", ["s", "sizes", "axis"], num_split=2)]
    graph = Graph(nodes)
    content = bytes(model_bytes(model(graph, ["x"], outputs)))
    plain = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = litert.Interpreter(model_content=content, experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    results = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    compare(results, expected(graph, {"x": x}, outputs), 2e-6)
