"""Tests."""

from __future__ import annotations

import re

import pytest

from mobileprep.errors import UsageError
from mobileprep.recipe.model import Step
from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.steps import (
    MAX_CALLS,
    MAX_CHARACTERS,
    parse_chain,
    parse_transforms_flag,
    read_steps,
)
from mobileprep.recipe.yaml_tree import parse_yaml
from tests.work import lines_run
from tools.transform_reference import render


@pytest.fixture
def read(source, schemas):
    """Read the key ``t`` of a YAML text as a chain."""
    return lambda text: read_steps(parse_yaml(source(text)).get("t"), schemas)


@pytest.fixture
def problems(read):
    """Return the problems of a chain as ``line:column keys: message; hint``."""

    def problems(text: str) -> list[str]:
        return [
            f"{p.place.line}:{p.place.column} {'.'.join(map(str, p.place.keys))}: "
            f"{p.message}; {p.hint}"
            for p in read(text).problems
        ]

    return problems


PAIRS = [
    ("strip_unused_nodes", "[strip_unused_nodes]", ("strip_unused_nodes", ())),
    ("strip_unused_nodes()", "[strip_unused_nodes: ]", ("strip_unused_nodes", ())),
    (
        'strip_unused_nodes(type=float, shape="1,299,299,3")',
        "[strip_unused_nodes: {type: float, shape: '1,299,299,3'}]",
        ("strip_unused_nodes", (("type", "float"), ("shape", "1,299,299,3"))),
    ),
    (
        "remove_nodes(op=Identity, op=CheckNumerics)",
        "[remove_nodes: {op: [Identity, CheckNumerics]}]",
        ("remove_nodes", (("op", ("Identity", "CheckNumerics")),)),
    ),
    (
        "remove_nodes(op=Identity, max_inputs=2)",
        "[remove_nodes: {op: Identity, max_inputs: 2}]",
        ("remove_nodes", (("op", ("Identity",)), ("max_inputs", 2))),
    ),
    (
        "fold_constants(ignore_errors=true, clear_output_shapes=0)",
        "[fold_constants: {ignore_errors: true, clear_output_shapes: false}]",
        ("fold_constants", (("ignore_errors", True), ("clear_output_shapes", False))),
    ),
    (
        "quantize_nodes(input_min=-1, input_max=1e3)",
        "[quantize_nodes: {input_min: -1, input_max: 1e3}]",
        ("quantize_nodes", (("input_min", -1.0), ("input_max", 1000.0))),
    ),
    (
        (
            'strip_unused_nodes(name=a, type_for_name=float, shape_for_name="1,2", name=b, '
            'type_for_name=int32, shape_for_name="3")'
        ),
        (
            "[strip_unused_nodes: [{name: a, type_for_name: float, shape_for_name: '1,2'}, "
            "{name: b, type_for_name: int32, shape_for_name: '3'}]]"
        ),
        (
            "strip_unused_nodes",
            (
                ("name", ("a", "b")),
                ("type_for_name", ("float", "int32")),
                ("shape_for_name", ("1,2", "3")),
            ),
        ),
    ),
]


@pytest.mark.parametrize(("text", "yaml", "step"), PAIRS, ids=[p[0][:30] for p in PAIRS])
def test_yaml_and_text_give_the_same_typed_step(read, text, yaml, step):
    in_yaml = read(f"t: {yaml}\n")
    in_text = read(f"t: '{text}'\n")
    assert in_yaml.problems == in_text.problems == ()
    assert in_yaml.steps == in_text.steps == (Step(*step),)
    types = [type(value) for _, value in step[1]]
    for read_step in (*in_yaml.steps, *in_text.steps):
        assert [type(value) for _, value in read_step.params] == types


def test_chain_keeps_its_order(read):
    chain = "t: |\n  fold_constants\n  strip_unused_nodes\n  fold_constants\n"
    names = [step.name for step in read(chain).steps]
    assert names == ["fold_constants", "strip_unused_nodes", "fold_constants"]


def test_empty_chain(read):
    assert read("t:\n").steps == read("t: []\n").steps == read("t: ''\n").steps == ()


def test_ignore_errors_is_parsed_as_in_the_original(read):
    for text in ("ignore_errors=TRUE", "ignore_errors=true, ignore_errors=7"):
        (step,) = read(f"t: 'fold_constants({text})'\n").steps
        assert step.ignore_errors
        assert step.options == {}
    assert not read("t: 'fold_constants(ignore_errors=False)'\n").steps[0].ignore_errors


