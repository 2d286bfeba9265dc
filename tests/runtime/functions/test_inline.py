"""Calls of functions put in place: names, arguments, results, control dependencies, limits."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.runtime.functions.inline import inline_calls
from mobileprep.runtime.interpreter import Interpreter
from tests.freezing.graphs import listing
from tests.runtime.functions.texts import (
    PLACEHOLDER,
    RELU,
    T,
    body,
    call,
    colocated,
    function,
    model,
)


def test_a_call_becomes_the_nodes_of_its_function():
    half = function("f", "a b", body("s Add a b", "n Neg s:z:0"), out="n:y:0")
    graph = inline_calls(model(PLACEHOLDER + call("call", "f", "x", "x") + RELU, half), ["y"], "")
    assert listing(graph) == [
        "x = Placeholder()",
        "call/s = Add(x, x)",
        "call/n = Neg(call/s)",
        "y = Relu(call/n)",
    ]


def test_outputs_of_ops_that_have_several_are_counted():
    split = """node_def { name: "d" op: "Const"
                 attr { key: "dtype" value { type: DT_INT32 } }
                 attr { key: "value" value { tensor { dtype: DT_INT32 int_val: 0 } } } }
               node_def { name: "s" op: "Split" input: "d:output:0" input: "a"
                 attr { key: "num_split" value { i: 2 } }
                 attr { key: "T" value { type: DT_FLOAT } } }"""
    f = function("f", "a", split, first="s:output:0", second="s:output:1")
    taken = f'node {{ name: "y" op: "Sub" input: "call:1" input: "call" {T} }}'
    graph = model(PLACEHOLDER + call("call", "f", "x", results=2) + taken, f)
    done = inline_calls(graph, ["y"], "")
    assert listing(done)[-1] == "y = Sub(call/s:1, call/s)"
    x = np.array([1, 2, 5, 7], np.float32)
    np.testing.assert_array_equal(Interpreter(done).run(["y"], {"x": x})[0], [4, 5])


def test_a_function_may_give_its_argument_back():
    same = function("f", "a", "", out="a")
    graph = inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, same), ["y"], "")
    assert listing(graph) == ["x = Placeholder()", "y = Relu(x)"]


def test_calls_in_functions_are_put_in_place_too_and_twice_if_called_twice():
    inner = function("g", "a", body("n Neg a"), out="n:y:0")
    outer = function(
        "f",
        "a",
        call("one", "g", "a").replace("node {", "node_def {")
        + call("two", "g", "one:output:0").replace("node {", "node_def {"),
        out="two:output:0",
    )
    graph = inline_calls(
        model(PLACEHOLDER + call("call", "f", "x") + RELU, inner, outer), ["y"], ""
    )
    assert listing(graph)[1:3] == ["call/one/n = Neg(x)", "call/two/n = Neg(call/one/n)"]


def test_an_op_named_as_a_function_is_a_call():
    f = function("Mine", "a", body("n Neg a"), out="n:y:0")
    graph = model(PLACEHOLDER + 'node { name: "call" op: "Mine" input: "x" }' + RELU, f)
    assert listing(inline_calls(graph, ["y"], ""))[1] == "call/n = Neg(x)"
    assert inline_calls(graph, ["y"], "", ops={"PartitionedCall"}) is graph


def test_a_call_that_is_fetched_keeps_its_name():
    one = function("f", "a", body("n Neg a"), out="n:y:0")
    graph = inline_calls(model(PLACEHOLDER + call("call", "f", "x"), one), ["call"], "")
    assert listing(graph)[-1] == "call = Identity(call/n)"
    two = function("f", "a", body("n Neg a"), out="n:y:0", same="a")
    graph = model(PLACEHOLDER + call("call", "f", "x", results=2), two)
    done = inline_calls(graph, ["call"], "")
    assert listing(done)[-1] == "call = IdentityN(call/n, x)"
    assert [t.short for t in done["call"].attr_dtypes("T")] == ["float32", "float32"]


def test_what_waits_for_a_call_waits_for_what_the_function_promises_to_have_run():
    text = function("f", "a", body("n Neg a", "p Relu a"), out="n:y:0")
    text = text.replace("ret {", 'control_ret { key: "p" value: "p" } ret {', 1)
    waiting = f'node {{ name: "y" op: "Relu" input: "x" input: "^call" {T} }}'
    graph = model(PLACEHOLDER + call("call", "f", "x", "^x") + waiting, text)
    assert listing(inline_calls(graph, ["y"], ""))[-1] == "y = Relu(x, ^call/p, ^x)"


def test_stateful_ops_wait_for_what_their_caller_waited_for():
    draw = """node_def { name: "r" op: "RandomUniform" input: "a"
        attr { key: "T" value { type: DT_INT32 } }
        attr { key: "dtype" value { type: DT_FLOAT } } }"""
    f = function("f", "a", draw + body("n Neg a"), out="r:output:0")
    graph = model(PLACEHOLDER + call("call", "f", "x", "^x") + RELU, f)
    assert listing(inline_calls(graph, ["y"], ""))[1:3] == [
        "call/r = RandomUniform(x, ^x)",
        "call/n = Neg(x)",
    ]


def test_in_a_graph_with_branches_constants_of_functions_wait_for_an_argument():
    fixed = """node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
        attr { key: "value" value { tensor { dtype: DT_FLOAT float_val: 1 } } } }"""
    f = function("f", "a", fixed, out="c:output:0")
    switch = f'node {{ name: "s" op: "Switch" input: "x" input: "x" {T} }}'
    graph = model(PLACEHOLDER + switch + call("call", "f", "s:1") + RELU, f)
    assert listing(inline_calls(graph, ["y"], ""))[2] == "call/c = Const(^s)"


def test_nodes_of_a_function_stay_colocated_and_name_no_node_that_is_not_there():
    inner = function("g", "a", body("n Neg a"), out="n:y:0")
    nodes = [
        body("s Add a a"),
        colocated(body("n Neg s:z:0"), "s"),
        colocated(body("m Neg n:y:0"), "table/818"),
        call("inner", "g", "m:y:0").replace("node {", "node_def {"),
        colocated(body("o Neg inner:output:0"), "inner"),
    ]
    outer = function("f", "a", " ".join(nodes), out="o:y:0")
    graph = model(PLACEHOLDER + call("call", "f", "x") + colocated(RELU, "call"), inner, outer)
    done = inline_calls(graph, ["y"], "")
    named = {n.name: n.attrs["_class"].value for n in done if "_class" in n.attrs}
    assert named == {"call/n": (b"loc:@call/s",)}


def test_a_name_that_is_taken_is_avoided():
    f = function("f", "a", body("n Neg a"), out="n:y:0")
    taken = f'node {{ name: "call/n" op: "Relu" input: "x" {T} }}'
    graph = inline_calls(model(PLACEHOLDER + taken + call("call", "f", "x") + RELU, f), ["y"], "")
    assert listing(graph)[1:] == ["call/n = Relu(x)", "call_/n = Neg(x)", "y = Relu(call_/n)"]


def test_attributes_that_the_caller_binds_are_filled_in():
    text = function("f", "a", body("n Neg a"), out="n:y:0")
    text = text.replace("value { type: DT_FLOAT } }", 'value { placeholder: "kind" } }')
    bound = call("call", "f", "x").replace(
        'name: "f"', 'name: "f" attr { key: "kind" value { type: DT_HALF } }'
    )
    graph = inline_calls(model(PLACEHOLDER + bound + RELU, text), ["y"], "")
    assert graph["call/n"].attr_dtype("T").short == "float16"
    with pytest.raises(InvalidGraphError, match="the type of the attribute 'kind'"):
        inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, text), ["y"], "")


def test_functions_that_call_themselves_are_refused():
    again = call("again", "f", "a").replace("node {", "node_def {")
    f = function("f", "a", again, out="again:output:0")
    with pytest.raises(UnsupportedError, match="'f' calls itself"):
        inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, f), ["y"], "")


def test_a_call_that_feeds_itself_is_refused():
    same = function("f", "a", "", out="a")
    graph = model(call("call", "f", "call") + RELU, same)
    with pytest.raises(InvalidGraphError, match="takes 'call', which does not exist"):
        inline_calls(graph, ["y"], "")


def test_calls_that_grow_without_bounds_are_refused(monkeypatch):
    monkeypatch.setattr("mobileprep.runtime.functions.inline.MOST_NODES", 1000)
    functions = [function("f0", "a", "", out="a")]
    for i in range(1, 40):
        twice = "".join(
            call(n, f"f{i - 1}", "a").replace("node {", "node_def {") for n in ("p", "q")
        )
        functions.append(function(f"f{i}", "a", twice, out="q:output:0"))
    graph = model(PLACEHOLDER + call("call", "f39", "x") + RELU, *functions)
    with pytest.raises(InvalidGraphError, match="grow the graph beyond 1,000 nodes"):
        inline_calls(graph, ["y"], "")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (function("g", "a", "", out="a"), "'call' calls the function 'f', which does not exist"),
        (function("f", "a b", "", out="a"), "'call' gives 1 of 2 arguments"),
        (function("f", "a", "", out="b:y:0"), "refers to 'b:y:0', which does not exist"),
        (function("f", "a", body("n Neg a"), out="n:y:1"), "refers to 'n:y:1'"),
        (function("f", "a", body("n Neg a"), out="n:z:0"), "refers to 'n:z:0'"),
        (function("f", "a", body("n Neg m"), out="n:y:0"), "refers to 'm'"),
        (function("f", "a", body("n Neg a ^m"), out="n:y:0"), "refers to '^m'"),
    ],
)
def test_functions_that_do_not_fit_are_refused(made, told):
    with pytest.raises(InvalidGraphError) as caught:
        inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, made), ["y"], "")
    assert told in caught.value.message


def test_an_unknown_op_in_a_function_is_named():
    f = function("f", "a", body("n MyOwn a"), out="n:y:0")
    with pytest.raises(UnsupportedError, match="'f' calls the op 'MyOwn'"):
        inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, f), ["y"], "")
