"""Folded constants where 1.15 puts them, under its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.transforms.node_removal import remove_in_rounds
from mobileprep.transforms.tf115 import (
    NodeHashes,
    Tf115Values,
    combine,
    copies_warning,
    import_order,
    imported_nodes,
)
from tests.transforms.graphs import apply, const, node, placeholder


def folded(
    *nodes: Node, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("out",)
) -> Graph:
    return apply("fold_constants", Graph(nodes), inputs=inputs, outputs=outputs, tf115=True).graph


SUM = [
    placeholder(),
    const("a", 1.0),
    const("b", 2.0),
    node("sum", "Add", "a b"),
    node("out", "Mul", "x sum"),
]


def test_constant_has_the_name_of_the_replaced_node() -> None:
    graph = folded(*SUM)
    assert {n.name for n in graph} == {"x", "sum/_0__cf__0", "out"}
    assert [str(r) for r in graph["out"].inputs] == ["x:0", "sum/_0__cf__0"]
    assert graph["sum/_0__cf__0"].attr_tensor("value").array().item() == 3


def test_constants_are_numbered_in_order_of_replaced_names() -> None:
    nodes = [
        placeholder(),
        const("c", 1.0),
        node("z", "Neg", "c"),
        node("y", "Exp", "c"),
        node("first", "Mul", "x z"),
        node("out", "Mul", "first y"),
    ]
    names = {n.name for n in folded(*nodes) if n.op == "Const"}
    assert names == {"y/_0__cf__0", "z/_1__cf__1"}


def test_inputs_stay_though_nothing_needs_them_and_come_last() -> None:
    graph = folded(*SUM, placeholder("unused"), inputs=("x", "unused"))
    assert {"x", "unused"} < {n.name for n in graph}
    assert {n.name for n in graph.nodes[-2:]} == {"x", "unused"}


def test_nodes_without_outputs_are_removed() -> None:
    graph = folded(*SUM, node("aside", "Neg", "x"))
    assert "aside" not in graph


def test_a_placeholder_with_a_default_loses_it() -> None:
    default = node("x", "PlaceholderWithDefault", "a", T=None)
    graph = folded(default, *SUM[1:])
    assert graph["x"].op == "Placeholder"
    assert graph["x"].inputs == ()


def test_non_placeholder_input_is_an_error() -> None:
    with pytest.raises(TransformError, match="the input 'mid' is a Neg, not a placeholder"):
        folded(placeholder(), node("mid", "Neg", "x"), node("out", "Neg", "mid"), inputs=("mid",))


def test_an_input_that_is_an_output_is_an_error() -> None:
    with pytest.raises(TransformError, match="'x' is an input and an output"):
        folded(*SUM, outputs=("x", "out"))


BIG, SMALL = const("big", range(300)), const("small", [1, 2])
BEFORE = Graph([placeholder(), BIG, SMALL])


def told(*names: str) -> str:
    """The warning of a step that copied these constants."""
    copies = [replace(BEFORE[name], name=f"copy_{i}") for i, name in enumerate(names)]
    return copies_warning("fold", BEFORE, Graph([*BEFORE, *copies]))


def test_copies_are_counted_with_their_bytes() -> None:
    assert told("big").startswith("fold: 1 constants are duplicated now, 1,200 bytes more, ")
    assert told("big", "small").startswith("fold: 2 constants are duplicated now, 1,208 bytes")
    assert told("big", "big").startswith("fold: 2 constants are duplicated now, 2,400 bytes")


def test_hint_names_the_step() -> None:
    assert "put remove_nodes(op=Identity) before fold, or merge_duplicate_nodes" in told("big")


def test_new_removed_and_moved_constants_are_not_copies() -> None:
    assert told() == ""
    new = [const("new", [5, 6]), const("newer", [5, 6])]
    assert copies_warning("fold", BEFORE, Graph([*BEFORE, *new])) == ""
    assert copies_warning("fold", BEFORE, Graph([replace(BIG, name="other")])) == ""
    assert copies_warning("fold", BEFORE, BEFORE) == ""


def test_existing_copies_are_not_reported_again() -> None:
    twice = Graph([*BEFORE, replace(BIG, name="copy")])
    assert copies_warning("fold", twice, Graph([*twice])) == ""


def plain(name: str, inputs: str = "", op: str = "Op") -> Node:
    return Node(name, op, tuple(parse_ref(i) for i in inputs.split()))


def order(*nodes: Node) -> str:
    return " ".join(n.name for n in import_order(Graph(nodes)))


def test_a_node_comes_after_all_that_it_takes() -> None:
    assert order(plain("c", "b ^a"), plain("b", "a a:1"), plain("a")) == "a b c"


def test_of_those_that_may_come_the_first_listed_does() -> None:
    assert order(plain("d", "b"), plain("a"), plain("c", "a"), plain("b")) == "a c b d"


LOOP = [
    plain("merge", "enter next ^first", op="Merge"),
    plain("next", "body", op="NextIteration"),
    plain("body", "merge"),
    plain("enter"),
    plain("first"),
]


def test_a_merge_waits_for_no_turn_of_its_loop_but_for_control_inputs() -> None:
    assert order(*LOOP) == "enter first merge body next"


def test_a_merge_of_branches_waits_for_both() -> None:
    assert order(plain("m", "a b", op="Merge"), plain("a"), plain("b")) == "a b m"


def test_other_consumers_of_next_iteration_wait() -> None:
    assert order(plain("after", "next"), *LOOP) == "enter first merge body next after"


def test_cycle_error_has_count_and_example() -> None:
    circle = [plain("free"), plain("a", "b free"), plain("b", "a")]
    with pytest.raises(InvalidGraphError, match="2 nodes feed each other in a circle, as 'a'"):
        order(*circle)


def test_missing_attributes_get_defaults() -> None:
    given = node("y", "MatMul", "x x", transpose_a=True)
    _, found = imported_nodes(Graph([placeholder(), given]))
    assert found.attrs["transpose_b"] == AttrValue("bool", False)
    assert found.attrs["transpose_a"] == AttrValue("bool", True)
    assert found.attrs["T"].value is DType.FLOAT


def test_recorded_shapes_go() -> None:
    shapes = AttrValue("list(shape)", ((2,),))
    _, found = imported_nodes(Graph([placeholder(), node("y", "Relu", "x", _output_shapes=shapes)]))
    assert set(found.attrs) == {"T"}


def test_inputs_are_spelt_shortly_and_control_inputs_sorted_each_once() -> None:
    nodes = [plain(n) for n in "abc"] + [plain("y", "b:0 a:1 ^c ^a ^c")]
    found = imported_nodes(Graph(nodes))[-1]
    assert [str(r) for r in found.inputs] == ["b", "a:1", "^a", "^c"]


def test_complete_node_is_not_copied() -> None:
    relu = node("y", "Relu", "x")
    unknown = plain("z", "y", op="MyOwnOp")
    assert imported_nodes(Graph([placeholder(), relu, unknown]))[1:] == [relu, unknown]
    assert imported_nodes(Graph([placeholder(), relu, unknown]))[1] is relu


def test_a_merge_that_loops_waits_for_each_of_its_control_inputs() -> None:
    waits = plain("merge", "enter next ^first ^second", op="Merge")
    assert order(waits, *LOOP[1:], plain("second")) == "enter first second merge body next"


def test_hashes_combine_in_64_bits() -> None:
    most = (1 << 64) - 1
    # By hand: first ^ (second + 0x9E3779B97F4A7800 + (first << 10) + (first >> 4)).
    assert combine(5, 7) == 5 ^ (7 + 0x9E3779B97F4A7800 + 5 * 1024)
    assert combine(16, 0) == 16 ^ (0x9E3779B97F4A7800 + 16 * 1024 + 1)
    assert combine(most, most) == most ^ (
        (most + 0x9E3779B97F4A7800 + (most - 1023) + (most >> 4)) % 2**64
    )


def test_a_name_counts_only_where_it_is_asked_for() -> None:
    a, b = (Node(name, "Op", (Ref("x"),)) for name in "ab")
    plain, named = NodeHashes(Graph([a, b]), ()), NodeHashes(Graph([a, b]), {"a"})
    assert plain.of(a) == plain.of(b) == named.of(b)
    assert named.of(a) != named.of(b)


def test_the_first_output_hashes_the_same_however_it_is_spelt() -> None:
    short, long = Node("a", "Op", (Ref("x"),)), Node("a", "Op", (Ref("x", 0, explicit=True),))
    hashes = NodeHashes(Graph([short]), ())
    assert hashes.of(short) == hashes.of(long)


INT = DType.INT32
PARTLY = (-1, 4, 6)


def ints(name: str, values: object) -> Node:
    return const(name, values, np.int32)


def values(*nodes: Node, shapes: Mapping[str, TensorShape]) -> Tf115Values:
    """The values of a graph in which ``x`` has the shape -1, 4, 6."""
    every = (placeholder(), node("s", "Shape", "x", out_type=INT), *nodes)
    known: dict[str, TensorShape] = {
        n.name: n.attr_tensor("value").shape for n in every if n.op == "Const"
    }
    known |= {"x": PARTLY, "s": (3,), **shapes}
    return Tf115Values({n.name: n for n in every}, lambda ref: known[ref.node])


def read(*nodes: Node, name: str = "to", **shapes: TensorShape) -> TensorShape:
    return values(*nodes, shapes=shapes).as_shape(Ref(name))


def test_sizes_below_minus_one_are_unknown() -> None:
    assert read(ints("to", [2, -1, -5, 0])) == (2, -1, -1, 0)


def test_no_elements_are_the_shape_of_a_scalar() -> None:
    assert read(placeholder("to"), to=(0,)) == ()


@pytest.mark.parametrize(
    ("shape", "found"),
    [(None, None), ((), None), ((2, 2), None), ((-1,), None), ((1,), (-1,)), ((3,), (-1,) * 3)],
)
def test_of_a_feed_the_number_of_sizes_is_all_that_is_known(
    shape: TensorShape, found: TensorShape
) -> None:
    assert read(placeholder("to", INT), to=shape) == found


def test_feeds_longer_than_any_shape_are_unknown() -> None:
    assert read(placeholder("to", INT), to=(254,)) == (-1,) * 254
    assert read(placeholder("to", INT), to=(255,)) is None


def test_a_shape_is_read_though_it_is_partly_known() -> None:
    assert read(name="s") == PARTLY


def test_of_packed_sizes_each_that_is_known_counts() -> None:
    packed = node("to", "Pack", "a f b", T=INT, N=3, axis=0)
    found = read(ints("a", 2), placeholder("f", INT), ints("b", -7), packed, to=(3,), f=())
    assert found == (2, -1, -1)


def test_packed_vectors_are_not_sizes() -> None:
    packed = node("to", "Pack", "a b", T=INT, N=2, axis=0)
    assert read(ints("a", [2, 3]), ints("b", 5), packed, to=(2,)) == (-1, 5)


@pytest.mark.parametrize(("op", "inputs"), [("ConcatV2", "s two axis"), ("Concat", "axis s two")])
def test_joined_shapes_are_read_in_parts(op: str, inputs: str) -> None:
    joined = node("to", op, inputs, T=INT, N=2, Tidx=INT)
    assert read(ints("axis", 0), ints("two", [7, 8]), joined, to=(5,)) == (*PARTLY, 7, 8)


@pytest.mark.parametrize(("depth", "found"), [(64, (7,)), (65, None)])
def test_shapes_are_joined_so_deep_and_no_deeper(depth: int, found: TensorShape) -> None:
    names = ["s0", *(f"s{i}" for i in range(1, depth)), "to"]
    joined = [
        node(name, "ConcatV2", f"none {before} axis", T=INT, N=2, Tidx=INT)
        for before, name in pairwise(names)
    ]
    known = dict.fromkeys(names[1:], (1,))
    first = [ints("axis", 0), ints("none", []), ints("s0", [7])]
    assert read(*first, *joined, **known) == found


def cut(begin: object, end: object, stride: object = (1,), **masks: int) -> list[Node]:
    bounds = [ints("begin", begin), ints("end", end), ints("stride", stride)]
    return [*bounds, node("to", "StridedSlice", "s begin end stride", T=INT, Index=INT, **masks)]


@pytest.mark.parametrize(
    ("begin", "end", "stride", "masks", "found"),
    [
        ([0], [1], [1], {}, (-1,)),
        ([1], [3], [1], {}, (4, 6)),
        ([-1], [9], [1], {}, (6,)),
        ([2], [0], [-1], {}, (6, 4)),
        ([0], [3], [2], {}, (-1, 6)),
        ([1], [2], [1], {"begin_mask": 1}, (-1, 4)),
        ([1], [2], [1], {"end_mask": 1}, (4, 6)),
        ([1], [2], [1], {"begin_mask": 1, "end_mask": 1}, PARTLY),
        ([1], [2], [0], {}, None),
    ],
)
def test_a_slice_of_a_shape_is_cut_as_its_masks_say(
    begin: list[int], end: list[int], stride: list[int], masks: dict[str, int], found: TensorShape
) -> None:
    assert read(*cut(begin, end, stride, **masks), to=(2,)) == found


@pytest.mark.parametrize(
    "masks",
    [
        {"begin_mask": 2},
        {"end_mask": 3},
        {"shrink_axis_mask": 1},
        {"ellipsis_mask": 1},
        {"new_axis_mask": 1},
    ],
)
def test_a_slice_with_other_masks_is_unknown(masks: dict[str, int]) -> None:
    assert read(*cut([1], [2], **masks), to=(1,)) is None


def test_a_slice_of_several_axes_is_unknown() -> None:
    assert read(*cut([1, 0], [2, 1], [1, 1]), to=(1,)) is None


def test_a_bound_that_is_not_known_is_needed_unless_a_mask_says_no() -> None:
    bounds = [placeholder("begin", INT), ints("end", [2]), ints("stride", [1])]

    def found(**masks: int) -> TensorShape:
        sliced = node("to", "StridedSlice", "s begin end stride", T=INT, Index=INT, **masks)
        return read(*bounds, sliced, to=(2,), begin=(1,))

    assert found() is None
    assert found(end_mask=1) is None
    assert found(begin_mask=1) == (-1, 4)


def test_a_value_is_found_that_needs_a_shape_once_and_not_one_that_needs_it_twice() -> None:
    def found(inputs: str) -> list[int] | None:
        maximum = node("to", "Maximum", inputs, T=INT)
        full = [placeholder("y"), node("t", "Shape", "y", out_type=INT)]
        other = [*full, ints("one", [1, 9]), maximum]
        array = values(*other, shapes={"y": (2, 3), "t": (2,), "to": (2,)}).value(Ref("to"))
        return None if array is None else array.tolist()

    assert found("t one") == [2, 9]
    assert found("one one") == [1, 9]
    assert found("t t") is None


def test_a_value_behind_a_feed_is_not_found() -> None:
    doubled = node("to", "Add", "f f", T=INT)
    assert (
        values(placeholder("f", INT), doubled, shapes={"f": (2,), "to": (2,)}).value(Ref("to"))
        is None
    )


def test_cached_shapes_serve_dependent_nodes() -> None:
    nodes = [ints("a", [1, 2]), node("b", "Neg", "a", T=INT), node("to", "Neg", "b", T=INT)]
    graph = values(*nodes, shapes={"b": (2,), "to": (2,)})
    middle, end = graph.value(Ref("b")), graph.value(Ref("to"))
    assert middle is not None
    assert end is not None
    assert (middle.tolist(), end.tolist()) == ([-1, -2], [1, 2])


def left(*nodes: Node, most: int = 1, kept: tuple[str, ...] = ()) -> Graph:
    return remove_in_rounds(Graph(nodes), ("Identity", "Sink"), most, kept).graph


def inputs(graph: Graph, name: str) -> list[str]:
    return [str(r) for r in graph[name].inputs]


CHAIN = [
    placeholder(),
    node("a", "Identity", "x"),
    node("b", "Identity", "a"),
    node("c", "Identity", "b"),
    node("out", "Relu", "c ^b"),
]


def test_chains_go_whole_and_control_inputs_follow() -> None:
    graph = left(*CHAIN)
    assert [n.name for n in graph] == ["x", "out"]
    assert inputs(graph, "out") == ["x", "^x"]


def test_each_node_is_counted() -> None:
    assert remove_in_rounds(Graph(CHAIN), ("Identity",), 1, ()).matched == 3


def test_protected_node_stays_with_a_warning() -> None:
    done = remove_in_rounds(Graph(CHAIN), ("Identity",), 1, ("b",))
    assert {n.name for n in done.graph} == {"x", "b", "out"}
    assert inputs(done.graph, "out") == ["b", "^b"]
    assert inputs(done.graph, "b") == ["x"]
    assert done.matched == 2


def test_where_nothing_goes_the_graph_is_the_same_object() -> None:
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    done = remove_in_rounds(graph, ("Identity",), 1, ())
    assert done.graph is graph
    assert done.matched == 0


def test_only_nodes_of_few_enough_inputs_go() -> None:
    nodes = [placeholder(), const("c", 1.0), node("s", "Sink", "x c"), node("out", "Relu", "s")]
    assert "s" in left(*nodes, most=1)
    assert inputs(left(*nodes, most=2), "out") == ["x"]


def test_used_second_inputs_stay() -> None:
    nodes = [
        placeholder(),
        const("c", 1.0),
        const("d", 2.0),
        node("s", "Sink", "x c"),
        node("t", "Sink", "s d"),
        node("out", "Add", "t c"),
    ]
    graph = left(*nodes, most=2)
    assert {n.name for n in graph} == {"x", "c", "out"}
    assert inputs(graph, "out") == ["x", "c"]


def test_branch_dependency_stays_with_a_reason() -> None:
    """Waiting for the Switch would be waiting for neither of its branches."""
    nodes = [
        placeholder("p", DType.BOOL),
        placeholder(),
        node("switch", "Switch", "x p"),
        node("pivot", "Identity", "switch:1"),
        const("c", 1.0, inputs="^pivot"),
        node("out", "Relu", "c"),
    ]
    done = remove_in_rounds(Graph(nodes), ("Identity",), 1, ())
    assert "pivot" in done.graph
    assert sum(done.skipped.values()) == 1
