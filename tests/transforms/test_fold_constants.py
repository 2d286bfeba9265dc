"""fold_constants: what follows from constants alone becomes a constant."""

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, TransformError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, OpDef
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.verify import check_graph
from mobileprep.ops.kernel import find_kernel
from mobileprep.transforms.base import Context, make_transform
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


def fold(*nodes, **kwargs):
    result = apply("fold_constants", Graph(nodes, versions=Versions(100)), **kwargs)
    check_graph(result.graph, "")
    return result


def folded(*nodes, **kwargs):
    return fold(*nodes, **kwargs).graph


def names(graph):
    return [n.name for n in graph]


def value(graph, name):
    return graph[name].attr_tensor("value").array().tolist()


SUM = [
    placeholder(),
    const("a", [1, 2]),
    const("b", [3, 4]),
    node("sum", "Add", "a b"),
    node("out", "Mul", "x sum"),
]


def test_a_computed_constant_takes_its_nodes_place_and_name():
    assert shown(folded(*SUM)) == (
        "x = Placeholder()\nsum = Const() value=float32[2]\nout = Mul(x, sum) T=float32"
    )
    assert value(folded(*SUM), "sum") == [4, 6]


def test_the_original_numbers_constants_and_puts_inputs_last():
    assert shown(folded(*SUM, tf115=True)) == (
        "out = Mul(x:0, sum/_0__cf__0) T=float32\n"
        "sum/_0__cf__0 = Const() value=float32[2]\n"
        "x = Placeholder()"
    )


@BOTH
def test_the_folded_graph_gives_the_same_numbers(tf115):
    graph = Graph(
        [
            placeholder(),
            *(const(k, np.abs(normal(4, seed=i)) + 1) for i, k in enumerate("mvgb")),
            node("r", "Rsqrt", "v"),
            node("f", "Mul", "r g"),
            node("shift", "Mul", "m f"),
            node("rest", "Sub", "b shift"),
            node("scaled", "Mul", "x f"),
            node("out", "Add", "scaled rest"),
        ]
    )
    result = apply("fold_constants", graph, tf115=tf115)
    assert result.matched == 2
    assert [n.op for n in result.graph].count("Const") == 2
    x = normal(3, 4, seed=9)
    # The original's reciprocal roots are approximate.
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-5, atol=1e-6)


@BOTH
def test_unneeded_nodes_are_removed_except_inputs(tf115):
    graph = folded(
        placeholder(),
        placeholder("spare"),
        node("out", "Relu", "x"),
        node("unused", "Relu", "x"),
        inputs=("x", "spare"),
        tf115=tf115,
    )
    assert set(names(graph)) == {"out", "x", "spare"}


def test_a_graph_with_nothing_to_fold_is_the_very_same():
    graph = Graph([placeholder(), const("c", 1), node("out", "Add", "x c")])
    assert apply("fold_constants", graph).graph is graph


def test_folding_again_changes_nothing():
    once = folded(*SUM)
    assert apply("fold_constants", once).graph is once


# What passes constants through.

COPIES = [
    placeholder(),
    const("w", normal(8, 8)),
    node("read", "Identity", "w"),
    node("a", "MatMul", "x read"),
    node("b", "MatMul", "a w"),
    node("out", "MatMul", "b read"),
]


def test_an_identity_of_a_constant_makes_no_second_copy():
    graph = folded(*COPIES)
    assert names(graph) == ["x", "w", "a", "b", "out"]
    assert str(graph["out"].inputs[1]) == "w"


def test_the_original_makes_a_second_copy():
    graph = folded(*COPIES, tf115=True)
    assert [n.op for n in graph].count("Const") == 2


@BOTH
def test_a_copy_shares_the_bytes(tf115):
    graph = folded(*COPIES, tf115=tf115)
    values = [n.attr_tensor("value") for n in graph if n.op == "Const"]
    assert all(v is values[0] for v in values)


def test_an_identity_in_a_branch_stays_where_its_constant_is_outside():
    graph = folded(
        placeholder(),
        placeholder("p", DType.BOOL),
        const("w", [1.0]),
        node("s", "Switch", "x p"),
        node("pivot", "Identity", "s:1"),
        node("read", "Identity", "w ^pivot"),
        node("out", "Add", "s:1 read"),
        inputs=("x", "p"),
    )
    assert [str(r) for r in graph["read"].inputs] == ["w", "^pivot"]


