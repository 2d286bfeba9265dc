"""WHILE and IF in LiteRT's interpreter and in our kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_function_ref
from tests.litert.graphs import answered, codes, expected, model
from tests.litert.one_op import check_graph, compare
from tests.transforms.graphs import const, node, placeholder
from tests.transforms.test_raise_control_flow import (
    BOOL,
    FLAG,
    X,
    choice,
    counted,
    doubling,
    enter,
    shaped,
    variable,
    writing,
)

TOLERANCE = 1e-6


def check(
    nodes: Sequence[Node], outputs: Sequence[str], feeds: Mapping[str, Any] | None = None
) -> ModelRecord:
    """Convert a graph with fixed shapes, and compare its results."""
    arrays = {name: np.asarray(value) for name, value in (feeds or {"x": X}).items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    return check_graph(Graph(nodes), arrays, outputs, TOLERANCE, shapes=shapes)


def test_loop_becomes_while_with_two_subgraphs() -> None:
    record = check([placeholder(), *doubling(5)], ["v/out"])
    assert codes(record) == ["WHILE"]
    assert [graph.name for graph in record.subgraphs] == ["main", "while_cond", "while_body"]
    (operator,) = record.subgraphs[0].operators
    assert operator.options is not None
    assert operator.options.values == {"cond_subgraph_index": 1, "body_subgraph_index": 2}


def test_loop_without_iterations() -> None:
    check([placeholder(), *doubling(0)], ["v/out"])


@pytest.mark.parametrize("flag", [True, False])
def test_conditional_becomes_if(flag: bool) -> None:
    record = check([placeholder(), FLAG, *choice()], ["c/merge"], {"x": X, "flag": flag})
    assert codes(record) == ["IF"]
    (operator,) = record.subgraphs[0].operators
    assert operator.options is not None
    assert operator.options.values == {"then_subgraph_index": 1, "else_subgraph_index": 2}


@pytest.mark.parametrize("flag", [True, False])
def test_conditional_in_a_loop_in_a_branch(flag: bool) -> None:
    nodes = [
        placeholder(),
        FLAG,
        node("s", "Switch", "x flag"),
        *counted(4),
        *variable("v", "s:1", "c/merge"),
        const("two", 2, np.int32, "^count"),
        node("odd", "FloorMod", "count two", T=DType.INT32),
        node("is_odd", "Cast", "odd", T=None, SrcT=DType.INT32, DstT=BOOL),
        *choice("c", "v/now", "is_odd"),
        node("no", "Neg", "s"),
        node("out", "Merge", "no v/out", N=2),
    ]
    record = check(nodes, ["out"], {"x": X, "flag": flag})
    assert len(record.subgraphs) == 7


@pytest.mark.parametrize("flag", [True, False])
def test_branch_that_returns_its_input(flag: bool) -> None:
    nodes = [
        placeholder(),
        FLAG,
        node("s", "Switch", "x flag"),
        node("no", "Neg", "s"),
        node("out", "Merge", "no s:1", N=2),
    ]
    check(nodes, ["out"], {"x": X, "flag": flag})


@pytest.mark.parametrize("flag", [True, False])
def test_branch_that_returns_a_tensor_twice(flag: bool) -> None:
    nodes = [
        placeholder(),
        FLAG,
        node("s", "Switch", "x flag"),
        node("no", "Neg", "s"),
        node("yes", "Square", "s:1"),
        node("first", "Merge", "no yes", N=2),
        node("second", "Merge", "no yes", N=2),
        node("less", "Sub", "s s"),
        node("third", "Merge", "less yes", N=2),
    ]
    check(nodes, ["first", "second", "third"], {"x": X, "flag": flag})


@pytest.mark.parametrize("flag", [True, False])
def test_branch_that_returns_a_constant_twice(flag: bool) -> None:
    nodes = [
        placeholder(),
        FLAG,
        node("s", "Switch", "x flag"),
        node("yes", "Identity", "s:1"),
        node("no", "Identity", "s"),
        const("five", [5, 6, 7], inputs="^yes"),
        const("one", [1, 2, 3], inputs="^no"),
        node("first", "Merge", "no five", N=2),
        node("second", "Merge", "one five", N=2),
    ]
    check(nodes, ["first", "second"], {"x": X, "flag": flag})


def test_array_written_in_a_loop_becomes_a_tensor() -> None:
    record = check([shaped(3), *writing()], ["out"])
    assert "DYNAMIC_UPDATE_SLICE" in codes(record, 2)


def test_loop_with_a_growing_tensor() -> None:
    nodes = [
        placeholder(),
        *counted(3),
        *variable("v", "x", "more"),
        enter("x/enter", "x", constant=True),
        const("axis", 0, np.int32, "^count"),
        node("more", "ConcatV2", "v/now x/enter axis", N=2, Tidx=DType.INT32),
    ]
    check(nodes, ["v/out"])


def exchanging(after: Sequence[str]) -> list[Node]:
    """Loop variables v0, v1, ... of four iterations; each continues with the node of ``after``."""
    begin = [const(f"begin{i}", np.float32(i + 1)) for i in range(len(after))]
    starts = [node(f"start{i}", "Mul", f"x begin{i}") for i in range(len(after))]
    variables = [variable(f"v{i}", f"start{i}", name) for i, name in enumerate(after)]
    return [placeholder(), *begin, *starts, *counted(4), *(n for v in variables for n in v)]


def reshapes(record: ModelRecord) -> int:
    """Number of copies in the body of a file's only loop."""
    return codes(record, 2).count("RESHAPE")


