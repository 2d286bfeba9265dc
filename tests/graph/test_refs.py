"""References to tensors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mobileprep.graph.refs import CONTROL, Ref, control, parse_function_ref, parse_ref


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("a", Ref("a")),
        ("scope/a", Ref("scope/a")),
        ("a:1", Ref("a", 1)),
        ("a:0", Ref("a", 0)),
        ("a:12", Ref("a", 12)),
        ("^a", Ref("a", CONTROL)),
        ("^scope/a", Ref("scope/a", CONTROL)),
        # A suffix that is not a number belongs to the name.
        ("a:b", Ref("a:b")),
        ("a:-1", Ref("a:-1")),
        ("a:+1", Ref("a:+1")),
        ("a: 1", Ref("a: 1")),
        ("a:1_0", Ref("a:1_0")),
        ("a:\N{ARABIC-INDIC DIGIT ONE}", Ref("a:\N{ARABIC-INDIC DIGIT ONE}")),
        ("a:", Ref("a:")),
        ("a:b:2", Ref("a:b", 2)),
        ("", Ref("")),
        (":3", Ref("", 3)),
        # A control dependency has no output number.
        ("^a:1", Ref("a:1", CONTROL)),
    ],
)
def test_references_are_parsed(text: str, ref: Ref) -> None:
    assert parse_ref(text) == ref


@pytest.mark.parametrize("digits", ["1" * 5000, "9" * 10])
def test_very_long_number_is_part_of_the_name(digits: str) -> None:
    assert parse_ref(f"a:{digits}") == Ref(f"a:{digits}")


@given(st.text())
def test_references_survive_a_round_trip(text: str) -> None:
    formatted = str(parse_ref(text))
    # Only a number with leading zeros is normalized.
    assert parse_ref(formatted) == parse_ref(text)
    if not text.rpartition(":")[2].startswith("0"):
        assert formatted == text


def test_explicit_first_output_is_preserved_and_equal() -> None:
    assert str(parse_ref("a:0")) == "a:0"
    assert str(parse_ref("a")) == "a"
    assert parse_ref("a:0") == parse_ref("a")
    assert hash(parse_ref("a:0")) == hash(parse_ref("a"))


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("x", Ref("x")),
        ("n:output:0", Ref("n", 0, "output")),
        ("n:output:3", Ref("n", 3, "output")),
        ("^n", Ref("n", CONTROL)),
        ("x:1", Ref("x", 1)),
    ],
)
def test_references_inside_functions_are_parsed(text: str, ref: Ref) -> None:
    assert parse_function_ref(text) == ref
    assert str(parse_function_ref(text)) == text


def test_renamed_references() -> None:
    assert str(parse_ref("a:2").renamed("b")) == "b:2"
    assert str(parse_ref("^a").renamed("b")) == "^b"
    assert str(parse_ref("a:0").renamed("b")) == "b:0"
    assert str(parse_function_ref("a:out:1").renamed("b")) == "b:out:1"


def test_control_dependencies() -> None:
    assert control("a") == parse_ref("^a")
    assert control("a").is_control
    assert not parse_ref("a").is_control