def test_a_shape_behind_a_switch_stays_in_its_branch():
    graph = folded(
        node("x", "Placeholder", T=None, dtype=DType.FLOAT, shape=attr.shape((2, 3))),
        placeholder("p", DType.BOOL),
        node("s", "Switch", "x p"),
        node("of_s", "Shape", "s:1", out_type=DType.INT32),
        node("inside", "Neg", "s:1"),
        node("of_inside", "Shape", "inside", out_type=DType.INT32),
        node("out", "Add", "of_s of_inside", T=DType.INT32),
        inputs=("p",),
    )
    assert graph["of_s"].op == "Shape"
    # A constant that waits for what is in the branch waits for the branch.
    assert [str(r) for r in graph["of_inside"].inputs] == ["^inside"]


# Outputs.


def test_a_constant_output_keeps_its_name():
    graph = folded(*SUM[1:4], outputs=("sum",), inputs=())
    assert shown(graph) == "sum = Const() value=float32[2]"


def test_the_original_leaves_a_constant_output_to_be_computed():
    graph = folded(*SUM, outputs=("sum", "out"), tf115=True)
    assert graph["sum"].op == "Add"
    assert str(graph["out"].inputs[1]) == "sum/_0__cf__0"


def test_an_output_that_copies_a_constant_stays_without_a_copy():
    graph = folded(const("w", [1.0]), node("out", "Identity", "w"), inputs=())
    assert names(graph) == ["w", "out"]


@BOTH
def test_a_constant_may_be_an_output_itself(tf115):
    graph = folded(
        placeholder(),
        const("c", 1),
        node("out", "Add", "x c"),
        outputs=("out", "c"),
        tf115=tf115,
    )
    assert graph["c"].op == "Const"


# Nodes of several outputs.

HALVES = [
    placeholder(),
    const("c", [1, 2, 3, 4]),
    const("axis", 0, np.int32),
    node("s", "Split", "axis c", num_split=2),
]


def test_each_output_in_use_becomes_a_constant():
    graph = folded(*HALVES, node("y", "Mul", "x s:1"), node("out", "Add", "y s"))
    assert names(graph) == ["x", "s_0", "s_1", "y", "out"]
    assert value(graph, "s_1") == [3, 4]
    assert str(graph["y"].inputs[1]) == "s_1"


def test_new_constant_has_a_free_name():
    graph = folded(*HALVES, node("s_1", "Mul", "x s:1"), node("out", "Add", "s_1 s:1"))
    assert value(graph, "s_1_1") == [3, 4]


def test_an_output_among_several_keeps_its_node():
    graph = folded(*HALVES, node("out", "Mul", "x s:1"), outputs=("out", "s:1"))
    assert graph["s"].op == "Split"
    assert str(graph["out"].inputs[1]) == "s_1"


@BOTH
def test_only_the_outputs_in_use_become_constants(tf115):
    graph = folded(*HALVES, node("out", "Mul", "x s:1"), tf115=tf115)
    assert [n.op for n in graph].count("Const") == 1


# Control dependencies.


@BOTH
def test_folded_constant_keeps_control_inputs(tf115):
    graph = folded(
        placeholder(),
        node("b", "Relu", "x"),
        node("a", "Relu", "x"),
        const("c", 1, inputs="^a"),
        node("d", "Neg", "c ^b"),
        node("out", "Add", "x d"),
        tf115=tf115,
    )
    (constant,) = [n for n in graph if n.op == "Const"]
    assert [str(r) for r in constant.inputs] == ["^a", "^b"]


@BOTH
def test_control_edges_from_folded_nodes_stay(tf115):
    graph = folded(
        placeholder(),
        const("c", 1),
        node("d", "Neg", "c"),
        node("out", "Relu", "x ^d"),
        tf115=tf115,
    )
    assert [str(r) for r in graph["out"].control_inputs] == ["^d"]


# Shapes.

SIZES = [
    placeholder("n", DType.INT32),
    node("s", "Shape", "x", out_type=DType.INT32),
    node("out", "Add", "s n", T=DType.INT32),
]


def _x(*shape):
    return node("x", "Placeholder", T=None, dtype=DType.FLOAT, shape=attr.shape(shape))


@BOTH
def test_a_known_shape_is_a_constant_that_waits_for_its_tensor(tf115):
    graph = folded(_x(2, 3), *SIZES, inputs=("x", "n"), tf115=tf115)
    (constant,) = [n for n in graph if n.op == "Const"]
    assert constant.attr_tensor("value").array().tolist() == [2, 3]
    assert [str(r) for r in constant.inputs] == ["^x"]


