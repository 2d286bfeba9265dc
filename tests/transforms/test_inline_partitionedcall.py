"""inline_partitionedcall: what a called function does, in place of the call."""

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import AttrValue, FuncRef
from mobileprep.ir.graph import Function, Graph, Library
from mobileprep.ir.node import Node
from mobileprep.ir.opdef import ArgDef, OpDef
from mobileprep.ir.refs import parse_function_ref
from tests.transforms.graphs import apply, node, normal, placeholder, run, shown


def _body(name, op, inputs, **attrs):
    refs = tuple(parse_function_ref(i) for i in inputs.split())
    return Node(name, op, refs, attrs=node(name, op, "", **attrs).attrs)


def _library():
    """twice(a) = (a + a, a)."""
    argument = ArgDef("a", DType.FLOAT)
    results = (ArgDef("sum", DType.FLOAT), ArgDef("same", DType.FLOAT))
    signature = OpDef("twice", (argument,), results)
    body = (_body("add", "AddV2", "a a"), _body("pass", "Identity", "add:z:0"))
    ret = {"sum": parse_function_ref("pass:output:0"), "same": parse_function_ref("a")}
    return Library({"twice": Function(signature, body, ret)})


def _call(op="PartitionedCall", inputs="x", name="twice"):
    types = {
        "Tin": AttrValue("list(type)", (DType.FLOAT,)),
        "Tout": AttrValue("list(type)", (DType.FLOAT, DType.FLOAT)),
    }
    return node("call", op, inputs, T=None, f=AttrValue("func", FuncRef(name)), **types)


def _graph(call):
    return Graph([placeholder(), call, node("out", "Sub", "call call:1")], _library())


def test_golden():
    result = apply("inline_partitionedcall", _graph(_call()))
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "call/add = AddV2(x, x) T=float32\n"
        "call/pass = Identity(call/add) T=float32\n"
        "out = Sub(call/pass, x) T=float32"
    )
    x = normal(2, 3)
    assert (run(result.graph, x) == x).all()


def test_a_call_that_is_fetched_keeps_its_name_and_outputs():
    result = apply("inline_partitionedcall", _graph(_call()), outputs=("call:1",))
    assert result.graph["call"].op == "IdentityN"
    assert [str(r) for r in result.graph["call"].data_inputs] == ["call/pass", "x"]


@pytest.mark.parametrize("op", ["StatefulPartitionedCall", "twice"])
def test_other_calls_stay(op):
    graph = _graph(_call(op))
    assert apply("inline_partitionedcall", graph).graph is graph


def test_a_function_that_is_not_there_is_an_error():
    with pytest.raises(InvalidGraphError, match="'thrice'"):
        apply("inline_partitionedcall", _graph(_call(name="thrice")))
