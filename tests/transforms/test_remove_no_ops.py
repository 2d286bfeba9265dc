"""remove_no_ops: what gives back what it was given goes."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown


def _shaped(shape):
    return node("x", "Placeholder", T=None, dtype=DType.FLOAT, shape=attr.shape(shape))


def _cast(name, source, given, wanted):
    return node(name, "Cast", source, T=None, SrcT=given, DstT=wanted)


def _left(*nodes, **options):
    """The names of what is left between x and out."""
    after = apply("remove_no_ops", Graph(nodes), **options).graph
    return [n.name for n in after if n.name not in ("x", "out")]


def test_golden():
    graph = Graph(
        [
            _shaped((1, 4)),
            node("a", "StopGradient", "x"),
            const("flat", [4], np.int32),
            node("b", "Reshape", "a flat", Tshape=DType.INT32),
            const("back", [1, 4], np.int32),
            node("c", "Reshape", "b back", Tshape=DType.INT32),
            _cast("d", "c", DType.FLOAT, DType.DOUBLE),
            _cast("e", "d", DType.DOUBLE, DType.FLOAT),
            node("out", "Relu", "e"),
        ]
    )
    result = apply("remove_no_ops", graph)
    assert result.matched == 3
    assert shown(result.graph) == "x = Placeholder() shape=(1, 4)\nout = Relu(x) T=float32"
    x = normal(1, 4)
    np.testing.assert_array_equal(run(result.graph, x), run(graph, x))


@pytest.mark.parametrize("op", ["Identity", "Snapshot", "StopGradient", "PreventGradient"])
def test_identities_go(op):
    assert not _left(placeholder(), node("a", op, "x"), node("out", "Relu", "a"))


def test_each_output_of_identity_n_is_its_input():
    both = AttrValue("list(type)", (DType.FLOAT, DType.FLOAT))
    nodes = [placeholder(), const("c", 1.0), node("a", "IdentityN", "x c", T=both)]
    after = apply("remove_no_ops", Graph([*nodes, node("out", "Sub", "a:1 a")])).graph
    assert [str(r) for r in after["out"].inputs] == ["c", "x"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (DType.FLOAT, DType.DOUBLE),
        (DType.HALF, DType.FLOAT),
        (DType.INT32, DType.DOUBLE),
        (DType.INT32, DType.INT64),
        (DType.BOOL, DType.FLOAT),
    ],
)
def test_a_cast_there_and_back_goes_where_no_value_is_lost(given, wanted):
    there, back = _cast("a", "x", given, wanted), _cast("b", "a", wanted, given)
    assert not _left(placeholder("x", given), there, back, node("out", "Relu", "b", T=given))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (DType.FLOAT, DType.HALF),
        (DType.FLOAT, DType.INT32),
        (DType.INT64, DType.DOUBLE),
        (DType.INT32, DType.FLOAT),
        (DType.UINT8, DType.INT8),
        (DType.QUINT8, DType.FLOAT),
    ],
)
def test_a_cast_there_and_back_stays_where_values_are_lost(given, wanted):
    there, back = _cast("a", "x", given, wanted), _cast("b", "a", wanted, given)
    assert _left(placeholder("x", given), there, back, node("out", "Relu", "b")) == ["a", "b"]


def test_a_cast_to_the_type_that_is_there_goes():
    same = _cast("a", "x", DType.FLOAT, DType.FLOAT)
    assert not _left(placeholder(), same, node("out", "Relu", "a"))
    on = _cast("b", "a", DType.DOUBLE, DType.HALF)
    other = _cast("a", "x", DType.FLOAT, DType.DOUBLE)
    assert _left(placeholder(), other, on, node("out", "Relu", "b")) == ["a", "b"]


def test_transposes_that_undo_each_other_go():
    nodes = [
        placeholder(),
        const("p", [1, 2, 0], np.int32),
        const("q", [2, 0, 1], np.int32),
        node("a", "Transpose", "x p", Tperm=DType.INT32),
        node("b", "Transpose", "a q", Tperm=DType.INT32),
        node("out", "Relu", "b"),
    ]
    x = normal(2, 3, 4)
    after = apply("remove_no_ops", Graph(nodes)).graph
    assert [n.name for n in after] == ["x", "out"]
    np.testing.assert_array_equal(run(after, x), run(Graph(nodes), x))
    twice = [*nodes[:4], node("b", "Transpose", "a p", Tperm=DType.INT32), nodes[5]]
    assert _left(*twice) == ["p", "q", "a", "b"]


@pytest.mark.parametrize(
    ("order", "left"), [([0, 1], []), ([1, 0], ["p", "a"]), ([0, 0], ["p", "a"])]
)
def test_a_transpose_that_moves_nothing_goes(order, left):
    transpose = node("a", "Transpose", "x p", Tperm=DType.INT32)
    out = node("out", "Relu", "a")
    assert _left(placeholder(), const("p", order, np.int32), transpose, out) == left


def test_an_order_that_is_computed_stays():
    nodes = [placeholder(), placeholder("p", DType.INT32), node("a", "Transpose", "x p")]
    assert _left(*nodes, node("out", "Relu", "a"), inputs=("x", "p")) == ["p", "a"]


@pytest.mark.parametrize(
    ("shape", "target", "left"),
    [
        ((2, 3), [2, 3], []),
        ((-1, 3), [-1, 3], []),
        ((2, 3), [3, 2], ["to", "a"]),
        ((-1, -1), [-1, 3], ["to", "a"]),
        (None, [2, 3], ["to", "a"]),
    ],
)
def test_a_reshape_to_the_shape_that_is_there_goes(shape, target, left):
    reshape = node("a", "Reshape", "x to", Tshape=DType.INT32)
    out = node("out", "Relu", "a")
    assert _left(_shaped(shape), const("to", target, np.int32), reshape, out) == left


def test_two_unknown_sizes_could_be_divided_in_another_way():
    reshape = node("a", "Reshape", "x to", Tshape=DType.INT32)
    nodes = [_shaped((-1, -1)), placeholder("to", DType.INT32), reshape, node("out", "Relu", "a")]
    assert _left(*nodes, inputs=("x", "to")) == ["to", "a"]


def test_squeeze_after_expand_dims_goes():
    nodes = [
        _shaped((2, 3)),
        const("axis", 1, np.int32),
        node("a", "ExpandDims", "x axis", Tdim=DType.INT32),
        node("b", "Squeeze", "a", squeeze_dims=(1,)),
        node("out", "Relu", "b"),
    ]
    assert not _left(*nodes)


def test_fed_shape_may_differ_from_the_graph():
    nodes = [
        _shaped((2, 3)),
        node("fed", "Relu", "x"),
        const("to", [2, 3], np.int32),
        node("a", "Reshape", "fed to", Tshape=DType.INT32),
        node("out", "Relu", "a"),
    ]
    assert _left(*nodes) == ["fed"]
    assert _left(*nodes, inputs=("fed",)) == ["fed", "to", "a"]


def test_inputs_outputs_and_nodes_that_wait_stay():
    graph = Graph(
        [
            placeholder(),
            node("in", "Identity", "x"),
            const("c", 1.0),
            node("later", "Relu", "in"),
            node("waits", "Identity", "in ^later"),
            node("out", "Add", "waits c"),
        ]
    )
    result = apply("remove_no_ops", graph, inputs=("in", "out"))
    assert result.graph is graph
    assert result.skipped == {"an input or output of the graph": 1, "it waits for other nodes": 1}


def test_control_edges_from_constants_are_removed():
    graph = Graph(
        [
            placeholder(),
            const("c", 1.0),
            node("read", "Identity", "c"),
            node("all", "NoOp", "^c ^read", T=None),
            node("sum", "Add", "x c"),
            node("out", "Relu", "sum ^all ^c"),
        ]
    )
    result = apply("remove_no_ops", graph)
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "c = Const() value=float32[]:1\n"
        "sum = Add(x, c) T=float32\n"
        "out = Relu(sum) T=float32"
    )


def test_branch_selector_stays():
    graph = Graph(
        [
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            node("then", "Identity", "switch:1", T=DType.BOOL),
            const("one", 1.0, inputs="^then"),
        ]
    )
    result = apply("remove_no_ops", graph, inputs=("p",), outputs=("one",))
    assert result.graph is graph
    assert result.skipped == {"it determines which branch runs": 1}


def test_control_edge_to_a_constant_behind_a_no_op_is_removed():
    nodes = [
        placeholder(),
        const("c", normal(3)),
        const("one", 1.0),
        node("same", "Mul", "c one"),
        node("out", "Relu", "x ^same"),
    ]
    after = apply("remove_no_ops", Graph(nodes)).graph
    assert [str(r) for r in after["out"].inputs] == ["x"]
    assert apply("remove_no_ops", after).graph is after
