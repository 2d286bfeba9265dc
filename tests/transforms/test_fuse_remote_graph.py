"""fuse_remote_graph: a part of the graph goes into one node."""

import pytest

from mobileprep.errors import InvalidGraphError, TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.wire import Cursor
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.graph.verify import check_graph
from tests.transforms.graphs import apply, const, node, placeholder, shown

NAME = "fuse_remote_graph"
CHAIN = Graph(
    [
        placeholder(),
        node("a", "Relu", "x"),
        node("b", "Neg", "a"),
        node("c", "Abs", "b"),
        node("d", "Relu", "c"),
        node("out", "Identity", "d"),
    ]
)


def _fuse(graph=CHAIN, outputs=("out",), tf115=False, **options):
    given = {
        "remote_fused_graph_executor_name": "runner",
        "remote_fused_graph_node_name": "part",
        **options,
    }
    result = apply(NAME, graph, outputs=outputs, tf115=tf115, **given)
    check_graph(result.graph, "test")
    return result


def _carried(graph, name):
    """The fields of the message that a fused node carries, and the graph in it."""
    value = graph[name].attrs["serialized_remote_fused_graph_execute_info"].value
    cursor = Cursor(value, file="info")
    fields = []
    while cursor:
        number = cursor.varint() >> 3
        fields.append((number, bytes(cursor.take(cursor.varint()))))
    return fields[1:], graph_from_bytes(fields[0][1], "info")


@pytest.mark.parametrize("tf115", [True, False])
def test_golden(tf115):
    result = _fuse(fused_nodes="b,c", tf115=tf115)
    assert result.matched == 1
    text = shown(result.graph).split(" serialized")[0]
    assert text == (
        "x = Placeholder() shape=None\n"
        "a = Relu(x) T=float32\n"
        "d = Relu(part/0) T=float32\n"
        "out = Identity(d) T=float32\n"
        "part/0 = RemoteFusedGraphExecute(a) Tinputs=1 Toutputs=1"
    )
    fields, inside = _carried(result.graph, "part/0")
    assert fields == [(2, b"a:0"), (3, b"c:0"), (4, b"runner"), (6, b"\x08\x01\x12\x00")]
    assert [(n.name, n.op) for n in inside] == [("a", "Placeholder"), ("b", "Neg"), ("c", "Abs")]


def test_a_part_may_be_named_by_its_borders():
    graph = _fuse(border_inputs="a", border_outputs="c").graph
    assert [str(r) for r in graph["d"].inputs] == ["part"]
    fields, inside = _carried(graph, "part")
    assert fields[:2] == [(2, b"a"), (3, b"c")]
    assert [n.name for n in inside] == ["a", "b", "c"]


def test_a_part_may_be_named_by_its_ops():
    graph = _fuse(fused_op_types="Neg,Abs").graph
    assert [n.name for n in graph] == ["x", "a", "d", "out", "part/0"]


@pytest.mark.parametrize("tf115", [True, False])
def test_parts_that_lie_apart_become_a_node_each(tf115):
    """The original breaks off, or fuses one of them."""
    result = _fuse(fused_nodes="a,c", tf115=tf115)
    assert result.matched == 2
    assert {n.name for n in result.graph} == {"x", "b", "d", "out", "part/0", "part/1"}
    assert [str(r) for r in result.graph["part/1"].inputs] == ["b"]
    assert [str(r) for r in result.graph["b"].inputs] == ["part/0"]


def test_an_output_of_the_graph_becomes_an_identity():
    graph = _fuse(fused_nodes="d,out").graph
    assert (graph["out"].op, str(graph["out"].inputs[0])) == ("Identity", "part/0")


@pytest.mark.parametrize("tf115", [True, False])
def test_tensors_keep_their_types(tf115):
    """The original takes all of them for float."""
    graph = Graph(
        [
            placeholder(),
            node("a", "Cast", "x", T=None, SrcT=DType.FLOAT, DstT=DType.INT32),
            node("out", "Neg", "a", T=DType.INT32),
        ]
    )
    fused = _fuse(graph, fused_nodes="a", tf115=tf115).graph["part/0"]
    assert fused.attr_dtypes("Toutputs") == (DType.INT32,)
    assert fused.attr_dtypes("Tinputs") == (DType.FLOAT,)


def test_recorded_shapes_are_carried():
    graph = _fuse(fused_nodes="b", input_types="float", input_shapes="1,2").graph
    fields, inside = _carried(graph, "part/0")
    shape = b"\x08\x01\x12\x08\x12\x02\x08\x01\x12\x02\x08\x02"
    assert fields[3:] == [(6, shape), (7, shape)]
    assert inside["a"].attr_shape("shape") == (1, 2)


def test_a_node_between_two_worlds_ends_a_tf115_run_and_is_fused_in_a_recipe():
    graph = Graph(
        [placeholder(), const("k", 1.0), node("a", "Relu", "x"), node("out", "Add", "a k")]
    )
    with pytest.raises(TransformError, match="'out' takes tensors from the part and"):
        _fuse(graph, fused_nodes="a,out", tf115=True)
    fused = _fuse(graph, fused_nodes="a,out").graph["part/0"]
    assert [str(r) for r in fused.inputs] == ["x", "k"]


def test_control_inputs_from_outside_survive():
    graph = Graph([placeholder(), node("wait", "NoOp", T=None), node("out", "Relu", "x ^wait")])
    fused = _fuse(graph, fused_nodes="out").graph["part/0"]
    assert [str(r) for r in fused.inputs] == ["x", "^wait"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, TransformError, "no part"),
        ({"fuse_by_executor": True}, TransformError, "unknown executor 'runner'"),
        ({"fused_nodes": "b", "remote_fused_graph_node_name": ""}, TransformError, "node_name"),
        ({"fused_nodes": "b", "remote_fused_graph_executor_name": ""}, TransformError, "executor"),
        ({"fused_nodes": "b,z"}, InvalidGraphError, "'z'"),
        ({"border_inputs": "z", "border_outputs": "c"}, InvalidGraphError, "'z'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        _fuse(**options)


def test_a_node_with_several_outputs_cannot_feed_a_part():
    graph = Graph(
        [
            placeholder(),
            const("axis", 0, "int32"),
            node("split", "Split", "axis x", num_split=2),
            node("out", "Relu", "split:1"),
        ]
    )
    with pytest.raises(TransformError, match="'split' feeds the part, and has several outputs"):
        _fuse(graph, fused_nodes="out")


def test_an_output_that_a_node_does_not_have_feeds_a_part_as_a_scalar():
    nodes = [const("k", 1.0), node("a", "Relu", "k:1"), node("out", "Identity", "a")]
    names = {"remote_fused_graph_executor_name": "r", "remote_fused_graph_node_name": "part"}
    graph = Graph([placeholder(), *nodes])
    fused = apply(NAME, graph, outputs=("out",), fused_nodes="a", **names).graph
    _, inside = _carried(fused, "part/0")
    assert inside["k"].op == "Placeholder"
    assert inside["k"].attr_shape("shape") == ()


def test_graph_without_the_ops_does_not_change():
    assert _fuse(fused_op_types="Softmax").matched == 0
