"""raise_control_flow: loops and conditionals of TensorFlow 1 as While and If."""

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from tests.transforms.graphs import apply, const, node, placeholder, shown

INT, BOOL = DType.INT32, DType.BOOL
X = np.array([1.5, -2.0, 3.0], np.float32)


def enter(name, source, frame="loop", constant=False, kind=DType.FLOAT):
    return node(name, "Enter", source, T=kind, frame_name=frame, is_constant=constant)


def counted(turns, *, frame="loop", prefix=""):
    """A loop's counter, and the node ``on`` that says whether there is a next turn."""
    p = prefix
    return [
        const(f"{p}zero", 0, np.int32),
        const(f"{p}turns", turns, np.int32),
        const(f"{p}one", 1, np.int32, inputs=f"^{p}count"),
        enter(f"{p}begin", f"{p}zero", frame, kind=INT),
        enter(f"{p}most", f"{p}turns", frame, constant=True, kind=INT),
        node(f"{p}head", "Merge", f"{p}begin {p}back", T=INT, N=2),
        node(f"{p}less", "Less", f"{p}head {p}most", T=INT),
        node(f"{p}on", "LoopCond", f"{p}less", T=None),
        node(f"{p}gate", "Switch", f"{p}head {p}on", T=INT),
        node(f"{p}count", "Identity", f"{p}gate:1", T=INT),
        node(f"{p}next", "Add", f"{p}count {p}one", T=INT),
        node(f"{p}back", "NextIteration", f"{p}next", T=INT),
    ]


def variable(name, begin, after, frame="loop", prefix="", kind=DType.FLOAT):
    """A loop variable: ``NAME/now`` in the body, ``NAME/out`` behind the loop."""
    return [
        enter(f"{name}/enter", begin, frame, kind=kind),
        node(f"{name}/head", "Merge", f"{name}/enter {name}/back", T=kind, N=2),
        node(f"{name}/gate", "Switch", f"{name}/head {prefix}on", T=kind),
        node(f"{name}/now", "Identity", f"{name}/gate:1", T=kind),
        node(f"{name}/back", "NextIteration", after, T=kind),
        node(f"{name}/out", "Exit", f"{name}/gate", T=kind),
    ]


def doubling(turns=3, begin="x"):
    """x doubled some times."""
    return [
        *counted(turns),
        *variable("v", begin, "v/twice"),
        node("v/twice", "Add", "v/now v/now"),
    ]


def choice(
    name="c",
    given="x",
    decided="flag",
    then="Neg",
    other="Square",
):
    """One of two ops on a tensor."""
    return [
        node(f"{name}/switch", "Switch", f"{given} {decided}"),
        node(f"{name}/yes", then, f"{name}/switch:1"),
        node(f"{name}/no", other, f"{name}/switch"),
        node(f"{name}/merge", "Merge", f"{name}/no {name}/yes", N=2),
    ]


FLAG = placeholder("flag", BOOL)


def shaped(*shape, name="x"):
    from mobileprep.graph import attrs as attr

    return placeholder(name).with_attrs(shape=attr.shape(shape))


def same(nodes, outputs, feeds=None, **options):
    """The raised graph, after it was compared with the graph as it was."""
    graph = Graph(nodes)
    feeds = {"x": X} if feeds is None else feeds
    result = apply("raise_control_flow", graph, inputs=tuple(feeds), outputs=outputs, **options)
    wanted = NumpyEngine(graph, "before").run(outputs, feeds)
    found = NumpyEngine(result.graph, "after").run(outputs, feeds)
    for before, after in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(before, after)
    return result


def ops(graph):
    return sorted({n.op for n in graph})


def raised_ops(result):
    bodies = [n for f in result.graph.library.functions.values() for n in f.nodes]
    return {n.op for n in (*result.graph, *bodies)}


GATES = {"Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"}


def test_golden():
    result = same([placeholder(), *doubling()], ["v/out"])
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "zero = Const() value=int32[]:0\n"
        "while = StatelessWhile(x, zero) T=1,3 body=FuncRef(name='while_body', attrs={}) "
        "cond=FuncRef(name='while_cond', attrs={}) output_shapes= parallel_iterations=10\n"
        "v/out = Identity(while) T=float32"
    )
    functions = result.graph.library.functions
    assert list(functions) == ["while_cond", "while_body"]
    assert [n.op for n in functions["while_cond"].nodes] == ["Const", "Less"]
    assert not raised_ops(result) & GATES