@pytest.mark.parametrize(
    ("after", "copies"),
    [
        (["v1/now", "v0/now"], 1),
        (["v2/now", "v0/now", "v1/now"], 1),
        (["v1/now", "v2/now", "v0/now"], 1),
        (["v1/now", "v0/now", "v3/now", "v2/now"], 2),
        (["v1/now", "v0/now", "v0/now", "v2/now"], 1),
        (["half", "v0/now", "v1/now", "v2/now"], 0),
        (["v1/now", "v2/now", "half"], 0),
        (["v0/now", "v0/now", "half"], 0),
    ],
    ids=["swap", "rotate", "rotate back", "two swaps", "swap and read", "history", "shift", "keep"],
)
def test_loop_variables_that_swap_values(after: list[str], copies: int) -> None:
    nodes = exchanging(after)
    if "half" in after:
        nodes.append(const("0.5", np.float32(0.5), inputs="^count"))
        nodes.append(node("half", "Mul", "v0/now 0.5"))
    record = check(nodes, [f"v{i}/out" for i in range(len(after))])
    assert reshapes(record) == copies


def test_nested_loop_that_swaps_its_variables() -> None:
    inner = [
        *(n for n in counted(3, frame="inner", prefix="i_") if n.name not in ("i_zero", "i_turns")),
        const("i_zero", 0, np.int32, inputs="^count"),
        const("i_turns", 3, np.int32, inputs="^count"),
        *variable("a", "i_a", "b/now", "inner", "i_"),
        *variable("b", "i_b", "a/now", "inner", "i_"),
    ]
    gates = [node("i_a", "Identity", "v0/now"), node("i_b", "Identity", "v1/now")]
    nodes = [*exchanging(["b/out", "a/out"]), *gates, *inner]
    check(nodes, ["v0/out", "v1/out"])


def test_unsupported_node_in_a_body_is_named() -> None:
    nodes = [*counted(3), *variable("v", "x", "odd"), node("odd", "Betainc", "v/now v/now v/now")]
    with pytest.raises(UnsupportedError, match="Betainc 'odd'"):
        model(Graph([placeholder(), *nodes]), ["x"], ["v/out"], {"x": (3,)})


@pytest.mark.parametrize("mode", ["float16", "weights"])
def test_weights_in_a_loop_are_compressed(mode: Any) -> None:
    weights = np.random.default_rng(5).normal(0, 0.2, (64, 64)).astype(np.float32)
    nodes = [
        placeholder(),
        const("weights", weights),
        *counted(2),
        *variable("v", "x", "tanh"),
        enter("weights/enter", "weights", constant=True),
        node("product", "MatMul", "v/now weights/enter", transpose_a=False, transpose_b=False),
        node("tanh", "Tanh", "product"),
    ]
    graph, x = Graph(nodes), np.random.default_rng(6).normal(size=(2, 64)).astype(np.float32)
    plain = model_bytes(model(graph, ["x"], ["v/out"], {"x": (2, 64)}))
    content = model_bytes(model(graph, ["x"], ["v/out"], {"x": (2, 64)}, mode=mode))
    assert len(content) < 0.7 * len(plain)
    compare(answered(content, [x]), expected(graph, {"x": x}, ["v/out"]), 0.05)


def test_equal_graphs_give_equal_bytes() -> None:
    graph = Graph([shaped(3), *writing()])
    first, second = (bytes(model_bytes(model(graph, ["x"], ["out"]))) for _ in range(2))
    assert first == second


def test_recursive_function_is_refused() -> None:
    attrs = {
        "Tcond": attr.dtype(BOOL),
        "Tin": AttrValue("list(type)", (DType.FLOAT, BOOL)),
        "Tout": AttrValue("list(type)", (DType.FLOAT,)),
        "then_branch": AttrValue("func", FuncRef("f")),
        "else_branch": AttrValue("func", FuncRef("f")),
    }
    args = (ArgDef("a", DType.FLOAT), ArgDef("p", BOOL))
    signature = OpDef("f", args, (ArgDef("r", DType.FLOAT),))
    inner = Node("if", "If", tuple(map(parse_function_ref, ("p", "a", "p"))), "", attrs)
    function = Function(signature, (inner,), {"r": parse_function_ref("if:output:0")})
    outer = node("out", "If", "flag x flag", T=None)
    nodes = [placeholder(), FLAG, Node("out", "If", outer.inputs, "", attrs)]
    with pytest.raises(UnsupportedError, match="it runs 'f'"):
        model(Graph(nodes, Library({"f": function})), ["x", "flag"], ["out"])
