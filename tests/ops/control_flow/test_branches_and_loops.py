"""Switch, Merge, loops, and conditionals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef, TensorShape
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Ref, parse_function_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.kernel import Printed
from mobileprep.ops.numerics.texts import as_texts
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import case, case_tests, output_of, refused, unlike
from tests.transforms.graphs import const, node, placeholder

OP_CASES = [
    case("Switch", [(2, -1), ()], [(2, -1), (2, -1)]),
    case("RefSwitch", [(2, 3), ()], [(2, 3), (2, 3)]),
    case("Merge", [(2, 3), (2, 3)], [(2, 3), ()]),
    case("Merge", [(2, 3), (4, 3)], [(-1, 3), ()]),
    case("Merge", [(2, 3), (2,)], [None, ()]),
    case("Merge", [(2, 3), None], [None, ()]),
    case("RefMerge", [(2, 3), (2, 4)], [(2, -1), ()]),
    case("Enter", [(2, 3)], [None], frame_name="f"),
    case("Enter", [(2, 3)], [(2, 3)], frame_name="f", is_constant=True),
    *(
        case(op, [(2, 3)], [(2, 3)])
        for op in ("Exit", "NextIteration", "RefExit", "RefNextIteration")
    ),
    case("RefEnter", [(2, 3)], [(2, 3)], frame_name="f"),
]


def _function(name: str, *nodes: Node, ret: str) -> Function:
    args = (ArgDef("a", DType.FLOAT),)
    result = {"r": parse_function_ref(ret)}
    return Function(OpDef(name, args, (ArgDef("r", DType.FLOAT),)), nodes, result)


def _doubled() -> Function:
    """A function that doubles the first axis."""
    kinds = {"T": attr.dtype(DType.FLOAT), "N": attr.integer(2), "Tidx": attr.dtype(DType.INT32)}
    inputs = tuple(map(parse_function_ref, ("a", "a", "axis:output:0")))
    axis = constant("axis", Tensor.of(np.int32(0)))
    return _function("double", axis, Node("j", "ConcatV2", inputs, "", kinds), ret="j:output:0")


def _shape(op: str, *functions: Function, **called: str) -> TensorShape:
    """The output shape of an op that calls functions on a tensor [2, 3]."""
    funcs = {key: AttrValue("func", FuncRef(name)) for key, name in called.items()}
    types = AttrValue("list(type)", (DType.FLOAT,))
    kinds = {"T": types, "Tin": types, "Tout": types, "Tcond": attr.dtype(DType.BOOL)}
    placeholder = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((2, 3))}
    flag = {"dtype": attr.dtype(DType.BOOL), "shape": attr.shape(())}
    inputs = (Ref("x"),) if "While" in op else (Ref("p"), Ref("x"))
    nodes = [
        Node("x", "Placeholder", (), "", placeholder),
        Node("p", "Placeholder", (), "", flag),
        Node("y", op, inputs, "", {**kinds, **funcs}),
    ]
    graph = Graph(nodes, Library({f.name: f for f in functions}))
    (shape,) = infer_shapes(graph)["y"]
    return shape


SAME = _function("same", ret="a")


def test_if_keeps_common_sizes_of_its_branches() -> None:
    functions = (SAME, _doubled())
    assert _shape("If", *functions, then_branch="same", else_branch="same") == (2, 3)
    assert _shape("If", *functions, then_branch="double", else_branch="double") == (4, 3)
    assert _shape("If", *functions, then_branch="same", else_branch="double") == (-1, 3)


def test_size_changed_in_a_loop_is_unknown() -> None:
    assert _shape("StatelessWhile", SAME, cond="same", body="same") == (2, 3)
    assert _shape("While", _doubled(), cond="double", body="double") == (-1, 3)


def test_recursive_or_missing_function_has_no_shape() -> None:
    types = AttrValue("list(type)", (DType.FLOAT,))
    own = AttrValue("func", FuncRef("own"))
    attrs = {"T": types, "cond": own, "body": own}
    loop = Node("w", "While", (parse_function_ref("a"),), "", attrs)
    assert _shape("While", _function("own", loop, ret="w:output:0"), cond="own", body="own") is None
    assert _shape("While", SAME, cond="gone", body="gone") is None


F = DType.FLOAT
VARIABLE = output_of("VarHandleOp", shape=(7, 3), dtype=F)

OP_CASES += [
    case("VariableV2", [], [(2, 3)], shape=(2, 3)),
    case("Variable", [], [(2, 3)], shape=(2, 3)),
    unlike(case("Variable", [], [None], shape=())),
    case("VarHandleOp", [], [()], shape=(2, 3)),
    case("ReadVariableOp", [VARIABLE], [(7, 3)]),
    case("ReadVariableOp", [()], [None]),
    case("ResourceGather", [VARIABLE, (4, 5)], [(4, 5, 3)]),
    case("ResourceGather", [(), (4, 5)], [None]),
    case("ResourceGather", [VARIABLE, None], [None]),
    unlike(case("ResourceGather", [VARIABLE, (7, 5)], [None], batch_dims=1)),
    case("VariableShape", [VARIABLE], [(2,)]),
    case("VariableShape", [()], [(-1,)]),
    case("Assign", [(2, -1), (-1, 3)], [(2, 3)]),
    refused("Assign", [(2, 3), (2, 4)]),
    case("Assign", [(2, 3), (2, 4)], [(2, 4)], validate_shape=False),
    case("AssignAdd", [(2, -1), (-1, 3)], [(2, 3)]),
    case("AssignSub", [(2, -1), (-1, 3)], [(2, 3)]),
    case("CountUpTo", [()], [()], limit=3),
    case("GetSessionHandleV2", [(2, 3)], [()]),
    case("IsVariableInitialized", [(2, 3)], [()]),
    case("VarIsInitializedOp", [()], [()]),
    case("Stage", [(2, 3)], [], dtypes=(F,)),
]


X = np.float32([[-20.887871, 22.274715]])


def printer(name: str, inputs: str, types: int = 1, **attrs: object) -> Node:
    listed = AttrValue("list(type)", (DType.FLOAT,) * types)
    return node(name, "Print", inputs, **attrs).with_attrs(U=listed)


def printed(graph: Graph, fetch: str, feeds: dict, runs: int = 1) -> list[Printed]:
    messages: list[Printed] = []
    interpreter = Interpreter(graph, printer=messages.append)
    for _ in range(runs):
        interpreter.run([fetch], feeds)
    return messages


def test_print_writes_message_and_tensors_to_stderr() -> None:
    print_node = printer("p", "x x low", 2, message=";p;__requant_min_max:", summarize=1)
    graph = Graph([placeholder("x"), const("low", -1.5), print_node])
    [result] = printed(graph, "p", {"x": X})
    assert result == Printed("p", "stderr", ";p;__requant_min_max:[[-20.8878708...]...][-1.5]\n")


def test_first_n_limits_messages_over_all_runs() -> None:
    graph = Graph([placeholder("x"), printer("p", "x x", first_n=2)])
    assert len(printed(graph, "p", {"x": X}, runs=5)) == 2
    graph = Graph([placeholder("x"), printer("p", "x x")])
    assert len(printed(graph, "p", {"x": X}, runs=5)) == 5


def test_print_of_a_constant_runs_every_time() -> None:
    graph = Graph([placeholder("x"), const("c", 2.0), printer("p", "c c"), node("y", "Mul", "x p")])
    assert [t.text for t in printed(graph, "y", {"x": X}, runs=2)] == ["[2]\n"] * 2


def test_inactive_branch_prints_nothing() -> None:
    graph = Graph(
        [
            placeholder("x"),
            node("which", "Placeholder", T=None, dtype=DType.BOOL),
            node("switch", "Switch", "x which"),
            printer("no", "switch:0 switch:0", message="no"),
            printer("yes", "switch:1 switch:1", message="yes"),
            node("y", "Merge", "no yes"),
        ]
    )
    feeds = {"x": np.float32([1]), "which": np.array(True)}
    assert [t.text for t in printed(graph, "y", feeds)] == ["yes[1]\n"]


def test_nothing_is_printed_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    graph = Graph([placeholder("x"), printer("p", "x x", message="loud")])
    np.testing.assert_array_equal(Interpreter(graph).run(["p"], {"x": X})[0], X)
    assert capfd.readouterr() == ("", "")


def text_graph(**attrs: object) -> Graph:
    words = Node("s", "Placeholder", attrs={"dtype": attr.dtype(DType.STRING)})
    show = node("show", "PrintV2", "s", T=None, **attrs)
    return Graph([words, show, const("c", 1.0), node("y", "Identity", "c ^show")])


@pytest.mark.parametrize("stream", ["stdout", "stderr", "log(info)", "log(error)", "file:///x"])
def test_print_v2_stream_and_end(stream: str) -> None:
    feeds = {"s": as_texts([b"a\nb"], ())}
    messages = printed(text_graph(output_stream=stream, end="!"), "y", feeds)
    assert messages == [Printed("show", stream, "a\nb!")]
    assert not Path("/x").exists()


def test_unknown_stream_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match=r"unknown output stream 'printer'") as error:
        printed(text_graph(output_stream="printer"), "y", {"s": as_texts([b""], ())})
    assert "log(info)" in error.value.hint


def formatted(template: str, count: int = 1) -> Graph:
    shown = node(
        "y", "StringFormat", " ".join(["x"] * count), T=None, template=template, placeholder="{}"
    )
    return Graph([placeholder("x"), shown])


def test_string_format() -> None:
    [result] = Interpreter(formatted("a{}b{}", 2)).run(["y"], {"x": np.float32([1, 0.1])})
    assert result.item() == b"a[1 0.1]b[1 0.1]"
    with pytest.raises(InvalidGraphError, match="the template has 2 places for 1 tensors"):
        Interpreter(formatted("{}{}")).run(["y"], {"x": X})


def test_assertion_message_matches_tensorflow() -> None:
    types = AttrValue("list(type)", (DType.FLOAT, DType.STRING))
    check = node("check", "Assert", "ok x word", T=None, summarize=1).with_attrs(T=types)
    flag = node("ok", "Placeholder", T=None, dtype=DType.BOOL)
    nodes = [placeholder("x"), flag, const("word", [b"a\n", b"b"], object), check]
    graph = Graph([*nodes, node("y", "Neg", "x ^check")])
    feeds = {"x": X, "ok": np.array(True)}
    assert Interpreter(graph).run(["y"], feeds)[0].tolist() == (-X).tolist()
    with pytest.raises(InvalidGraphError) as error:
        Interpreter(graph).run(["y"], feeds | {"ok": np.array(False)})
    expected = r"node 'check' (Assert): assertion failed: [[-20.8878708...]...] [a\n...]"
    assert error.value.message == expected
    with pytest.raises(InvalidGraphError, match=r"should be a scalar, not of shape \[2\]"):
        Interpreter(graph).run(["y"], feeds | {"ok": np.array([True, True])})


OP_CASES += [
    case("Print", [(2, -1), (3,)], [(2, -1)], U=(DType.FLOAT,)),
    case("PrintV2", [()], []),
    case("Assert", [(), (3,)], [], T=(DType.FLOAT,)),
    case("StringFormat", [(2, 3)], [()], T=(DType.FLOAT,)),
]


test_shapes_and_costs = case_tests(OP_CASES)