def test_graph_without_control_flow_does_not_change():
    graph = Graph([placeholder(), node("out", "Neg", "x")])
    assert apply("raise_control_flow", graph).graph is graph


def test_a_loop_that_does_not_turn():
    same([placeholder(), *doubling(0)], ["v/out"])


def test_outer_values_of_a_loop_become_inputs():
    nodes = [
        placeholder(),
        node("outer", "Square", "x"),
        *counted(4),
        *variable("v", "x", "v/more"),
        enter("outer/enter", "outer", constant=True),
        node("v/more", "Add", "v/now outer/enter"),
    ]
    result = same(nodes, ["v/out"])
    assert [str(r) for r in result.graph["while"].inputs][-1] == "outer"


@pytest.mark.parametrize("unroll", [0, 3])
def test_loop_reads_results_of_another_loop(unroll):
    nodes = [
        placeholder(),
        *doubling(3),
        *counted(4, frame="second", prefix="2/"),
        *variable("w", "x", "w/more", "second", "2/"),
        enter("given", "v/out", "second", constant=True),
        node("w/more", "Add", "w/now given"),
    ]
    result = same(nodes, ["w/out"], unroll=unroll)
    assert result.matched == 2
    assert not raised_ops(result) & GATES


def test_growing_loop_has_an_open_shape():
    """TensorFlow takes the shape of what enters for that of what leaves, where nothing is told."""
    nodes = [
        shaped(3),
        *counted(2),
        *variable("v", "x", "longer"),
        enter("x/enter", "x", constant=True),
        const("axis", 0, np.int32, "^count"),
        node("longer", "ConcatV2", "v/now x/enter axis", N=2, Tidx=INT),
    ]
    made = same(nodes, ["v/out"]).graph["while"]
    assert made.attr_shapes("output_shapes") == ((-1,), (), (3,))
    assert "output_shapes" in made.attrs
    steady = same([shaped(3), *doubling()], ["v/out"]).graph["while"]
    assert not steady.attr_shapes("output_shapes")


def test_a_loop_in_a_loop():
    nodes = [
        placeholder(),
        *counted(3),
        *variable("v", "x", "w/out"),
        *counted(2, frame="inner", prefix="in/"),
        *variable("w", "v/now", "w/twice", "inner", "in/"),
        node("w/twice", "Add", "w/now w/now"),
    ]
    # The inner loop's constants stand in the outer loop.
    held = {"in/zero", "in/turns"}
    nodes = [
        const(n.name, 0 if n.name == "in/zero" else 2, np.int32, "^count") if n.name in held else n
        for n in nodes
    ]
    result = same(nodes, ["v/out"])
    assert result.matched == 2
    assert not raised_ops(result) & GATES


@pytest.mark.parametrize("flag", [True, False])
def test_a_conditional(flag):
    nodes = [placeholder(), FLAG, *choice()]
    result = same(nodes, ["c/merge"], {"x": X, "flag": np.array(flag)})
    assert ops(result.graph) == ["Identity", "Placeholder", "StatelessIf"]


@pytest.mark.parametrize("flag", [True, False])
def test_conditionals_one_after_another_are_one_each(flag):
    nodes = [placeholder(), FLAG, *choice("a"), *choice("b", given="a/merge", then="Exp")]
    result = same(nodes, ["b/merge"], {"x": X, "flag": np.array(flag)})
    assert sum(n.op == "StatelessIf" for n in result.graph) == 2