@BOTH
def test_a_large_constant_of_a_fed_tensor_s_size_is_folded(tf115):
    """A window as long as a fed sound is: of the sound itself, nothing is looked at."""
    graph = folded(
        _x(4000),
        node("size", "Size", "x", out_type=DType.INT32),
        const("zero", 0, np.int32),
        const("one", 1, np.int32),
        node("range", "Range", "zero size one", T=None, Tidx=DType.INT32),
        node("times", "Cast", "range", T=None, SrcT=DType.INT32, DstT=DType.FLOAT),
        node("out", "Mul", "x times"),
        tf115=tf115,
    )
    assert [n.op for n in graph].count("Const") == 1


@BOTH
def test_a_partly_known_shape_is_none(tf115):
    graph = folded(_x(-1, 3), *SIZES, inputs=("x", "n"), tf115=tf115)
    assert graph["s"].op == "Shape"


@BOTH
def test_a_rank_is_known_where_sizes_are_not(tf115):
    graph = folded(
        _x(-1, 3),
        placeholder("n", DType.INT32),
        node("r", "Rank", "x"),
        node("out", "Add", "r n", T=DType.INT32),
        inputs=("x", "n"),
        tf115=tf115,
    )
    assert "Rank" not in [n.op for n in graph]


@BOTH
def test_recorded_shapes_count_only_where_asked_for(tf115):
    x = _x(-1, 3).with_attrs(_output_shapes=AttrValue("list(shape)", ((2, 3),)))
    kept = folded(x, *SIZES, inputs=("x", "n"), tf115=tf115)
    believed = folded(x, *SIZES, inputs=("x", "n"), tf115=tf115, clear_output_shapes=False)
    assert "Shape" in [n.op for n in kept]
    assert "Shape" not in [n.op for n in believed]


# What is not folded.

NOT_FOLDED = {
    "state": ([node("r", "RandomUniform", "c", T=DType.INT32, dtype=DType.FLOAT)], "has state"),
    "control flow": ([node("r", "Enter", "f", frame_name="loop")], "never folded"),
    "unknown op": ([Node("r", "MyOwnOp", (*node("", "", "f").inputs,))], "unknown op MyOwnOp"),
    "no CPU kernel": ([node("r", "Abs", "t", T=DType.STRING)], "has no CPU kernel"),
}


@BOTH
@pytest.mark.parametrize("case", NOT_FOLDED)
def test_unfoldable_node_is_skipped_with_a_reason(case, tf115):
    nodes, reason = NOT_FOLDED[case]
    result = fold(
        placeholder(),
        const("c", [2], np.int32),
        const("f", [2]),
        const("t", np.array([b"a"], object), object),
        *nodes,
        node("out", "Add", "x r"),
        tf115=tf115,
    )
    assert "r" in result.graph
    assert result.matched == 0
    assert len(result.skipped) == 1
    assert reason in next(iter(result.skipped))


@BOTH
def test_inputs_of_unsupported_nodes_are_folded(tf115, monkeypatch):
    def none_for_relu(op):
        return None if op == "Relu" else find_kernel(op)

    monkeypatch.setattr(
        "mobileprep.transforms.rewriting.constant_folding.find_kernel", none_for_relu
    )
    result = fold(
        placeholder(),
        const("c", [2]),
        node("neg", "Neg", "c"),
        node("r", "Relu", "neg"),
        node("out", "Add", "x r"),
        tf115=tf115,
    )
    assert result.matched == 1
    assert result.graph["r"].op == "Relu"
    assert result.skipped == {"no kernel for Relu": 1}


@BOTH
def test_nodes_without_kernel_support_are_skipped(tf115, monkeypatch):
    def unsupported(node, *inputs):
        message = "not this Relu"
        raise UnsupportedError(message)

    def none_for_this_relu(op):
        return unsupported if op == "Relu" else find_kernel(op)

    monkeypatch.setattr("mobileprep.ops.constant_evaluation.find_kernel", none_for_this_relu)
    result = fold(
        placeholder(),
        const("c", [2]),
        node("neg", "Neg", "c"),
        node("r", "Relu", "neg"),
        node("r2", "Neg", "r"),
        node("out", "Add", "x r2"),
        tf115=tf115,
    )
    assert result.matched == 1
    assert result.graph["r2"].op == "Neg"
    assert result.skipped == {"no kernel for this Relu": 1}


