"""Inlining of function calls."""

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


def test_call_is_replaced_by_its_function():
    half = function("f", "a b", body("s Add a b", "n Neg s:z:0"), out="n:y:0")
    graph = inline_calls(model(PLACEHOLDER + call("call", "f", "x", "x") + RELU, half), ["y"], "")
    assert listing(graph) == [
        "x = Placeholder()",
        "call/s = Add(x, x)",
        "call/n = Neg(call/s)",
        "y = Relu(call/n)",
    ]


def test_multiple_outputs():
    split = """node_def { name: "d" op: "Const"
                 attr { key: "dtype" value { type: DT_INT32 } }
                 attr { key: "value" value { tensor { dtype: DT_INT32 int_val: 0 } } } }
               node_def { name: "s" op: "Split" input: "d:output:0" input: "a"
                 attr { key: "num_split" value { i: 2 } }
                 attr { key: "T" value { type: DT_FLOAT } } }"""
    f = function("f", "a", split, first="s:output:0", second="s:output:1")
    difference = f'node {{ name: "y" op: "Sub" input: "call:1" input: "call" {T} }}'
    graph = model(PLACEHOLDER + call("call", "f", "x", results=2) + difference, f)
    inlined = inline_calls(graph, ["y"], "")
    assert listing(inlined)[-1] == "y = Sub(call/s:1, call/s)"
    x = np.array([1, 2, 5, 7], np.float32)
    np.testing.assert_array_equal(Interpreter(inlined).run(["y"], {"x": x})[0], [4, 5])


def test_function_that_returns_its_argument():
    same = function("f", "a", "", out="a")
    graph = inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, same), ["y"], "")
    assert listing(graph) == ["x = Placeholder()", "y = Relu(x)"]


def test_nested_calls():
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


def test_op_named_like_a_function_is_a_call():
    f = function("Mine", "a", body("n Neg a"), out="n:y:0")
    graph = model(PLACEHOLDER + 'node { name: "call" op: "Mine" input: "x" }' + RELU, f)
    assert listing(inline_calls(graph, ["y"], ""))[1] == "call/n = Neg(x)"
    assert inline_calls(graph, ["y"], "", ops={"PartitionedCall"}) is graph


def test_fetched_call_keeps_its_name():
    one = function("f", "a", body("n Neg a"), out="n:y:0")
    graph = inline_calls(model(PLACEHOLDER + call("call", "f", "x"), one), ["call"], "")
    assert listing(graph)[-1] == "call = Identity(call/n)"
    two = function("f", "a", body("n Neg a"), out="n:y:0", same="a")
    graph = model(PLACEHOLDER + call("call", "f", "x", results=2), two)
    inlined = inline_calls(graph, ["call"], "")
    assert listing(inlined)[-1] == "call = IdentityN(call/n, x)"
    assert [t.short for t in inlined["call"].attr_dtypes("T")] == ["float32", "float32"]


def test_control_input_from_a_call_uses_control_outputs():
    text = function("f", "a", body("n Neg a", "p Relu a"), out="n:y:0")
    text = text.replace("ret {", 'control_ret { key: "p" value: "p" } ret {', 1)
    waiting = f'node {{ name: "y" op: "Relu" input: "x" input: "^call" {T} }}'
    graph = model(PLACEHOLDER + call("call", "f", "x", "^x") + waiting, text)
    assert listing(inline_calls(graph, ["y"], ""))[-1] == "y = Relu(x, ^call/p, ^x)"


def test_stateful_ops_get_control_inputs_of_the_call():
    draw = """node_def { name: "r" op: "RandomUniform" input: "a"
        attr { key: "T" value { type: DT_INT32 } }
        attr { key: "dtype" value { type: DT_FLOAT } } }"""
    f = function("f", "a", draw + body("n Neg a"), out="r:output:0")
    graph = model(PLACEHOLDER + call("call", "f", "x", "^x") + RELU, f)
    assert listing(inline_calls(graph, ["y"], ""))[1:3] == [
        "call/r = RandomUniform(x, ^x)",
        "call/n = Neg(x)",
    ]


