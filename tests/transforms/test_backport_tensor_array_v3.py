"""backport_tensor_array_v3: TensorArrays without a flow, and with strings for handles."""

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, placeholder, shown

ARRAY = {"T": None, "dtype": DType.FLOAT, "dynamic_size": False}


def _graph(**attrs):
    return Graph(
        [
            placeholder(),
            const("size", 1, "int32"),
            node("array", "TensorArrayV3", "size", **ARRAY, **attrs),
            node("handle", "Enter", "array", T=DType.RESOURCE, frame_name="loop"),
            node("flow", "Enter", "array:1", frame_name="loop"),
            node("passed", "Identity", "handle", T=DType.RESOURCE),
            node("write", "TensorArrayWriteV3", "passed size x flow"),
            node("out", "TensorArrayReadV3", "array size write", T=None, dtype=DType.FLOAT),
        ]
    )


@pytest.mark.parametrize("tf115", [True, False])
def test_golden(tf115):
    result = apply("backport_tensor_array_v3", _graph(), tf115=tf115)
    assert result.matched == 3
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "size = Const() value=int32[]:1\n"
        "array = TensorArrayV2(size) dynamic_size=False\n"
        "array/replacement_flow_node = Const() value=float32[]:1\n"
        "handle = Enter(array) T=string frame_name=loop\n"
        "flow = Enter(array/replacement_flow_node) T=float32 frame_name=loop\n"
        "passed = Identity(handle) T=string\n"
        "write = TensorArrayWriteV2(passed, size, x, flow) T=float32\n"
        "out = TensorArrayReadV2(array, size, write)"
    )


def test_an_attribute_that_version_2_does_not_have_goes():
    graph = apply("backport_tensor_array_v3", _graph(identical_element_shapes=True)).graph
    assert "identical_element_shapes" not in graph["array"].attrs


def test_gradients_are_replaced_too():
    grad = node("grad", "TensorArrayGradV3", "array flow", T=None, source="gradients")
    user = node("user", "Relu", "grad:1")
    graph = apply("backport_tensor_array_v3", Graph([*_graph(), grad, user])).graph
    assert graph["grad"].op == "TensorArrayGradV2"
    assert str(graph["user"].inputs[0]) == "grad/replacement_flow_node"


def test_other_resources_keep_their_type():
    other = node("table", "HashTableV2", T=None)
    passed = node("other", "Enter", "table", T=DType.RESOURCE, frame_name="loop")
    graph = apply("backport_tensor_array_v3", Graph([*_graph(), other, passed])).graph
    assert graph["other"].attr_dtype("T") is DType.RESOURCE


def test_an_array_of_a_loops_body_has_its_constant_there():
    nodes = [
        placeholder(),
        const("size", 1, "int32"),
        node("enter", "Enter", "size", T=DType.INT32, frame_name="loop"),
        node("array", "TensorArrayV3", "enter", **ARRAY),
        node("out", "Relu", "array:1"),
    ]
    graph = apply("backport_tensor_array_v3", Graph(nodes)).graph
    assert [str(r) for r in graph["array/replacement_flow_node"].inputs] == ["^array"]


def test_a_graph_without_arrays_is_the_same_object():
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    assert apply("backport_tensor_array_v3", graph).graph is graph
