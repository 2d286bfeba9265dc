"""inline_partitionedcall: what a called function does, in place of the call."""

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import ArgDef, AttrDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.bodies import body_of
from mobileprep.graph.refs import parse_function_ref
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


@pytest.mark.parametrize("op", ["PartitionedCall", "StatefulPartitionedCall", "twice"])
def test_other_calls_go_where_that_is_asked_for(op):
    result = apply("inline_partitionedcall", _graph(_call(op)), all_calls=True)
    assert result.matched == 1
    assert "call" not in result.graph
    x = normal(2, 3)
    assert (run(result.graph, x) == x).all()


def test_a_function_that_is_not_there_is_an_error():
    with pytest.raises(InvalidGraphError, match="'thrice'"):
        apply("inline_partitionedcall", _graph(_call(name="thrice")))


def _open(attribute):
    """An attribute that a function leaves to its caller."""
    return AttrValue("placeholder", attribute)


def _polymorphic():
    """scaled(a: T, factor: T) = a * factor in T and as U, with U float unless it is bound."""
    attributes = (
        AttrDef("T", "type"),
        AttrDef("U", "type", default=AttrValue("type", DType.FLOAT)),
    )
    arguments = (ArgDef("a", type_attr="T"), ArgDef("factor", type_attr="T"))
    results = (ArgDef("same", type_attr="T"), ArgDef("other", type_attr="U"))
    body = (
        _body("product", "Mul", "a factor", T=_open("T")),
        _body("cast", "Cast", "product:z:0", T=None, SrcT=_open("T"), DstT=_open("U")),
    )
    ret = {
        "same": parse_function_ref("product:z:0"),
        "other": parse_function_ref("cast:y:0"),
    }
    return Function(OpDef("scaled", arguments, results, attributes), body, ret)


def _outer():
    """outer(a: S) = scaled<T=S, U=S>(a, a), called by PartitionedCall."""
    body = (
        _body(
            "inner",
            "PartitionedCall",
            "a a",
            T=None,
            f=AttrValue("func", FuncRef("scaled", {"T": _open("S"), "U": _open("S")})),
            Tin=AttrValue("list(type)", (DType.INT32, DType.INT32)),
            Tout=AttrValue("list(type)", (DType.INT32, DType.INT32)),
        ),
    )
    signature = OpDef(
        "outer",
        (ArgDef("a", type_attr="S"),),
        (ArgDef("r", type_attr="S"),),
        (AttrDef("S", "type"),),
    )
    return Function(signature, body, {"r": parse_function_ref("inner:output:1")})


def _bound_call(name, inputs, tout, **bindings):
    types = {k: AttrValue("type", v) for k, v in bindings.items()}
    return node(
        "call",
        "PartitionedCall",
        inputs,
        T=None,
        f=AttrValue("func", FuncRef(name, types)),
        Tin=AttrValue("list(type)", (DType.INT32,) * len(inputs.split())),
        Tout=AttrValue("list(type)", tout),
    )


def _polymorphic_graph(call, out):
    library = Library({"scaled": _polymorphic(), "outer": _outer()})
    return Graph([placeholder("x", DType.INT32), call, out], library)


@pytest.mark.parametrize(
    ("bindings", "kind"),
    [
        ({"T": DType.INT32, "U": DType.DOUBLE}, DType.DOUBLE),
        ({"T": DType.INT32}, DType.FLOAT),
    ],
    ids=["bound", "by default"],
)
def test_types_that_a_function_leaves_open_are_those_of_its_call(bindings, kind):
    call = _bound_call("scaled", "x x", (DType.INT32, kind), **bindings)
    graph = _polymorphic_graph(call, node("out", "Neg", "call:1", T=kind))
    after = apply("inline_partitionedcall", graph).graph
    assert after["call/product"].attr_dtype("T") is DType.INT32
    assert (after["call/cast"].attr_dtype("SrcT"), after["call/cast"].attr_dtype("DstT")) == (
        DType.INT32,
        kind,
    )
    found = run(after, np.array([2, 3], np.int32))
    np.testing.assert_array_equal(found, np.array([-4, -9], kind.numpy))


def test_types_are_handed_on_to_the_calls_in_a_function():
    call = _bound_call("outer", "x", (DType.INT32,), S=DType.INT32)
    graph = _polymorphic_graph(call, node("out", "Neg", "call", T=DType.INT32))
    after = apply("inline_partitionedcall", graph).graph
    assert [n.op for n in after] == ["Placeholder", "Mul", "Cast", "Neg"]
    np.testing.assert_array_equal(run(after, np.array([2, 3], np.int32)), [-4, -9])


def test_a_type_that_nothing_binds_is_an_error():
    graph = _polymorphic_graph(
        _bound_call("scaled", "x x", (DType.INT32, DType.FLOAT)), node("out", "Neg", "call:1")
    )
    with pytest.raises(InvalidGraphError, match="the type of the attribute 'T'"):
        apply("inline_partitionedcall", graph)


def test_branches_named_by_a_list_get_their_types():
    """Case takes its branches as a list of functions."""
    branches = AttrValue("list(func)", (FuncRef("scaled", {"T": _open("S")}),))
    body = (
        Node(
            "case",
            "StatelessCase",
            (parse_function_ref("a"),),
            attrs={"branches": branches},
        ),
    )
    function = Function(OpDef("f", (ArgDef("a", DType.INT32),)), body)
    (found,) = body_of(function, Library(), {"S": AttrValue("type", DType.INT32)}).nodes
    assert found.attrs["branches"].value[0].attrs == {"T": AttrValue("type", DType.INT32)}