def test_constants_depend_on_an_argument_in_a_branch():
    fixed = """node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
        attr { key: "value" value { tensor { dtype: DT_FLOAT float_val: 1 } } } }"""
    f = function("f", "a", fixed, out="c:output:0")
    switch = f'node {{ name: "s" op: "Switch" input: "x" input: "x" {T} }}'
    graph = model(PLACEHOLDER + switch + call("call", "f", "s:1") + RELU, f)
    assert listing(inline_calls(graph, ["y"], ""))[2] == "call/c = Const(^s)"


def test_colocation_with_existing_nodes_is_preserved():
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
    inlined = inline_calls(graph, ["y"], "")
    constraints = {n.name: n.attrs["_class"].value for n in inlined if "_class" in n.attrs}
    assert constraints == {"call/n": (b"loc:@call/s",)}


def test_existing_name_is_avoided():
    f = function("f", "a", body("n Neg a"), out="n:y:0")
    existing = f'node {{ name: "call/n" op: "Relu" input: "x" {T} }}'
    graph = inline_calls(
        model(PLACEHOLDER + existing + call("call", "f", "x") + RELU, f), ["y"], ""
    )
    assert listing(graph)[1:] == ["call/n = Relu(x)", "call_/n = Neg(x)", "y = Relu(call_/n)"]


def test_attributes_are_bound_by_the_call():
    text = function("f", "a", body("n Neg a"), out="n:y:0")
    text = text.replace("value { type: DT_FLOAT } }", 'value { placeholder: "kind" } }')
    bound = call("call", "f", "x").replace(
        'name: "f"', 'name: "f" attr { key: "kind" value { type: DT_HALF } }'
    )
    graph = inline_calls(model(PLACEHOLDER + bound + RELU, text), ["y"], "")
    assert graph["call/n"].attr_dtype("T").short == "float16"
    with pytest.raises(InvalidGraphError, match="the type of the attribute 'kind'"):
        inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, text), ["y"], "")


def test_recursive_function_is_refused():
    again = call("again", "f", "a").replace("node {", "node_def {")
    f = function("f", "a", again, out="again:output:0")
    with pytest.raises(UnsupportedError, match="'f' calls itself"):
        inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, f), ["y"], "")


def test_call_that_feeds_itself_is_refused():
    same = function("f", "a", "", out="a")
    graph = model(call("call", "f", "call") + RELU, same)
    with pytest.raises(InvalidGraphError, match="takes 'call', which does not exist"):
        inline_calls(graph, ["y"], "")


def test_exponential_calls_are_refused(monkeypatch):
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
    ("library", "expected"),
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
def test_invalid_function_is_refused(library, expected):
    with pytest.raises(InvalidGraphError) as error:
        inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, library), ["y"], "")
    assert expected in error.value.message


def test_unknown_op_in_a_function_is_named():
    f = function("f", "a", body("n MyOwn a"), out="n:y:0")
    with pytest.raises(UnsupportedError, match="'f' calls the op 'MyOwn'"):
        inline_calls(model(PLACEHOLDER + call("call", "f", "x") + RELU, f), ["y"], "")


COND = """node_def { name: "c" op: "Less" input: "a" input: "b"
    attr { key: "T" value { type: DT_FLOAT } } }"""
PRED = """node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }"""


def types(key: str, *names: str) -> str:
    listed = " ".join(f"type: {n}" for n in names)
    return f'attr {{ key: "{key}" value {{ list {{ {listed} }} }} }}'


def func(key: str, name: str) -> str:
    return f'attr {{ key: "{key}" value {{ func {{ name: "{name}" }} }} }}'


def lowered(graph, *roots):
    return listing(inline_calls(graph, roots or ["y"], "", lower_control_flow=True))