def test_two_outputs_of_a_conditional_share_its_if():
    more = [
        node("also", "Abs", "c/switch"),
        node("c/merge_1", "Merge", "also c/switch:1", N=2),
        node("out", "Add", "c/merge c/merge_1"),
    ]
    result = same(
        [placeholder(), FLAG, *choice(), *more], ["out"], {"x": X, "flag": np.array(1 > 0)}
    )
    assert sum(n.op == "StatelessIf" for n in result.graph) == 1


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_a_conditional_in_a_branch(flag, inner):
    nodes = [
        placeholder(),
        FLAG,
        placeholder("inner", BOOL),
        node("p", "Switch", "x flag"),
        node("q", "Switch", "inner flag", T=BOOL),
        *choice("c", "p:1", "q:1"),
        node("no", "Exp", "p"),
        node("out", "Merge", "no c/merge", N=2),
    ]
    feeds = {"x": X, "flag": np.array(flag), "inner": np.array(inner)}
    assert same(nodes, ["out"], feeds).matched == 2


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_that_passes_its_input_on_and_one_that_gives_a_constant(flag):
    nodes = [
        placeholder(),
        FLAG,
        node("s", "Switch", "x flag"),
        node("pivot", "Switch", "flag flag", T=BOOL),
        node("on_no", "Identity", "pivot", T=BOOL),
        const("fixed", X * 3, inputs="^on_no"),
        node("out", "Merge", "fixed s:1", N=2),
    ]
    same(nodes, ["out"], {"x": X, "flag": np.array(flag)})


def test_input_of_an_unused_branch_stays():
    nodes = [
        placeholder(),
        placeholder("y"),
        const("default", 1.0),
        node("z", "PlaceholderWithDefault", "default", T=None, dtype=DType.FLOAT),
        const("flag", np.array(False), np.bool_),
        node("sum", "Add", "y z"),
        node("s", "Switch", "x flag"),
        node("t", "Switch", "sum flag"),
        node("c", "Merge", "s t:1", N=2),
    ]
    result = same(nodes, ["c"], {"x": X, "y": X, "z": X})
    assert {"y", "z"} <= result.graph.by_name.keys()


@pytest.mark.parametrize("flag", [True, False])
def test_branch_index_can_be_an_output(flag):
    nodes = [placeholder(), FLAG, *choice(), node("out", "Identity", "c/merge:1", T=INT)]
    same(nodes, ["out"], {"x": X, "flag": np.array(flag)})


def test_a_branch_by_a_constant_is_decided():
    nodes = [placeholder(), const("flag", True, np.bool_), *choice()]
    result = same(nodes, ["c/merge"])
    assert ops(result.graph) == ["Identity", "Neg", "Placeholder"]


@pytest.mark.parametrize("flag", [True, False])
def test_a_loop_in_a_branch(flag):
    nodes = [
        placeholder(),
        FLAG,
        node("s", "Switch", "x flag"),
        *doubling(begin="s:1"),
        node("no", "Neg", "s"),
        node("out", "Merge", "no v/out", N=2),
    ]
    same(nodes, ["out"], {"x": X, "flag": np.array(flag)})


def test_a_conditional_in_a_loop():
    nodes = [
        placeholder(),
        *counted(4),
        *variable("v", "x", "c/merge"),
        const("two", 2, np.int32, "^count"),
        node("odd", "FloorMod", "count two", T=INT),
        node("is_odd", "Cast", "odd", T=None, SrcT=INT, DstT=BOOL),
        *choice("c", "v/now", "is_odd"),
    ]
    result = same(nodes, ["v/out"])
    assert result.matched == 2


@pytest.mark.parametrize(("turns", "most", "left"), [(3, 3, False), (4, 3, True), (0, 1, False)])
def test_unrolling(turns, most, left):
    result = same([placeholder(), *doubling(turns)], ["v/out"], unroll=most)
    assert ("StatelessWhile" in ops(result.graph)) == left
    assert len(result.graph.library.functions) == 2 * left


def test_turns_that_follow_from_the_shape_of_an_input_are_counted():
    nodes = [n for n in doubling() if n.name != "turns"]
    count = [
        node("sizes", "Shape", "x", out_type=INT),
        const("which", 0, np.int32),
        node(
            "turns", "GatherV2", "sizes which which", T=None, Tparams=INT, Tindices=INT, Taxis=INT
        ),
    ]
    result = same([shaped(3), *count, *nodes], ["v/out"], unroll=3)
    assert "StatelessWhile" not in ops(result.graph)


