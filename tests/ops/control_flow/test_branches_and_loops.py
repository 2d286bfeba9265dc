"""Switch, Merge, loops, and conditionals."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef, TensorShape
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdef import ArgDef, OpDef
from mobileprep.graph.refs import Ref, parse_function_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.shape_inference import infer_shapes
from tests.ops.cases import case, case_tests

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

test_shapes_and_costs = case_tests(OP_CASES)


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
