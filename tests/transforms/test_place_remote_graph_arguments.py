"""place_remote_graph_arguments: each node is told its part."""

import pytest

from mobileprep.errors import InvalidGraphError, TransformError
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, node, placeholder

NAME = "place_remote_graph_arguments"
GRAPH = Graph(
    [
        placeholder(),
        node("a", "Relu", "x"),
        node("b", "Neg", "a"),
        node("c", "Abs", "b"),
        node("out", "Identity", "c"),
    ]
)


def _parts(**options):
    given = {
        "remote_fused_graph_executor_name": "runner",
        "remote_fused_graph_node_name": "fused",
        **options,
    }
    graph = apply(NAME, GRAPH, **given).graph
    return [n.attr_str("_remote_fused_graph_node_type") for n in graph]


def test_fused_nodes():
    assert _parts(fused_nodes="b,c") == ["1,0,0,runner,fused", "0", "3", "3", "2,0,0"]


def test_borders():
    assert _parts(border_inputs="b,a:0", border_outputs="c") == [
        "1,0,0,runner,fused", "4,0,1", "4,0,0", "5,0,0", "2,0,0",
    ]  # fmt: skip


def test_a_node_may_play_several_parts():
    assert _parts(fused_op_types="Neg,Identity", fused_nodes="b")[2:] == ["3:3", "0", "2,0,0:3"]


def test_types_and_shapes_are_recorded_with_input_types():
    graph = apply(
        NAME,
        GRAPH,
        remote_fused_graph_executor_name="runner",
        input_types="float",
        input_shapes="2,3",
    ).graph
    for n in graph:
        assert n.attr_shapes("_default_remote_output_shapes") == ((2, 3),)
        assert [t.short for t in n.attr_dtypes("_default_remote_graph_output_data_types")] == [
            "float32"
        ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"remote_fused_graph_executor_name": ""}, "executor_name is empty"),
        ({"input_types": "float,float", "input_shapes": "1"}, "1 inputs have 2 types and 1 shapes"),
        ({"input_types": "float", "input_shapes": "1:2"}, "2 shapes"),
        ({"input_types": "string", "input_shapes": "1"}, "'string' is not a dtype"),
        ({"input_types": "float", "input_shapes": "1,x"}, "'1,x' is not a shape"),
        ({"input_types": "float", "input_shapes": "99999,99999"}, "too large"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(TransformError, match=message) as error:
        _parts(**options)
    assert error.value.hint


def test_inputs_and_outputs_that_are_not_there_are_named():
    with pytest.raises(InvalidGraphError, match="'nowhere'"):
        apply(NAME, GRAPH, outputs=("nowhere",), remote_fused_graph_executor_name="runner")