def test_a_constant_that_is_fed_counts_no_turns():
    graph = Graph([placeholder(), *doubling(3)])
    options = {"inputs": ("x", "turns"), "outputs": ("v/out",), "unroll": 5}
    after = apply("raise_control_flow", graph, **options).graph
    (found,) = NumpyEngine(after, "fed").run(["v/out"], {"x": X, "turns": np.array(1, np.int32)})
    np.testing.assert_array_equal(found, 2 * X)


def array(size="size", **attrs):
    told = {"dynamic_size": False, "identical_element_shapes": True, "clear_after_read": False}
    return node("array", "TensorArrayV3", size, T=None, dtype=DType.FLOAT, **{**told, **attrs})


def writing(turns=4, value="scaled", **attrs):
    """An array that a loop fills, and all of its elements."""
    return [
        const("size", turns, np.int32),
        array(**attrs),
        *counted(turns),
        *variable("flow", "array:1", "write"),
        enter("handle", "array", constant=True, kind=DType.RESOURCE),
        enter("x/enter", "x", constant=True),
        node("number", "Cast", "count", T=None, SrcT=INT, DstT=DType.FLOAT),
        node("scaled", "Mul", "x/enter number"),
        node("write", "TensorArrayWriteV3", f"handle count {value} flow/now"),
        node("all", "Range", "zero size one_", T=None, Tidx=INT),
        const("one_", 1, np.int32),
        node("out", "TensorArrayGatherV3", "array all flow/out", T=None, dtype=DType.FLOAT),
    ]


def test_an_array_that_a_loop_fills():
    result = same([shaped(3), *writing()], ["out"])
    assert result.matched == 2
    assert not any(op.startswith("TensorArray") for op in raised_ops(result))


def nested(**attrs):
    """An array in a loop, in which its size alone tells that it is, and a loop that fills it."""
    return [
        *counted(3),
        *variable("v", "x", "sum"),
        const("size", 2, np.int32, "^count"),
        array(**attrs),
        *(
            const(n.name, n.attr_tensor("value").array(), np.int32, "^count")
            if n.name in ("in/zero", "in/turns")
            else n
            for n in counted(2, frame="inner", prefix="in/")
        ),
        *variable("flow", "array:1", "write", "inner", "in/"),
        enter("handle", "array", "inner", constant=True, kind=DType.RESOURCE),
        enter("x/loop", "x", constant=True),
        enter("x/inner", "x/loop", "inner", constant=True),
        node("write", "TensorArrayWriteV3", "handle in/count x/inner flow/now"),
        const("axis", 0, np.int32, "^count"),
        node("held/sum", "Sum", "held axis", Tidx=INT),
        node("sum", "Add", "v/now held/sum"),
        node("out", "Identity", "v/out"),
    ]


def test_an_array_in_a_loop_that_another_fills():
    places = const("places", [0, 1], np.int32, "^count")
    read = node("held", "TensorArrayGatherV3", "array places flow/out", T=None, dtype=DType.FLOAT)
    same([shaped(3), *nested(), places, read], ["out"])


def test_joined_elements_in_a_loop():
    # The elements have as many numbers as the input, which are not known.
    read = node("held/all", "TensorArrayConcatV3", "array flow/out", T=None, dtype=DType.FLOAT)
    shape = const("shape", [2, -1], np.int32, "^count")
    rows = node("held", "Reshape", "held/all shape", Tshape=INT)
    same([shaped(-1), *nested(identical_element_shapes=False), read, shape, rows], ["out"])


def test_an_array_that_grows():
    nodes = [
        n if n.name != "size" else const("size", 0, np.int32) for n in writing(dynamic_size=True)
    ]
    nodes = [
        n if n.name != "all" else node("all", "Range", "zero turns one_", T=None, Tidx=INT)
        for n in nodes
    ]
    same([shaped(3), *nodes], ["out"])


def test_elements_whose_first_size_is_that_of_an_input():
    same([shaped(-1), *writing()], ["out"])


def longer(**attrs):
    """An array of elements that are twice as long as the input."""
    joined = node("longer", "ConcatV2", "x/enter scaled axis", N=2, Tidx=INT)
    axis = [const("axis/value", 0, np.int32), enter("axis", "axis/value", constant=True, kind=INT)]
    return [shaped(-1), *axis, joined, *writing(value="longer", **attrs)]


