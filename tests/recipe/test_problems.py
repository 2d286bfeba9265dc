"""Tests."""

from __future__ import annotations

import pickle

import pytest

from mobileprep.recipe.tree import (
    InvalidRecipeError,
    Place,
    Problem,
    dotted,
    recipe_error,
    show,
    snippet,
)


def test_problem_shows_location_keys_message_and_line(source):
    text = source("version: 1\ntargets:\n  pi: {quantise: weights}\n")
    place = Place(text, 3, 8, ("targets", "pi", "quantise"))
    error = recipe_error([Problem(place, "unknown key 'quantise'", "did you mean 'quantize'?")])
    assert str(error) == (
        "recipe.yaml:3:8: targets.pi.quantise: unknown key 'quantise'; did you mean 'quantize'?\n"
        "    3 |   pi: {quantise: weights}\n"
        "      |        ^"
    )


def test_problems_are_sorted_and_unique(source):
    text = source("a\nb\nc\n" * 5)
    problems = [Problem(Place(text, line, 1), "x") for line in (10, 9, 2, 10)]
    problems.append(Problem(Place(text, 9, 1), "w"))
    result = [(p.place.line, p.message) for p in recipe_error(problems).problems]
    assert result == [(2, "x"), (9, "w"), (9, "x"), (10, "x")]


def test_long_list_of_problems_is_abbreviated(source):
    text = source("a\n" * 200)
    error = recipe_error(Problem(Place(text, line, 1), "x") for line in range(1, 151))
    assert str(error).count(": x\n") == 100
    assert str(error).endswith("... and 50 more")
    assert len(error.problems) == 150


def test_error_can_be_pickled(source):
    error = recipe_error([Problem(Place(source("a: 1\n"), 1, 4, ("a",)), "wrong")])
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, InvalidRecipeError)
    assert str(copy) == str(error)
    assert [str(p) for p in copy.problems] == [str(p) for p in error.problems]
    assert copy.exit_code == 3


def test_snippet_of_a_long_line_shows_the_part_around_the_column(source):
    text = source("x" * 300 + "HERE" + "y" * 300)
    line, caret = snippet(Place(text, 1, 301)).splitlines()
    assert line.index("H") == caret.index("^")
    assert len(line) < 120


@pytest.mark.parametrize("text", ["a\tb", "a\x1b[31mb", "a\u202eb"])
def test_snippet_has_no_control_characters(source, text):
    assert snippet(Place(source(text), 1, 1)).splitlines()[0].isprintable()


def test_snippet_after_the_last_line_is_empty(source):
    assert snippet(Place(source("a"), 5, 1)).splitlines()[0] == "    5 |"


def test_key_path_has_dots_and_brackets_for_unusual_keys() -> None:
    assert dotted(("targets", "phone", "transforms", 1, "op")) == "targets.phone.transforms[1].op"
    assert dotted(("a b", 0)) == "['a b'][0]"
    assert dotted(()) == ""


def test_long_key_path_is_abbreviated_in_the_middle() -> None:
    assert dotted(("k" * 120,)) == "k" * 120
    assert dotted(("k" * 121,)) == f"{'k' * 60}...{'k' * 40}"


def test_long_value_is_abbreviated_at_the_end() -> None:
    assert show("a\n") == r"'a\n'"
    assert show("x" * 60) == f"'{'x' * 60}'"
    assert show("x" * 61) == f"'{'x' * 59}..."
    assert show([1, 2]) == "[1, 2]"
