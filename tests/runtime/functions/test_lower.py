"""Lowering of functional loops and conditionals to Switch, Merge, and Enter."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.runtime.functions.inline import inline_calls
from tests.freezing.graphs import listing
from tests.runtime.functions.texts import PLACEHOLDER, body, function, model

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
