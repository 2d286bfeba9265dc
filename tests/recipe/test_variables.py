from __future__ import annotations

import pytest

from mobileprep.recipe.tree import plain
from mobileprep.recipe.units import MAX_EXPANDED, Variables
from mobileprep.recipe.yaml_tree import parse_yaml


@pytest.fixture
def substitute(source):
    """Substitute the variables of a YAML text and return the values and problems."""

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
def test_variables_are_substituted(substitute, text, value):
    environ = {"X": "x", "EMPTY": "", "N": "16", "DOLLAR": "${X}"}
    result, problems = substitute(text, environ=environ)
    assert problems == []
    assert result == {"a": value}
    assert type(result["a"]) is type(value)


def test_settings_override_the_environment(substitute):
    result, _ = substitute("a: ${X}", settings={"X": "1st"}, environ={"X": "2nd"})
    assert result == {"a": "1st"}


def test_keys_and_other_values_are_not_changed(substitute):
    result, _ = substitute("${X}: [1, true, ~, '$$']", environ={"X": "x"})
    assert result == {"${X}": [1, True, None, "$"]}


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
def test_problem_is_reported_with_its_location(substitute, text, expected):
    _, (problem, *more) = substitute(text, environ={"MODEL": "m"})
    assert problem.startswith(expected)
    assert more == []


def test_all_missing_variables_are_reported(substitute):
    _, problems = substitute("a: ${X}\nb: ${Y}${Z}\n")
    assert len(problems) == 3


def test_size_of_substituted_values_is_limited(substitute):
    result, problems = substitute(f"a: '{'${X}' * 100}'\n", environ={"X": "x" * (1 << 17)})
    assert "the variables of this recipe come to more than" in problems[0]
    assert len(problems) == 1
    assert len(result["a"]) <= MAX_EXPANDED


def test_used_names_are_collected(source):
    variables = Variables({}, {"B": "b"})
    variables.substitute(parse_yaml(source("a: ${A:-1} ${B}\n")))
    assert variables.used == {"A", "B"}