@pytest.mark.parametrize("grows", [False, True])
def test_elements_of_a_size_that_their_op_decides(grows):
    same(longer(dynamic_size=grows), ["out"])
    same(longer(dynamic_size=grows), ["out"], {"x": np.ones(1, np.float32)})


def test_elements_that_may_differ_in_size_are_refused():
    """Each would be as long as the longest."""
    nodes = longer(identical_element_shapes=False)
    refused(nodes, ["out"], UnsupportedError, "'array'.*has elements of unknown size along 0")


def test_elements_of_unknown_rank_are_refused():
    with pytest.raises(UnsupportedError, match=r"'array' \(TensorArrayV3\) has elements of unk"):
        same([placeholder(), *writing()], ["out"])


def test_unstacked_tensor_is_read():
    nodes = [
        shaped(3),
        const("size", 3, np.int32),
        array(),
        const("all", [0, 1, 2], np.int32),
        node("parts", "TensorArrayScatterV3", "array all x array:1"),
        const("place", 1, np.int32),
        node("out", "TensorArrayReadV3", "array place parts", T=None, dtype=DType.FLOAT),
        node("count", "TensorArraySizeV3", "array parts", T=None),
    ]
    result = same(nodes, ["out", "count"])
    assert "TensorScatterUpdate" not in ops(result.graph)


def test_elements_of_many_lengths_are_joined():
    nodes = [
        placeholder(),
        const("size", 3, np.int32),
        array(identical_element_shapes=False),
        *counted(3),
        *variable("flow", "array:1", "write"),
        enter("handle", "array", constant=True, kind=DType.RESOURCE),
        const("from", 0, np.int32, "^count"),
        node("numbers", "Range", "from next one", T=None, Tidx=INT),
        node("floats", "Cast", "numbers", T=None, SrcT=INT, DstT=DType.FLOAT),
        node("write", "TensorArrayWriteV3", "handle count floats flow/now"),
        node("out", "TensorArrayConcatV3", "array flow/out", T=None, dtype=DType.FLOAT),
    ]
    result = same(nodes, ["out"])
    assert "ConcatV2" in raised_ops(result)


def refused(nodes, outputs, kind, message):
    graph = Graph(nodes)
    with pytest.raises(kind, match=message) as caught:
        apply("raise_control_flow", graph, outputs=outputs)
    assert caught.value.hint


def test_a_next_iteration_outside_of_a_loop():
    nodes = [placeholder(), node("n", "NextIteration", "x"), node("m", "Merge", "x n", N=2)]
    refused(nodes, ["m"], InvalidGraphError, "'n'.*goes round a loop that it is not in")


def test_an_exit_outside_of_a_loop():
    refused([placeholder(), node("e", "Exit", "x")], ["e"], InvalidGraphError, "leaves a loop")


def test_an_enter_without_a_frame():
    nodes = [n.without_attrs("frame_name") if n.name == "begin" else n for n in doubling()]
    refused([placeholder(), *nodes], ["v/out"], InvalidGraphError, "'begin'.*'frame_name'")


def test_a_loop_without_a_condition():
    nodes = [
        placeholder(),
        enter("e", "x"),
        node("m", "Merge", "e n", N=2),
        node("n", "NextIteration", "m"),
        node("out", "Exit", "m"),
    ]
    refused(nodes, ["out"], InvalidGraphError, "a loop with 0 conditions")


def test_a_head_that_joins_three():
    nodes = [n for n in doubling() if n.name != "v/head"]
    head = node("v/head", "Merge", "v/enter v/back v/enter", N=3)
    refused([placeholder(), *nodes, head], ["v/out"], InvalidGraphError, "'v/head'.*does not join")


def test_a_merge_of_three():
    nodes = [placeholder(), FLAG, *choice()]
    nodes[-1] = node("c/merge", "Merge", "c/no c/yes c/yes", N=3)
    refused(nodes, ["c/merge"], UnsupportedError, "'c/merge'.*joins 3 branches")


