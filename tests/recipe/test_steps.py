from __future__ import annotations

import pytest

from mobileprep.errors import UsageError
from mobileprep.recipe.model import Step
from mobileprep.recipe.steps import parse_transforms_flag, read_steps
from mobileprep.recipe.yaml_tree import parse_yaml


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