@BOTH
def test_a_fed_tensor_is_not_constant(tf115):
    graph = folded(
        placeholder(),
        const("c", 1),
        node("d", "PlaceholderWithDefault", "c", T=None, dtype=DType.FLOAT, shape=attr.shape(())),
        node("neg", "Neg", "d"),
        node("out", "Add", "x neg"),
        inputs=("x", "d"),
        tf115=tf115,
    )
    assert graph["neg"].op == "Neg"


@BOTH
def test_unfed_default_is_folded(tf115):
    graph = folded(
        placeholder(),
        const("c", 1),
        node("d", "PlaceholderWithDefault", "c", T=None, dtype=DType.FLOAT, shape=attr.shape(())),
        node("neg", "Neg", "d"),
        node("out", "Add", "x neg"),
        tf115=tf115,
    )
    assert sorted(n.op for n in graph) == ["Add", "Const", "Placeholder"]


@BOTH
@pytest.mark.parametrize("options", [{"exclude_op": ("Add",)}, {"exclude_node": ("sum",)}])
def test_excluded_ops_stay(options, tf115):
    result = fold(*SUM, tf115=tf115, **options)
    assert result.graph["sum"].op == "Add"
    assert result.skipped == {"excluded": 1}


@BOTH
def test_a_large_result_stays_computed(tf115):
    result = fold(*SUM, tf115=tf115, max_constant_size_in_bytes=7)
    assert result.graph["sum"].op == "Add"
    assert result.skipped == {"larger than 7 bytes": 1}
    assert fold(*SUM, tf115=tf115, max_constant_size_in_bytes=8).matched == 1


def test_a_negative_limit_is_none_for_the_original_alone():
    assert fold(*SUM, tf115=True, max_constant_size_in_bytes=-1).matched == 1
    assert not fold(*SUM, tf115=False, max_constant_size_in_bytes=-1).matched


def test_a_list_without_values_becomes_a_constant_of_the_original_alone():
    kinds = {"T": None, "element_dtype": DType.FLOAT}
    nodes = [
        placeholder(),
        const("shape", [4], np.int32),
        const("n", 2, np.int32),
        node("list", "TensorListReserve", "shape n", shape_type=DType.INT32, **kinds),
        node("out", "TensorListPushBack", "list x", **kinds),
    ]
    held = folded(*nodes, tf115=True)["list/_0__cf__0"].attr_tensor("value")
    assert (held.dtype, held.shape) == (DType.VARIANT, ())
    assert folded(*nodes)["list"].op == "TensorListReserve"


def test_function_call_and_library_stay():
    arg = ArgDef("a", DType.FLOAT)
    library = Library({"F": Function(OpDef("F", inputs=(arg,), outputs=(arg,)))})
    nodes = [placeholder(), const("c", 1), Node("f", "F", node("", "", "c").inputs)]
    graph = Graph([*nodes, node("out", "Add", "x f")], library)
    result = apply("fold_constants", graph)
    assert result.graph.library is library
    assert result.skipped == {"function call": 1}


# The original's import.


def test_the_original_writes_out_default_attributes():
    graph = folded(placeholder(), node("out", "Softmax", "x", T=None), tf115=True)
    assert "T" not in graph["out"].attrs
    squeezed = folded(placeholder(), node("out", "Squeeze", "x"), tf115=True)
    assert squeezed["out"].attrs["squeeze_dims"].value == ()
    assert "squeeze_dims" not in folded(placeholder(), node("out", "Squeeze", "x"))["out"].attrs


@BOTH
def test_unknown_attribute_stays(tf115):
    graph = folded(
        placeholder(),
        const("c", 1),
        node("d", "Neg", "c"),
        node("out", "Add", "x d", _mine="yes", grad_x=True),
        tf115=tf115,
    )
    assert graph["out"].attr_bool("grad_x")
    assert [n.op for n in graph].count("Neg") == 0


def test_original_orders_nodes_by_readiness():
    graph = folded(
        node("out", "Add", "b a"),
        node("b", "Relu", "x"),
        const("a", 1),
        placeholder(),
        tf115=True,
    )
    assert names(graph) == ["a", "b", "out", "x"]


