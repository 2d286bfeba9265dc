from __future__ import annotations

import pytest

from mobileprep.recipe.tree import plain
from mobileprep.recipe.units import MAX_EXPANDED, Variables
from mobileprep.recipe.yaml_tree import parse_yaml


@pytest.fixture
def substitute(source):
    """Replaces the variables of a YAML text; gives values and problems."""

    def substitute(text, settings=None, environ=None):
        variables = Variables(settings or {}, environ or {})
        tree = variables.substitute(parse_yaml(source(text)))
        return plain(tree), [f"{p.place}: {p.message}; {p.hint}" for p in variables.problems]

    return substitute


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: ${X}/b", "x/b"),
        ("a: '${X}${X}'", "xx"),
        ("a: ${NO:-d}", "d"),
        ("a: ${NO:-}", None),
        ("a: '${NO:-}'", ""),
        ("a: ${EMPTY:-d}", "d"),
        ("a: '${EMPTY}'", ""),
        ("a: ${X:-d}", "x"),
        ("a: ${NO:-a:-b}", "a:-b"),
        ("a: $$", "$"),
        ("a: $${X}", "${X}"),
        ("a: $$$$", "$$"),
        ("a: $X $", "$X $"),
        ("a: ${N}", 16),
        ("a: '${N}'", "16"),
        ("a: ${NO:-1e-3}", 0.001),
        ("a: ${NO:-true}", True),
        ("a: ${DOLLAR}", "${X}"),
    ],
)
def test_replaced(substitute, text, value):
    environ = {"X": "x", "EMPTY": "", "N": "16", "DOLLAR": "${X}"}
    found, problems = substitute(text, environ=environ)
    assert problems == []
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_settings_come_before_the_environment(substitute):
    found, _ = substitute("a: ${X}", settings={"X": "1st"}, environ={"X": "2nd"})
    assert found == {"a": "1st"}


def test_keys_and_values_that_are_no_text_stay(substitute):
    found, _ = substitute("${X}: [1, true, ~, '$$']", environ={"X": "x"})
    assert found == {"${X}": [1, True, None, "$"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a: 1\nb: [x, '${MODL}']\n",
            (
                "recipe.yaml:2:8: the variable MODL has no value; did you mean MODEL? "
                "give it with --set MODL=VALUE or write ${MODL:-default}"
            ),
        ),
        ("a: ${}\n", "recipe.yaml:1:4: '${}' is not a variable; write ${NAME}"),
        ("a: ${1A}\n", "recipe.yaml:1:4: '${1A}' is not a variable; write ${NAME}"),
        ("a: ${A:b}\n", "recipe.yaml:1:4: '${A:b}' is not a variable; write ${NAME}"),
        ("a: x${\n", "recipe.yaml:1:4: '${' is not a variable; write ${NAME}"),
        ("a: '${A:-${B}}'\n", "recipe.yaml:1:4: '${A:-${B}}' is not a variable; write ${NAME}"),
    ],
)
def test_a_problem_has_its_place(substitute, text, expected):
    _, (problem, *more) = substitute(text, environ={"MODEL": "m"})
    assert problem.startswith(expected)
    assert more == []


def test_all_missing_variables_are_told(substitute):
    _, problems = substitute("a: ${X}\nb: ${Y}${Z}\n")
    assert len(problems) == 3


def test_replacing_is_bounded(substitute):
    found, problems = substitute(f"a: '{'${X}' * 100}'\n", environ={"X": "x" * (1 << 17)})
    assert "the variables of this recipe come to more than" in problems[0]
    assert len(problems) == 1
    assert len(found["a"]) <= MAX_EXPANDED


def test_names_are_collected(source):
    variables = Variables({}, {"B": "b"})
    variables.substitute(parse_yaml(source("a: ${A:-1} ${B}\n")))
    assert variables.used == {"A", "B"}
