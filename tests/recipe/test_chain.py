"""Parsing of transform chains. tests/reference compares the grammar with the original tool."""

from __future__ import annotations

import pytest

from mobileprep.recipe.steps import MAX_CALLS, MAX_CHARACTERS, parse_chain
from tests.work import lines_run


def read(text):
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
    assert read(text) == calls


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