@pytest.mark.parametrize(
    ("text", "value"),
    [(" 5 ", 5), ("007", 7), ("-3", None), ("2147483647", 2147483647), ("2147483648", None)],
)
def test_integers_are_parsed_as_in_the_original(read, text, value):
    chain = read(f"t: 'round_weights(num_steps=\"{text}\")'\n")
    result = chain.steps[0].options["num_steps"] if chain.steps else None
    assert result == value


@pytest.mark.parametrize("text", ["+5", "5.0", "- 5", "5 x", "", "0x10", "1_0", "\u0665"])
def test_invalid_integers_are_refused_as_in_the_original(problems, text):
    (problem,) = problems(f"t: 'round_weights(num_steps=\"{text}\")'\n")
    assert problem.startswith("1:29 t.round_weights.num_steps: expected a whole number, found")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 1.5 ", 1.5),
        ("+.5", 0.5),
        ("1.", 1.0),
        ("1E5", 100000.0),
        ("1e+5", 100000.0),
        ("-.5e-3", -0.0005),
        ("0X1f", 31.0),
        ("-0x1f", -31.0),
        ("1\t", 1.0),
    ],
)
def test_numbers_are_parsed_as_in_the_original(read, text, value):
    (step,) = read(f't: |\n  quantize_nodes(input_min="{text}")\n').steps
    assert step.options == {"input_min": value}


@pytest.mark.parametrize(
    "text", ["1e", "abc", "infinity", ".", "- 1", "0x", "", "1_0", "0x1p3", "1f", "inf", "1e400"]
)
def test_invalid_and_infinite_numbers_are_refused(problems, text):
    (problem,) = problems(f"t: 'quantize_nodes(input_min=\"{text}\")'\n")
    assert "expected a number, found the text" in problem


@pytest.mark.parametrize("text", ["True", "yes", "", "2"])
def test_invalid_booleans_are_refused_as_in_the_original(problems, text):
    (problem,) = problems(f"t: 'fold_constants(clear_output_shapes=\"{text}\")'\n")
    assert "expected true or false" in problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "t: [fold_constant]",
            "1:5 t.0: unknown transform 'fold_constant'; did you mean 'fold_constants'?",
        ),
        (
            "t: [rewrite_quantized_stripped_model_for_hexagon]",
            (
                "1:5 t.0: the original's transform 'rewrite_quantized_stripped_model_for_hexagon' "
                "is not offered: the Hexagon runtime that it prepares graphs for went with "
                "TensorFlow 1; leave it out"
            ),
        ),
        (
            "t: [fold_constant: {x: 1}]",
            (
                "1:5 t.0.fold_constant: unknown transform 'fold_constant'; "
                "did you mean 'fold_constants'?"
            ),
        ),
        (
            "t:\n  - remove_nodes(op=Identity)",
            (
                "2:5 t.0: unknown transform 'remove_nodes(op=Identity)'; "
                "in a list, write 'remove_nodes: {parameter: value}'"
            ),
        ),
        (
            "t:\n  - remove_nodes: {ops: Identity}",
            "2:20 t.0.remove_nodes.ops: unknown key 'ops'; did you mean 'op'?",
        ),
        (
            "t:\n  - remove_nodes",
            "2:5 t.0: the key 'op' is missing; add 'op: ...'",
        ),
        (
            "t:\n  - round_weights: {num_steps: many}",
            "2:32 t.0.round_weights.num_steps: expected a whole number, found the text 'many'; ",
        ),
        (
            "t:\n  - round_weights: {num_steps: 0}",
            "2:32 t.0.round_weights.num_steps: must be at least 1; ",
        ),
        (
            "t: 'fold_constants fold_constant'",
            "1:20 t: unknown transform 'fold_constant'; did you mean 'fold_constants'?",
        ),
        (
            "t: |\n  fold_constants\n  remove_nodes(op=A, ops=B)\n",
            "3:22 t.remove_nodes.ops: unknown key 'ops'; did you mean 'op'?",
        ),
        (
            "t: |\n  remove_nodes\n",
            "2:3 t.remove_nodes: the key 'op' is missing; add 'op: ...'",
        ),
        (
            "t: round_weights(num_steps=5, num_steps=6)\n",
            (
                "1:41 t.round_weights.num_steps: expected a single 'num_steps', found 2; "
                "keep one of them"
            ),
        ),
        (
            "t: fold_constants round_weights(num_steps=5\n",
            "1:19 t: the transform 'round_weights' has no closing ')'; add it",
        ),
    ],
)
def test_problem_is_reported_with_its_location(problems, text, expected):
    assert expected in problems(text)


def test_all_problems_of_a_chain_are_reported(problems):
    text = "t: 'nope remove_nodes(op=A, x=1) round_weights(num_steps=a) ('\n"
    assert len(problems(text)) == 4