def loop(*inputs: str) -> str:
    arguments = " ".join(f'input: "{i}"' for i in inputs)
    kinds = types("T", *["DT_FLOAT"] * len([i for i in inputs if i[0] != "^"]))
    return (
        f'node {{ name: "w" op: "While" {arguments} {kinds} {func("cond", "c")} {func("body", "b")}'
        ' attr { key: "parallel_iterations" value { i: 7 } } }'
    )


Y = 'node { name: "y" op: "Neg" input: "w" attr { key: "T" value { type: DT_FLOAT } } }'


def test_while():
    test = function("c", "a b", COND, more="c:z:0").replace("DT_FLOAT } }  output", "x")
    test = test.replace(
        'output_arg { name: "more" type: DT_FLOAT }', 'output_arg { name: "more" type: DT_BOOL }'
    )
    turn = function("b", "a b", body("n Add a b"), one="n:z:0", same="b")
    graph = model(PLACEHOLDER + loop("x", "x", "^x") + Y, test, turn)
    assert lowered(graph) == [
        "x = Placeholder()",
        "w/Enter = Enter(x, ^x)",
        "w/Enter_1 = Enter(x, ^x)",
        "w/Merge = Merge(w/Enter, w/NextIteration)",
        "w/LoopCond = LoopCond(w/cond/c)",
        "w/Switch = Switch(w/Merge, w/LoopCond)",
        "w/Identity = Identity(w/Switch:1)",
        "w/NextIteration = NextIteration(w/body/n)",
        "w/Exit = Exit(w/Switch)",
        "w/cond/c = Less(w/Merge, w/Enter_1)",
        "w/body/n = Add(w/Identity, w/Enter_1)",
        "y = Neg(w/Exit)",
    ]
    lowered_graph = inline_calls(graph, ["y"], "", lower_control_flow=True)
    assert lowered_graph["w/Enter"].attr_str("frame_name") == "w"
    assert lowered_graph["w/Enter"].attr_int("parallel_iterations") == 7
    constant = [lowered_graph[n].attr_bool("is_constant") for n in ("w/Enter", "w/Enter_1")]
    assert constant == [False, True]
    assert inline_calls(graph, ["y"], "") is graph


def branch(name: str, *ops: str, ret: str = "n:y:0") -> str:
    return function(name, "a", body(*ops), out=ret)


CHOICE = (
    f'node {{ name: "i" op: "If" input: "p" input: "x" input: "^x" {func("then_branch", "t")} '
    f"{func('else_branch', 'e')} {types('Tin', 'DT_FLOAT')} {types('Tout', 'DT_FLOAT')} "
    'attr { key: "Tcond" value { type: DT_BOOL } } }'
)
OF_CHOICE = Y.replace('"w"', '"i"')
ONE = """node_def { name: "k" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
    attr { key: "value" value { tensor { dtype: DT_FLOAT float_val: 1 } } } }"""


def test_if():
    graph = model(
        PLACEHOLDER + PRED + CHOICE + OF_CHOICE,
        branch("t", "n Neg a"),
        function("e", "a", ONE, out="k:output:0"),
    )
    assert lowered(graph) == [
        "x = Placeholder()",
        "p = Placeholder()",
        "i/Switch = Switch(p, p, ^x)",
        "i/Switch_1 = Switch(x, p, ^x)",
        "i/Identity = Identity(i/Switch:1)",
        "i/Identity_1 = Identity(i/Identity)",
        "i/Identity_2 = Identity(i/Switch)",
        "i/Identity_3 = Identity(i/Identity_2)",
        "i/Merge = Merge(i/else/k, i/then/n)",
        "i/Merge_1 = Merge(i/Identity_3, i/Identity_1)",
        "i/then/n = Neg(i/Switch_1:1)",
        "i/else/k = Const(^i/Identity_2)",
        "y = Neg(i/Merge)",
    ]