def test_the_original_counts_on_over_the_steps_of_a_chain():
    context = Context(("x",), ("out",), tf115=True)
    first = make_transform("fold_constants", {"exclude_op": ["Neg"]})
    graph = Graph([*SUM[:4], node("neg", "Neg", "sum"), node("out", "Mul", "x neg")])
    once = first.apply(graph, context).graph
    assert "sum/_0__cf__0" in once
    twice = make_transform("fold_constants", {}).apply(once, context).graph
    assert "neg/_0__cf__1" in twice


@BOTH
@pytest.mark.parametrize("taken", [const("sq/_0__cf__0", [5.0]), node("sq/_0__cf__0", "Exp", "x")])
def test_new_names_are_free(taken, tf115):
    """The original makes a second node of the name, which no TensorFlow loads."""
    graph = Graph(
        [
            placeholder(),
            const("k", [2.0]),
            node("sq", "Square", "k"),
            node("out", "Mul", "x sq"),
            taken,
            node("other", "Add", "sq/_0__cf__0 x"),
        ]
    )
    given = {"outputs": ("out", "other"), "tf115": tf115}
    after = fold(*graph, **given).graph
    for output in ("out", "other"):
        assert run(after, np.float32([3]), output) == run(graph, np.float32([3]), output)


@BOTH
def test_colocation_with_removed_nodes_is_removed(tf115):
    beside = AttrValue("list(string)", (b"loc:@gone", b"loc:@x"))
    graph = folded(
        placeholder(),
        const("c", 1),
        node("gone", "Neg", "c", _class=beside),
        node("d", "Neg", "gone"),
        node("out", "Add", "x d", _class=beside),
        tf115=tf115,
    )
    assert graph["out"].attrs["_class"].value == (b"loc:@x",)


# Errors.


@BOTH
def test_a_node_that_cannot_be_computed_is_an_error(tf115):
    with pytest.raises(TransformError, match=r"'sum' \(Add\)"):
        fold(
            placeholder(),
            const("a", [1, 2]),
            const("b", [1, 2, 3]),
            node("sum", "Add", "a b"),
            node("out", "Add", "x sum"),
            tf115=tf115,
        )


def test_the_original_needs_every_placeholder_fed():
    with pytest.raises(TransformError, match="placeholder 'x'") as caught:
        fold(placeholder(), node("out", "Relu", "x"), inputs=(), tf115=True)
    assert "inputs" in caught.value.hint
    assert names(folded(placeholder(), node("out", "Relu", "x"), inputs=())) == ["x", "out"]


def test_the_original_takes_only_placeholders_for_inputs():
    nodes = [placeholder(), node("y", "Relu", "x"), node("out", "Neg", "y")]
    with pytest.raises(TransformError, match="'y' is a Relu"):
        fold(*nodes, inputs=("y",), tf115=True)
    assert names(folded(*nodes, inputs=("y",))) == ["x", "y", "out"]


def test_an_input_that_is_an_output_is_an_error_of_the_original():
    nodes = [placeholder(), node("out", "Relu", "x")]
    with pytest.raises(TransformError, match="'x' is an input and an output"):
        fold(*nodes, outputs=("out", "x"), tf115=True)
    assert names(folded(*nodes, outputs=("out", "x"))) == ["x", "out"]


@BOTH
def test_outputs_must_be_named(tf115):
    with pytest.raises(TransformError, match="no outputs"):
        fold(*SUM, outputs=(), tf115=tf115)


@BOTH
@pytest.mark.parametrize("wrong", [{"inputs": ("y",)}, {"outputs": ("sun",)}])
def test_a_name_that_is_not_there_is_an_error(wrong, tf115):
    with pytest.raises(InvalidGraphError, match="is not in the graph"):
        fold(*SUM, tf115=tf115, **wrong)


def test_a_long_chain_is_folded():
    chain = [const("n0", 1), *(node(f"n{i}", "Neg", f"n{i - 1}") for i in range(1, 3001))]
    graph = folded(placeholder(), *chain, node("out", "Add", "x n3000"))
    assert names(graph) == ["x", "n3000", "out"]
    assert value(graph, "n3000") == 1


def test_large_results_of_fed_shapes_are_folded():
    fed = Node(
        "x", "Placeholder", attrs={"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((32, 32))}
    )
    graph = folded(
        fed,
        node("size", "Shape", "x", out_type=DType.INT32),
        const("one", 1.0),
        node("ones", "Fill", "size one", index_type=DType.INT32),
        node("out", "Mul", "x ones"),
        max_constant_size_in_bytes=1 << 20,
    )
    assert graph["ones"].op == "Const"
    assert graph["ones"].attr_tensor("value").shape == (32, 32)