def test_flag_is_parsed_into_steps(schemas):
    steps, warnings = parse_transforms_flag("fold_constants(ignore_errors=true)", schemas)
    assert steps == (Step("fold_constants", (("ignore_errors", True),)),)
    assert warnings == ()


def test_unclosed_transform_in_the_flag_is_a_warning(schemas):
    steps, warnings = parse_transforms_flag("fold_constants remove_nodes(op=A", schemas)
    assert [step.name for step in steps] == ["fold_constants"]
    assert warnings == (
        "--transforms:1:16: the transform 'remove_nodes' has no closing ')' and is ignored",
    )


def test_unknown_parameter_in_the_flag_is_a_warning(schemas):
    steps, warnings = parse_transforms_flag("round_weights(num_step=4, num_steps=8)", schemas)
    assert steps == (Step("round_weights", (("num_steps", 8),)),)
    (warning,) = warnings
    assert warning.startswith("--transforms:1:15: round_weights has no parameter 'num_step', which")
    assert warning.endswith("did you mean 'num_steps'?")


def test_problems_of_the_flag_are_a_usage_error(schemas):
    with pytest.raises(UsageError) as caught:
        parse_transforms_flag("fold_constant\nround_weights(num_steps=x)", schemas)
    assert caught.value.exit_code == 2
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("--transforms:1:1: unknown transform 'fold_constant'")
    assert lines[3].startswith("--transforms:2:25: round_weights.num_steps: expected a whole")


def test_space_before_a_parenthesis_in_the_flag_is_a_warning(schemas):
    steps, (warning,) = parse_transforms_flag("fold_constants round_weights (num_steps=5)", schemas)
    assert [(s.name, s.options) for s in steps] == [
        ("fold_constants", {}),
        ("round_weights", {"num_steps": 5}),
    ]
    assert warning.startswith("--transforms:1:16: round_weights: white space before '('")


def chain_read(text):
    """Parse valid text into ``(name, [(parameter, value)])`` for each call."""
    chain = parse_chain(text)
    assert chain.fault is None
    assert chain.unfinished is None
    return [(c.name, [(a.name, a.value) for a in c.arguments]) for c in chain.calls]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("", []),
        (" \n\t\v\f\r", []),
        ("a", [("a", [])]),
        ("  a\n b\t\n", [("a", []), ("b", [])]),
        ("a()", [("a", [])]),
        ("a()b", [("a", []), ("b", [])]),
        ("a(x=1)", [("a", [("x", "1")])]),
        ("a(x=1, y=2)", [("a", [("x", "1"), ("y", "2")])]),
        ("a(x=1 y=2)", [("a", [("x", "1"), ("y", "2")])]),
        ('a(x="1"y=2)', [("a", [("x", "1"), ("y", "2")])]),
        ("a( x=1)", [("a", [("x", "1")])]),
        ("a(,x=1)", [("a", [("x", "1")])]),
        ("a(op=X, op=Y, op=X)", [("a", [("op", "X"), ("op", "Y"), ("op", "X")])]),
        ('a(shape="1,299,299,3")', [("a", [("shape", "1,299,299,3")])]),
        ("a(x=-1.5e-3/b_C)", [("a", [("x", "-1.5e-3/b_C")])]),
        ('a(x="")', [("a", [("x", "")])]),
        ('a(x="p\\"q")', [("a", [("x", 'p\\"q')])]),
        ('a(x="\n)")', [("a", [("x", "\n)")])]),
        ('a(x=1")', [("a", [("x", "1")])]),
        ("a(x=1')", [("a", [("x", "1")])]),
        ("a(x=1\"')", [("a", [("x", "1")])]),
        ("1_A(2=3)", [("1_A", [("2", "3")])]),
    ],
)
def test_chain_is_parsed_as_in_the_original(text, calls):
    assert chain_read(text) == calls