def test_numeric_condition_is_cast():
    numeric = CHOICE.replace("{ type: DT_BOOL }", "{ type: DT_INT32 }")
    graph = model(
        PLACEHOLDER + PRED + numeric + OF_CHOICE, branch("t", "n Neg a"), branch("e", "n Abs a")
    )
    assert "i/Cast = Cast(p)" in lowered(graph)
    text = CHOICE.replace("{ type: DT_BOOL }", "{ type: DT_STRING }")
    graph = model(
        PLACEHOLDER + PRED + text + OF_CHOICE, branch("t", "n Neg a"), branch("e", "n Abs a")
    )
    with pytest.raises(UnsupportedError, match="the condition of 'i' \\(If\\) is string"):
        lowered(graph)


def case(count: int) -> str:
    listed = " ".join(f'func {{ name: "b{i}" }}' for i in range(count))
    return (
        'node { name: "i" op: "Case" input: "which" input: "x" '
        f'attr {{ key: "branches" value {{ list {{ {listed} }} }} }} '
        f"{types('Tin', 'DT_FLOAT')} {types('Tout', 'DT_FLOAT')} }}"
    )


WHICH = 'node { name: "which" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }'


def test_case_compares_each_index():
    ops = ("Neg", "Square", "Abs")
    branches = [branch(f"b{i}", f"n {op} a") for i, op in enumerate(ops)]
    graph = model(PLACEHOLDER + WHICH + case(3) + OF_CHOICE, *branches)
    lines = lowered(graph)
    assert "i/Equal = Equal(which, i/number)" in lines
    assert "i/Equal_1 = Equal(i/Switch_1, i/number_1)" in lines
    assert "i/branch0/n = Neg(i/Switch_2:1)" in lines
    assert "i/branch1/n = Square(i/Switch_5:1)" in lines
    assert "i/branch2/n = Abs(i/Switch_5)" in lines
    assert lines[-1] == "y = Neg(i/Merge_2)"


def test_case_of_one_branch_is_a_call():
    graph = model(PLACEHOLDER + WHICH + case(1) + OF_CHOICE, branch("b0", "n Abs a"))
    assert lowered(graph)[-2:] == ["i/branch0/n = Abs(x)", "y = Neg(i/branch0/n)"]


def test_too_many_branches_are_refused():
    branches = [branch(f"b{i}", "n Neg a") for i in range(65)]
    graph = model(PLACEHOLDER + WHICH + case(65) + OF_CHOICE, *branches)
    with pytest.raises(UnsupportedError, match="chooses among 65 branches"):
        lowered(graph)


def test_nested_if():
    inner = CHOICE.replace('input: "p" input: "x" input: "^x"', 'input: "q:output:0" input: "a"')
    inner = inner.replace("node {", "node_def {").replace('name: "t"', 'name: "e"')
    nested = """node_def { name: "q" op: "Const" attr { key: "dtype" value { type: DT_BOOL } }
        attr { key: "value" value { tensor { dtype: DT_BOOL bool_val: true } } } }"""
    then = function("t", "a", nested + inner, out="i:output:0")
    graph = model(PLACEHOLDER + PRED + CHOICE + OF_CHOICE, then, branch("e", "n Abs a"))
    lines = lowered(graph)
    assert not [line for line in lines if "= If(" in line]
    assert "i/Merge = Merge(i/else/n, i/then/i/Merge)" in lines


@pytest.mark.parametrize(
    "functions",
    [
        [branch("t", "n Neg a")],
        [branch("t", "n Neg a"), function("e", "a b", "", out="a")],
        [branch("t", "n Neg a"), function("e", "a", "", out="a", more="a")],
    ],
)
def test_invalid_branches_are_refused(functions):
    with pytest.raises(InvalidGraphError):
        lowered(model(PLACEHOLDER + PRED + CHOICE + OF_CHOICE, *functions))


def test_if_without_condition_is_refused():
    lacking = CHOICE.replace('input: "p" input: "x" input: "^x"', "")
    graph = model(PLACEHOLDER + lacking + OF_CHOICE, branch("t", "n Neg a"), branch("e", "n Abs a"))
    with pytest.raises(InvalidGraphError, match=r"functions of 'i' \(If\) do not fit"):
        lowered(graph)
