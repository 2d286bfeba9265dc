"""downgrade: older ops that do the same, and what is told of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, OpDef
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_function_ref
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown

EXAMPLE_NODES = [node("newer", "AddV2", "x x")]


def graph_of(*nodes: Node, versions: Versions | None = None) -> Graph:
    return Graph([placeholder(), *nodes], versions=versions)


def op_after(*nodes: Node, name: str = "out") -> Node:
    return apply("downgrade", graph_of(*nodes)).graph[name]


def reasons(*nodes: Node) -> list[str]:
    return [text.partition(": ")[0] for text in apply("downgrade", graph_of(*nodes)).skipped]


def norm(**attrs: object) -> list[Node]:
    ends = [const(n, normal(3)) for n in ("scale", "offset", "mean")]
    variance = const("variance", np.abs(normal(3)) + 1)
    shaped = Node("images", "Reshape", node("", "", "x shape").inputs, attrs={
        "T": attr.dtype(DType.FLOAT), "Tshape": attr.dtype(DType.INT32)})  # fmt: skip
    given = {"is_training": False, "U": DType.FLOAT, "epsilon": 0.01, **attrs}
    inputs = "images scale offset mean variance"
    return [
        const("shape", [1, 2, 1, 3], np.int32), shaped, *ends, variance,
        node("out", "FusedBatchNormV3", inputs, **given),
    ]  # fmt: skip


def test_sums_become_add() -> None:
    graph = graph_of(node("out", "AddV2", "x x"))
    result = apply("downgrade", graph)
    assert (result.matched, result.graph["out"].op) == (1, "Add")
    np.testing.assert_array_equal(run(result.graph, normal(2, 3)), run(graph, normal(2, 3)))


def test_string_joins_do_not_change() -> None:
    text = const("t", [b"a"], object)
    graph = graph_of(text, node("out", "AddV2", "t t", T=DType.STRING))
    result = apply("downgrade", graph)
    assert result.graph is graph
    assert list(result.skipped) == [
        "AddV2: its types differ from each other, or the older op does not take them"
    ]


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_norms_for_inference_become_those_of_the_first_version(factor: float) -> None:
    nodes = norm(exponential_avg_factor=factor)
    out = op_after(*nodes)
    assert out.op == "FusedBatchNorm"
    assert {"U", "exponential_avg_factor"}.isdisjoint(out.attrs)
    x = normal(2, 3)
    np.testing.assert_array_equal(
        run(apply("downgrade", graph_of(*nodes)).graph, x), run(graph_of(*nodes), x)
    )


def test_norms_of_halves_become_those_of_the_second_version() -> None:
    assert op_after(*norm(T=DType.HALF)).op == "FusedBatchNormV2"


@pytest.mark.parametrize(
    "nodes",
    [
        norm(is_training=True, exponential_avg_factor=0.5),
        norm(data_format="NDHWC"),
        [*norm(), node("later", "Identity", "out:5")],
    ],
)
def test_norms_that_the_older_op_cannot_be_stay(nodes: list[Node]) -> None:
    assert op_after(*nodes).op == "FusedBatchNormV3"
    assert reasons(*nodes) == ["FusedBatchNormV3"]


def products(a: tuple[int, ...], b: tuple[int, ...], op: str, **attrs: object) -> list[Node]:
    return [const("a", normal(*a)), const("b", normal(*b)), node("out", op, "a b", **attrs)]


def test_batches_of_products_of_one_size() -> None:
    nodes = products((2, 3, 4), (2, 4, 5), "BatchMatMulV2", grad_x=True, adj_x=False)
    assert "out = BatchMatMul(a, b) T=float32 adj_x=False" in shown(
        apply("downgrade", graph_of(*nodes)).graph
    )


def test_products_that_broadcast_stay() -> None:
    nodes = products((2, 3, 4), (4, 5), "BatchMatMulV2")
    assert op_after(*nodes).op == "BatchMatMulV2"
    assert reasons(*nodes) == ["BatchMatMulV2"]


def test_the_third_version_of_products() -> None:
    types = dict.fromkeys(("Ta", "Tb", "Tout"), DType.FLOAT)
    nodes = products((2, 3, 4), (4, 5), "BatchMatMulV3", **types)
    out = op_after(*nodes)
    assert out.op == "BatchMatMulV2"
    assert out.attr_dtype("T") is DType.FLOAT
    assert "Ta" not in out.attrs
    mixed = products((2, 3, 4), (4, 5), "BatchMatMulV3", **{**types, "Tout": DType.DOUBLE})
    assert op_after(*mixed).op == "BatchMatMulV3"


@pytest.mark.parametrize(("size", "op"), [(3, "Select"), (1, "SelectV2")])
def test_choices_between_tensors_of_one_shape(size: int, op: str) -> None:
    nodes = [
        const("c", np.ones((2, 3), bool)), const("t", normal(2, 3)), const("e", normal(2, size)),
        node("out", "SelectV2", "c t e"),
    ]  # fmt: skip
    assert op_after(*nodes).op == op


@pytest.mark.parametrize(
    ("k", "align", "op"),
    [
        (0, "RIGHT_LEFT", "MatrixDiagV2"),
        ([1, 1], "RIGHT_LEFT", "MatrixDiagV2"),
        ([0, 1], "LEFT_LEFT", "MatrixDiagV2"),
        ([0, 1], "RIGHT_LEFT", "MatrixDiagV3"),
    ],
)
def test_diagonals_that_are_aligned_alike(k: object, align: str, op: str) -> None:
    nodes = [
        const("k", k, np.int32), const("n", -1, np.int32), const("p", 0.0),
        node("out", "MatrixDiagV3", "x k n n p", align=align),
    ]  # fmt: skip
    out = op_after(*nodes)
    assert out.op == op
    assert ("align" in out.attrs) == (op == "MatrixDiagV3")


@pytest.mark.parametrize(
    ("op", "inputs", "count"), [("MatrixDiagV3", "x", 5), ("SelectV2", "", 3), ("AddV2", "x", 2)]
)
def test_a_node_without_its_inputs_is_named(op: str, inputs: str, count: int) -> None:
    told = rf"\({op}\) takes {len(inputs)} tensors, not {count}"
    with pytest.raises(InvalidGraphError, match=told):
        op_after(const("x", 0.0), node("out", op, inputs))


def test_new_attributes_at_their_defaults_go() -> None:
    pool = node(
        "out", "MaxPool", "x", explicit_paddings=(), ksize=(1, 1, 1, 1), strides=(1, 1, 1, 1),
        padding="SAME", _output_shapes=(),
    )  # fmt: skip
    out = op_after(pool)
    assert "explicit_paddings" not in out.attrs
    assert "_output_shapes" in out.attrs


def test_remaining_gaps_are_warnings() -> None:
    sized = {"ksize": (1, 1, 1, 1), "strides": (1, 1, 1, 1)}
    nodes = [
        node("log", "Xlog1py", "x x"),
        node("log2", "Xlog1py", "x x"),
        node("pool", "MaxPool", "x", explicit_paddings=(1, 2), padding="EXPLICIT", **sized),
        node("pow", "Pow", "x x", T=DType.INT8),
        node("texts", "Where", "x", T=DType.QINT8),
    ]
    result = apply("downgrade", graph_of(*nodes))
    assert result.warnings == (
        "TensorFlow 1.15 has no attribute explicit_paddings=[1, 2] of MaxPool (node 'pool')",
        "TensorFlow 1.15 has no padding=EXPLICIT of MaxPool (node 'pool')",
        "TensorFlow 1.15 has no T=int8 of Pow (node 'pow')",
        "TensorFlow 1.15 has no CPU kernel of Where for T=qint8 (node 'texts')",
        "TensorFlow 1.15 has no op Xlog1py (node 'log' and 1 more)",
    )


@pytest.mark.parametrize(
    ("nodes", "versions"),
    [
        ([node("out", "Relu", "x")], Versions(134, 134, (3,))),
        ([node("out", "Xlog1py", "x x")], Versions(134, 900, (3,))),
    ],
)
def test_versions_are_lowered_where_nothing_is_in_the_way(
    nodes: list[Node], versions: Versions
) -> None:
    graph = graph_of(*nodes, versions=Versions(2000, 900, (3,)))
    assert apply("downgrade", graph).graph.versions == versions


def test_ops_too_new_for_the_version_are_reported() -> None:
    norm_node = node("out", "BatchNormWithGlobalNormalization", "x x x x x",
                     variance_epsilon=0.1, scale_after_normalization=True)  # fmt: skip
    for producer, told in ((8, 0), (500, 1)):
        graph = graph_of(norm_node, versions=Versions(producer))
        assert len(apply("downgrade", graph).warnings) == told


def test_bodies_of_functions_too() -> None:
    body = [
        replace(node("sum", "AddV2", "a a"), inputs=(parse_function_ref("a"),) * 2),
        replace(
            node("p", "BatchMatMulV2", "a a", grad_x=False),
            inputs=(parse_function_ref("sum:z:0"),) * 2,
        ),
    ]
    signature = OpDef("f", (ArgDef("a", DType.FLOAT),), (ArgDef("r", DType.FLOAT),))
    function = Function(signature, tuple(body), {"r": parse_function_ref("p:output:0")})
    graph = Graph([placeholder(), Node("out", "f")], Library({"f": function}))
    result = apply("downgrade", graph)
    assert result.matched == 2
    found = result.graph.library.functions["f"].nodes
    assert [n.op for n in found] == ["Add", "BatchMatMulV2"]
    assert "grad_x" not in found[1].attrs
    assert result.warnings == ()


def test_a_function_of_the_name_of_a_newer_op_is_none() -> None:
    signature = OpDef("AddV2", (ArgDef("a", DType.FLOAT),), ())
    graph = Graph(
        [placeholder(), node("out", "AddV2", "x")], Library({"AddV2": Function(signature)})
    )
    assert apply("downgrade", graph).graph is graph


def test_a_graph_that_the_release_loads_is_the_same_object() -> None:
    graph = graph_of(node("out", "Relu", "x"))
    result = apply("downgrade", graph)
    assert result.graph is graph
    assert (result.matched, result.warnings) == (0, ())


def test_golden() -> None:
    graph = graph_of(node("sum", "AddV2", "x x"), node("out", "AddV2", "sum x ^x"))
    assert shown(apply("downgrade", graph).graph) == (
        "x = Placeholder()\nsum = Add(x, x) T=float32\nout = Add(sum, x, ^x) T=float32"
    )
