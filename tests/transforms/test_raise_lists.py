"""raise_control_flow: TensorLists as tensors that functional loops carry."""

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.opdefs.bodies import Body, function_of
from mobileprep.graph.refs import parse_ref
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from tests.transforms.graphs import apply, const, node, placeholder
from tests.transforms.test_raise_control_flow import raised_ops

INT, FLOAT, VARIANT = DType.INT32, DType.FLOAT, DType.VARIANT
X = np.arange(12, dtype=np.float32).reshape(4, 3) + 1


def fed(*shape):
    return placeholder("x").with_attrs(shape=attr.shape(shape))


def lst(name, op, inputs, **attrs):
    """A node on lists of float vectors."""
    return node(name, op, inputs, T=None, element_dtype=FLOAT, **attrs)


def reserve(count="count", shape="shape", **attrs):
    return lst("list", "TensorListReserve", f"{shape} {count}", shape_type=INT, **attrs)


ROWS = lst("rows", "TensorListFromTensor", "x shape", shape_type=INT)
SHAPE = const("shape", [3], np.int32)
ANY = const("any", -1, np.int32)


def same(graph, outputs, feed=X):
    """The raised graph, which has no lists and computes the same."""
    result = apply("raise_control_flow", graph, inputs=("x",), outputs=outputs)
    assert not any("TensorList" in op for op in raised_ops(result))
    expected = NumpyEngine(graph, "before").run(outputs, {"x": feed})
    found = NumpyEngine(result.graph, "after").run(outputs, {"x": feed})
    for before, after in zip(expected, found, strict=True):
        np.testing.assert_array_equal(before, after)
    return result


def stacked(source):
    return lst("out", "TensorListStack", f"{source} any", num_elements=-1)


@pytest.mark.parametrize(
    "nodes",
    [
        [lst("out", "TensorListGetItem", "rows two any")],
        [lst("set", "TensorListSetItem", "rows two row"), stacked("set")],
        [lst("push", "TensorListPushBack", "rows row"), stacked("push")],
        [lst("pop", "TensorListPopBack", "rows any"), stacked("pop")],
        [lst("pop", "TensorListPopBack", "rows any"), node("out", "Neg", "pop:1")],
        [lst("cut", "TensorListResize", "rows two"), stacked("cut")],
        [lst("grown", "TensorListResize", "rows six"), stacked("grown")],
        [lst("out", "TensorListLength", "rows")],
        [lst("out", "TensorListElementShape", "rows", shape_type=INT)],
        [lst("out", "TensorListElementShape", "rows", shape_type=DType.INT64)],
        [lst("out", "TensorListGather", "rows places any")],
        [lst("put", "TensorListScatterIntoExistingList", "rows two_rows places"), stacked("put")],
        [
            lst("split", "TensorListSplit", "x twos lengths", shape_type=INT),
            lst("pair", "TensorListGetItem", "split one any"),
            node("out", "Neg", "pair"),
        ],
        [
            lst("split", "TensorListSplit", "x twos lengths", shape_type=INT),
            lst("out", "TensorListConcatV2", "split twos leading", shape_type=INT),
        ],
        [
            lst("empty", "EmptyTensorList", "shape most", shape_type=INT),
            lst("push", "TensorListPushBack", "empty row"),
            stacked("push"),
        ],
        [
            lst("list", "TensorListReserve", "shape two", shape_type=INT),
            lst("set", "TensorListSetItem", "list two row", resize_if_index_out_of_bounds=True),
            stacked("set"),
        ],
    ],
    ids=lambda nodes: "+".join(n.op.removeprefix("TensorList") for n in nodes),
)
def test_ops_on_lists(nodes):
    shared = [
        *(fed(4, 3), SHAPE, ANY, ROWS, const("one", 1, np.int32), const("two", 2, np.int32)),
        const("six", 6, np.int32),
        const("most", -1, np.int32),
        const("row", [7, 8, 9]),
        const("places", [3, 0], np.int32),
        const("two_rows", [[1, 1, 1], [2, 2, 2]]),
        const("twos", [2, 3], np.int32),
        const("lengths", [2, 2], np.int64),
        const("leading", np.zeros(0), np.int64),
    ]
    same(Graph([*shared, *nodes]), ["out"])


def test_a_list_that_is_changed_twice_keeps_both():
    nodes = [
        *(fed(4, 3), SHAPE, ANY, ROWS, const("one", 1, np.int32), const("row", [7, 8, 9])),
        lst("first", "TensorListSetItem", "rows one row"),
        lst("second", "TensorListPushBack", "first row"),
        stacked("first"),
        lst("both", "TensorListStack", "second any", num_elements=-1),
    ]
    same(Graph(nodes), ["out", "both"])


def function(name, args, nodes, rets, kinds):
    """A library function; args and rets are by name, the latter as "node" or "node:1"."""
    inputs = tuple(ArgDef(arg, kind) for arg, kind in args.items())
    outputs = tuple(ArgDef(f"ret_{i}", kind) for i, kind in enumerate(kinds))
    body = Body(tuple(map(parse_ref, args)), tuple(nodes), tuple(map(parse_ref, rets)))
    return function_of(body, Function(OpDef(name, inputs, outputs)), Library())


