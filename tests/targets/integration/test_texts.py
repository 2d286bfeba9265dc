"""Literals and identifiers of the code for apps."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mobileprep.errors import UnsupportedError
from mobileprep.targets.integration.texts import (
    c_text,
    camel,
    dims_text,
    float_text,
    java_text,
    kotlin_text,
    pascal,
    snake,
    upper,
    words_of,
)
from tests.targets.app_models import HOSTILE

ANY_TEXT = st.text() | st.sampled_from(HOSTILE)


@given(ANY_TEXT)
def test_c_literals_preserve_the_bytes(text: str) -> None:
    literal = c_text(text)
    # Python reads octal escapes of three digits as C does.
    assert ast.literal_eval(f"b{literal}") == text.encode()
    assert "?" not in literal


@given(ANY_TEXT)
def test_java_literals_avoid_unicode_escapes_below_256(text: str) -> None:
    literal = java_text(text)
    units = ast.literal_eval(literal).encode("utf-16-le", "surrogatepass")
    assert units == text.encode("utf-16-le")
    assert "\\u00" not in literal
    assert literal.isascii() and literal.isprintable()


@given(ANY_TEXT)
def test_kotlin_literals_have_no_templates(text: str) -> None:
    literal = kotlin_text(text)
    units = ast.literal_eval(literal).encode("utf-16-le", "surrogatepass")
    assert units == text.encode("utf-16-le")
    assert "$" not in literal and literal.isascii() and literal.isprintable()


def test_floats_have_the_shortest_exact_form() -> None:
    strings = [float_text(v) for v in (127.5, 1, 0.017124753831663668, 1e-5, -0.0)]
    assert strings == ["127.5f", "1.0f", "0.017124753f", "1e-05f", "-0.0f"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_numbers_outside_of_float32_are_refused(value: float) -> None:
    with pytest.raises(UnsupportedError, match="not a float32 number"):
        float_text(value)


def test_sizes_are_listed() -> None:
    assert dims_text((-1, 28, 28)) == "-1, 28, 28"
    assert dims_text(()) == ""


def test_identifier_uses_the_last_part_of_a_name() -> None:
    (words,) = words_of(["InceptionV3/Predictions/Reshape_1"], "output")
    assert words == ("Reshape", "1", "output")
    assert pascal(words) == "Reshape1Output"
    assert camel(words) == "reshape1Output"
    assert snake(words) == "reshape_1_output"
    assert upper(words) == "RESHAPE_1_OUTPUT"


def test_names_with_equal_last_parts_keep_all_parts() -> None:
    assert words_of(["a/y", "b/y"], "output") == [("a", "y", "output"), ("b", "y", "output")]


@given(st.lists(ANY_TEXT, max_size=8))
def test_identifiers_are_valid_and_distinct(names: list[str]) -> None:
    for spell in (pascal, camel, snake, upper):
        identifiers = [spell(words) for words in words_of(names, "input")]
        assert all(name.isidentifier() and name.isascii() for name in identifiers)
        assert len({name.casefold() for name in identifiers}) == len(names)