@pytest.mark.parametrize(
    ("text", "offset", "message", "hint"),
    [
        ("a, b", 1, "expected a transform's name, found ', b'", "separate transforms by spaces"),
        ("a, (x=1)", 1, "a transform's name", "separate transforms by spaces"),
        ("a(x=1 )", 6, "a parameter's name", "remove the white space before ')'"),
        ("a( )", 3, "a parameter's name", "remove the white space before ')'"),
        ("a(x=1,)", 6, "a parameter's name", "remove the comma before ')'"),
        ("a(x=1,,y=2)", 6, "a parameter's name", "write one comma"),
        ("a(x=1 ,y=2)", 6, "a parameter's name", "write one comma"),
        ("a(x=1, ", 7, "a parameter's name, found the end", "double quotes"),
        ("a(x)", 3, "expected '=' after the parameter x, found ')'", ""),
        ("a(x", 3, "expected '=' after the parameter x, found the end", ""),
        ("a(x=)", 4, "a parameter's value, found ')'", ""),
        ("a(x=1+2)", 5, "a parameter's name, found '+2)'", "double quotes"),
        ("a(x=1'\")", 6, "a parameter's name", ""),
        ('a(x="1)', 4, "no closing '\"'", "add it"),
        ('a(x="1\\', 4, "no closing '\"'", "add it"),
        ('a(x="1\\"', 4, "no closing '\"'", "add it"),
        ("\\\na", 0, "a transform's name", "remove the backslash"),
        ("a \\\n", 2, "a transform's name", "remove the backslash"),
        ("a)", 1, "a transform's name, found ')'", ""),
        ("a-b", 1, "a transform's name, found '-b'", ""),
        ("é", 0, "a transform's name", ""),
        ("a(x=\u0661)", 4, "a parameter's value", ""),
        ("a\xa0b", 1, "a transform's name", ""),
    ],
)
def test_error_has_its_offset(text, offset, message, hint):
    fault = parse_chain(text).fault
    assert fault is not None
    assert fault.offset == offset
    assert message in fault.message
    assert hint in fault.hint


@pytest.mark.parametrize("space", [" ", "\n ", "\t"])
def test_space_before_a_parenthesis_is_recorded(space):
    first, second = parse_chain(f"a{space}(x=1) b").calls
    assert (first.name, first.arguments[0].value, first.spaced) == ("a", "1", True)
    assert (second.name, second.spaced) == ("b", False)
    assert parse_chain(f"a{space}b(x=1)").calls[1].spaced is False


def test_calls_before_an_error_are_returned():
    chain = parse_chain("a b(x=1) c,")
    assert [call.name for call in chain.calls] == ["a", "b", "c"]
    assert chain.fault is not None


@pytest.mark.parametrize(
    ("text", "arguments"), [("a b(", []), ("a b(x=", []), ("a b(x=1", ["1"]), ("a b(x=1'", ["1"])]
)
def test_unclosed_transform_is_separate(text, arguments):
    chain = parse_chain(text)
    assert chain.fault is None
    assert [call.name for call in chain.calls] == ["a"]
    assert chain.unfinished is not None
    assert (chain.unfinished.name, chain.unfinished.offset) == ("b", 2)
    assert [argument.value for argument in chain.unfinished.arguments] == arguments


def test_offsets_point_at_names_and_values():
    (first, second) = parse_chain('  ab  cd(x=1, y="z")').calls
    assert (first.offset, second.offset) == (2, 6)
    assert [(a.offset, a.value_offset) for a in second.arguments] == [(9, 11), (14, 16)]


def test_parsing_takes_linear_time():
    def work(count):
        text = 'a(x="' + "\\\\" * count + '"' + ", y=1" * count
        assert parse_chain(text).unfinished is not None
        return lines_run(lambda: parse_chain(text))

    assert work(8_000) < 11 * work(800)


@pytest.mark.parametrize(("count", "fault"), [(MAX_CALLS, False), (MAX_CALLS + 1, True)])
def test_number_of_transforms_is_limited(count, fault):
    chain = parse_chain(" a" * count)
    assert len(chain.calls) == MAX_CALLS
    assert (chain.fault is not None) == fault


def test_length_is_limited():
    assert parse_chain("a" * MAX_CHARACTERS).fault is None
    assert parse_chain("a" * (MAX_CHARACTERS + 1)).fault is not None


def test_page_has_every_transform():
    page = render(TransformSchemas())
    for name in TransformSchemas().names:
        assert page.count(f"### {name}\n") == 1


def test_transforms_of_the_original_come_first():
    original, beyond = render(TransformSchemas()).split("## Further transforms\n")
    assert "### fold_constants\n" in original
    assert "### optimize\n" in beyond


def test_chains_on_the_page_are_valid():
    page = render(TransformSchemas())
    chains = re.findall(r"transforms[:=] ?'(.*?)'", page)
    assert len(chains) == 2
    for chain in chains:
        steps, warnings = parse_transforms_flag(chain)
        assert len(steps) >= 2
        assert not warnings


def test_image_is_below_the_description():
    page = render(TransformSchemas(), {"rename_op"})
    assert page.count("![") == 1
    sentence = TransformSchemas().get("rename_op")["description"]
    image = "![rename_op: before and after](../images/transforms/rename_op.svg)"
    assert f"### rename_op\n\n{sentence}\n\n{image}\n\n| parameter" in page