def test_merge_of_unconditional_values():
    nodes = [placeholder(), FLAG, *choice()]
    nodes[-1] = node("c/merge", "Merge", "x c/yes", N=2)
    refused(nodes, ["c/merge"], UnsupportedError, "does not join two branches")


def test_a_tensor_of_one_branch_alone():
    refused([placeholder(), FLAG, *choice()], ["c/yes"], UnsupportedError, "in one branch alone")


def test_nodes_in_a_circle():
    nodes = [placeholder(), node("a", "Add", "x b"), node("b", "Switch", "a x")]
    refused(nodes, ["b"], InvalidGraphError, "circle")


def test_an_array_whose_handle_goes_elsewhere():
    nodes = [
        const("size", 2, np.int32),
        array(),
        node("out", "Identity", "array", T=DType.RESOURCE),
    ]
    more = node("odd", "Pack", "out out", T=DType.RESOURCE, N=2)
    refused([*nodes, more], ["odd"], UnsupportedError, "'odd'.*takes a TensorArray")


def test_loops_deeper_than_any_model_are_refused():
    nodes = [placeholder()]
    source = "x"
    for i in range(200):
        nodes.append(enter(f"e{i}", source, f"f{i}"))
        source = f"e{i}"
    refused([*nodes, node("out", "Neg", source)], ["out"], InvalidGraphError, "more than 64")


def test_conditionals_deeper_than_any_model_are_refused():
    nodes, source = [placeholder()], "x"
    for i in range(100):
        nodes += [placeholder(f"p{i}", BOOL), node(f"s{i}", "Switch", f"{source} p{i}")]
        source = f"s{i}:1"
    merge = node("out", "Merge", f"{source} s99", N=2)
    refused([*nodes, merge], ["out"], UnsupportedError, "more than 64 conditionals")


def test_an_array_without_a_size():
    nodes = [n.with_inputs(()) if n.name == "array" else n for n in writing()]
    refused([shaped(3), *nodes], ["out"], InvalidGraphError, "'array'.*takes 0 tensors, not 1")


def test_a_stack_that_a_loop_fills_for_its_gradient():
    # Nothing takes what is pushed: without its control inputs a stack would stay empty.
    nodes = [
        placeholder(),
        *doubling(),
        const("room", 3, np.int32),
        node("kept", "StackV2", "room", T=None, elem_type=DType.FLOAT),
        enter("kept/enter", "kept", constant=True, kind=DType.RESOURCE),
        node("push", "StackPushV2", "kept/enter v/now"),
        node("pop", "StackPopV2", "kept ^v/out", T=None, elem_type=DType.FLOAT),
        node("out", "Add", "pop v/out"),
    ]
    refused(nodes, ["out"], UnsupportedError, "'kept' .StackV2. keeps the turns of a loop")


def test_loop_that_needs_its_own_result_is_refused():
    nodes = [
        placeholder(),
        *doubling(),
        enter("again", "v/out", constant=True),
        node("w", "Add", "v/twice again"),
    ]
    nodes = [n.with_inputs((Ref("w"),)) if n.name == "v/back" else n for n in nodes]
    refused(nodes, ["v/out"], InvalidGraphError, "a loop that depends on its own output")


@pytest.mark.parametrize("seed", range(60))
def test_graphs_whose_inputs_are_mixed_up_are_raised_or_refused(seed):
    """Each node but a few takes what it should."""
    random = np.random.default_rng(seed)
    nodes = [shaped(3), *writing(), FLAG, *choice("c", "out")]
    names = [n.name for n in nodes]
    for _ in range(3):
        place = int(random.integers(len(nodes)))
        refs = list(nodes[place].data_inputs)
        if refs:
            source = names[int(random.integers(len(names)))]
            refs[int(random.integers(len(refs)))] = Ref(source, int(random.integers(2)))
            nodes[place] = nodes[place].with_inputs(tuple(refs))
    for unroll in (0, 4):
        try:
            result = apply("raise_control_flow", Graph(nodes), outputs=["c/merge"], unroll=unroll)
        except (InvalidGraphError, UnsupportedError) as error:
            assert error.hint
        else:
            assert not raised_ops(result) & GATES
