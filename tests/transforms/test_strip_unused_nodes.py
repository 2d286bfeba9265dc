"""strip_unused_nodes: what the outputs need, and placeholders where the graph is fed."""

import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, placeholder, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


def _graph():
    return Graph(
        [
            placeholder(),
            const("weights", [[1.0, 2.0]]),
            node("decoded", "Cast", "x", T=None, SrcT=DType.FLOAT, DstT=DType.INT32),
            node("indices", "Relu", "decoded", T=DType.INT32),
            node("out", "GatherV2", "weights indices axis", T=None),
            const("axis", 0, "int32"),
            node("loss", "Neg", "out"),
        ]
    )


@BOTH
def test_golden(tf115):
    graph = Graph([placeholder(), node("a", "Relu", "x"), node("out", "Neg", "a"), *_unused()])
    result = apply("strip_unused_nodes", graph, tf115=tf115)
    assert result.matched == 2
    assert shown(result.graph) == (
        "x = Placeholder()\na = Relu(x) T=float32\nout = Neg(a) T=float32"
    )


def _unused():
    return [const("unused", 1.0), node("loss", "Neg", "out")]


@BOTH
def test_a_graph_of_needed_nodes_is_the_same_object(tf115):
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    assert apply("strip_unused_nodes", graph, tf115=tf115).graph is graph


@BOTH
def test_control_inputs_are_needed(tf115):
    graph = Graph([placeholder(), const("ready", 1.0), node("out", "Relu", "x ^ready")])
    assert apply("strip_unused_nodes", graph, tf115=tf115).graph is graph


@BOTH
def test_an_input_stays_though_nothing_needs_it(tf115):
    graph = Graph([placeholder(), placeholder("y"), node("out", "Relu", "x")])
    result = apply("strip_unused_nodes", graph, inputs=("x", "y"), tf115=tf115)
    assert result.graph is graph


@BOTH
def test_placeholder_has_the_dtype_of_its_node(tf115):
    """The original gives all of them one type, and consumers of another then refuse the graph."""
    result = apply("strip_unused_nodes", _graph(), inputs=("decoded",), tf115=tf115)
    assert result.graph["decoded"].attr_dtype("dtype") is DType.INT32
    assert "x" not in result.graph


def test_without_a_shape_the_original_makes_scalars_and_a_recipe_leaves_it_open():
    made = {
        tf115: apply("strip_unused_nodes", _graph(), inputs=("indices",), tf115=tf115)
        for tf115 in (True, False)
    }
    assert made[True].graph["indices"].attr_shape("shape") == ()
    assert made[False].graph["indices"].attr_shape("shape") is None


def test_a_recipe_takes_the_shape_that_the_graph_records():
    shape = AttrValue("list(shape)", ((1, -1),))
    graph = Graph([placeholder(), node("fed", "Relu", "x", _output_shapes=shape)])
    result = apply("strip_unused_nodes", graph, inputs=("fed",), outputs=("fed",))
    assert result.graph["fed"].attr_shape("shape") == (1, -1)


@pytest.mark.parametrize("of_x", [AttrValue("list(shape)", ((2, 3),)), None])
def test_a_record_that_the_graph_contradicts_is_not_believed(of_x):
    wrong = AttrValue("list(shape)", ((7, 1),))
    image = node("x", "Placeholder", T=None, dtype=DType.FLOAT, shape=AttrValue("shape", (-1, 3)))
    image = image if of_x is None else image.with_attrs(_output_shapes=of_x)
    graph = Graph([image, node("fed", "Relu", "x", _output_shapes=wrong)])
    result = apply("strip_unused_nodes", graph, inputs=("fed",), outputs=("fed",))
    assert result.graph["fed"].attr_shape("shape") == (-1, 3)


def test_a_record_is_not_believed_where_the_rest_is_broken():
    record = AttrValue("list(shape)", ((1, -1),))
    graph = Graph([node("fed", "Relu", "gone", _output_shapes=record)])
    result = apply("strip_unused_nodes", graph, inputs=("fed",), outputs=("fed",))
    assert result.graph["fed"].attr_shape("shape") is None