def loop(body_nodes, rets, *, start="list", count=4, extra=()):
    """Turns of a body with the arguments ``i``, ``held`` (a list), and ``given`` (x)."""
    args = {"i": INT, "held": VARIANT, "given": FLOAT}
    cond = function(
        "cond",
        args,
        [const("limit", count, np.int32), node("less", "Less", "i limit", T=INT)],
        ["less"],
        [DType.BOOL],
    )
    body = function("body", args, body_nodes, rets, list(args.values()))
    functions = {"cond": cond, "body": body}
    loop_node = node(
        "loop",
        "While",
        f"zero {start} x",
        T=AttrValue("list(type)", tuple(args.values())),
        cond=AttrValue("func", FuncRef("cond")),
        body=AttrValue("func", FuncRef("body")),
        output_shapes=AttrValue("list", ()),
    )
    nodes = [
        *(fed(4, 3), SHAPE, ANY, ROWS, const("zero", 0, np.int32), const("count", count, np.int32)),
        *(reserve(), loop_node, *extra),
    ]
    return Graph(nodes, Library(functions))


STEP = [
    const("one", 1, np.int32),
    node("next", "AddV2", "i one", T=INT),
    node("index", "Cast", "i", T=None, SrcT=INT, DstT=FLOAT),
    node("row", "GatherV2", "given i axis", T=None, Tparams=FLOAT, Tindices=INT, Taxis=INT),
    const("axis", 0, np.int32),
    node("scaled", "Mul", "row index"),
]


def test_a_loop_that_fills_a_list():
    write = lst("write", "TensorListSetItem", "held i scaled")
    graph = loop([*STEP, write], ["next", "write", "given"], extra=[stacked("loop:1")])
    result = same(graph, ["out"])
    assert {n.op for n in result.graph} >= {"StatelessWhile"}


def test_a_loop_that_appends_to_a_list():
    push = lst("push", "TensorListPushBack", "held scaled")
    graph = loop(
        [*STEP, push], ["next", "push", "given"], start="empty", extra=[
            lst("empty", "EmptyTensorList", "shape most", shape_type=INT),
            const("most", -1, np.int32),
            stacked("loop:1"),
        ],
    )  # fmt: skip
    same(graph, ["out"])


def test_a_loop_that_reads_its_own_elements():
    nodes = [
        *STEP,
        const("any", -1, np.int32),
        lst("item", "TensorListGetItem", "held i any"),
        node("sum", "AddV2", "item scaled"),
        lst("write", "TensorListSetItem", "held i sum"),
    ]
    graph = loop(nodes, ["next", "write", "given"], start="rows", extra=[stacked("loop:1")])
    same(graph, ["out"])


def test_elements_of_a_size_that_only_the_loop_knows():
    write = lst("write", "TensorListSetItem", "held i scaled")
    graph = loop([*STEP, write], ["next", "write", "given"], extra=[stacked("loop:1")])
    unknown = const("shape", -1, np.int32)
    same(graph.with_nodes(unknown if n.name == "shape" else n for n in graph), ["out"])


def test_a_list_in_a_branch():
    args = {"held": VARIANT, "row": FLOAT}
    push = lst("push", "TensorListPushBack", "held row")
    functions = {
        "then": function("then", args, [push], ["push"], [VARIANT]),
        "else": function("else", args, [], ["held"], [VARIANT]),
    }
    kinds = {
        "Tin": AttrValue("list(type)", (VARIANT, FLOAT)),
        "Tout": AttrValue("list(type)", (VARIANT,)),
        "then_branch": AttrValue("func", FuncRef("then")),
        "else_branch": AttrValue("func", FuncRef("else")),
    }
    nodes = [
        *(fed(4, 3), SHAPE, ANY, ROWS, const("row", [7, 8, 9]), const("limit", 30.0)),
        const("axes", [0, 1], np.int32),
        node("total", "Sum", "x axes", Tidx=INT),
        node("flag", "Less", "total limit"),
        node("choice", "If", "flag rows row", T=None, Tcond=DType.BOOL, **kinds),
        stacked("choice"),
    ]
    graph = Graph(nodes, Library(functions))
    same(graph, ["out"])
    same(graph, ["out"], X / 10)


def test_two_lists_that_meet():
    nodes = [
        *(fed(4, 3), SHAPE, ANY, ROWS, const("flag", True, np.bool_)),
        lst("others", "TensorListFromTensor", "x shape", shape_type=INT),
        node("yes", "Switch", "rows flag", T=VARIANT),
        node("no", "Switch", "others flag", T=VARIANT),
        node("one", "Merge", "no yes:1", T=VARIANT, N=2),
        stacked("one"),
    ]
    with pytest.raises(UnsupportedError, match=r"'one' \(Merge\) joins two TensorLists"):
        apply("raise_control_flow", Graph(nodes), inputs=("x",), outputs=("out",))


def test_an_op_without_a_form():
    nodes = [
        *(fed(4, 3), SHAPE, ANY, ROWS),
        lst("both", "TensorListConcatLists", "rows rows"),
        stacked("both"),
    ]
    message = r"'both' \(TensorListConcatLists\) has no form as an op on tensors"
    with pytest.raises(UnsupportedError, match=message):
        apply("raise_control_flow", Graph(nodes), inputs=("x",), outputs=("out",))