@BOTH
def test_named_shapes_and_types_override_general_ones(tf115):
    graph = Graph(
        [
            node("a", "Custom", ""),
            node("b", "Custom", ""),
            node("c", "Custom", ""),
            node("out", "AddN", "a b c", N=3),
        ]
    )
    options = {
        "type": "int32",
        "shape": "1,2",
        "name": ("b", "c"),
        "type_for_name": ("quint8", "float"),
        "shape_for_name": ("-1", "4,5,6"),
    }
    result = apply("strip_unused_nodes", graph, inputs=("a", "b", "c"), tf115=tf115, **options)
    made = [(n.attr_dtype("dtype"), n.attr_shape("shape")) for n in result.graph.nodes[:3]]
    assert made == [(DType.INT32, (1, 2)), (DType.QUINT8, (-1,)), (DType.FLOAT, (4, 5, 6))]


@BOTH
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": ("fed",)}, "1 'name' and 0 'type_for_name'"),
        ({"name": ("fed",), "type_for_name": ("float",)}, "0 'shape_for_name'"),
        ({"type": "flaot"}, "the type 'flaot' is not known"),
        ({"shape": "1,x"}, "the shape '1,x' cannot be understood"),
        ({"shape": "1,-2"}, "the shape '1,-2' cannot be understood"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_an_error_once_it_is_needed(options, reason, tf115):
    graph = Graph([node("fed", "Custom", ""), node("out", "Relu", "fed")])
    with pytest.raises(TransformError, match=reason):
        apply("strip_unused_nodes", graph, inputs=("fed",), tf115=tf115, **options)
    fed = Graph([placeholder("fed"), node("out", "Relu", "fed")])
    apply("strip_unused_nodes", fed, inputs=("fed",), tf115=tf115, **options)


@BOTH
def test_an_output_that_is_not_there_is_an_error_with_the_nearest_name(tf115):
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    with pytest.raises(TransformError, match="the output 'oute' is not in the graph") as caught:
        apply("strip_unused_nodes", graph, outputs=("oute",), tf115=tf115)
    assert caught.value.hint == "did you mean 'out'?"


@BOTH
def test_an_input_that_is_not_there_is_a_warning(tf115):
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    result = apply("strip_unused_nodes", graph, inputs=("x", "y"), tf115=tf115)
    assert result.warnings == ("strip_unused_nodes: the input 'y' is not in the graph",)


@BOTH
def test_a_fed_later_output_is_the_placeholder_of_its_consumers(tf115):
    """The original leaves the consumers with an output that a Placeholder does not have."""
    graph = Graph(
        [
            placeholder(),
            const("axis", 0, "int32"),
            node("halves", "Split", "axis x", num_split=2),
            node("out", "Relu", "halves:1"),
        ]
    )
    result = apply("strip_unused_nodes", graph, inputs=("halves:1",), tf115=tf115)
    assert shown(result.graph).startswith("halves = Placeholder()")
    assert str(result.graph["out"].inputs[0]) == "halves"


@BOTH
def test_a_fed_node_of_which_several_outputs_are_used_is_refused(tf115):
    graph = Graph([node("halves", "Split", ""), node("out", "Add", "halves halves:1")])
    with pytest.raises(TransformError, match="the outputs 0, 1 of the input 'halves'"):
        apply("strip_unused_nodes", graph, inputs=("halves",), tf115=tf115)


@BOTH
def test_a_fed_placeholder_waits_for_nothing(tf115):
    """The original keeps its control inputs, which may lead to nodes that are gone."""
    graph = Graph([const("ready", 1.0), node("x", "Placeholder", "^ready", T=None)])
    result = apply("strip_unused_nodes", graph, outputs=("x",), tf115=tf115)
    assert shown(result.graph) == "x = Placeholder()"


@BOTH
def test_colocation_with_removed_nodes_is_forgotten(tf115):
    """TensorFlow does not load a graph in which a node is to stand by an unknown one."""
    with_gone = AttrValue("list(string)", (b"loc:@gone", b"loc:@x", b"other"))
    graph = Graph(
        [
            placeholder(),
            node("gone", "Relu", "x"),
            node("a", "Relu", "x", _class=with_gone),
            node("out", "Relu", "a", _class=AttrValue("list(string)", (b"loc:@gone",))),
        ]
    )
    after = apply("strip_unused_nodes", graph, tf115=tf115).graph
    assert after["a"].attrs["_class"].value == (b"loc:@x", b"other")
    assert "_class" not in after["out"].attrs


def test_invalid_dtype_is_replaced_by_the_parameter():
    spoilt = node("fed", "Cast", "", T=None, DstT=attr.integer(3))
    graph = Graph([spoilt, node("out", "Relu", "fed")])
    result = apply("strip_unused_nodes", graph, inputs=("fed",), type="int32")
    assert result.graph["fed"].attr_dtype("dtype") is DType.INT32
