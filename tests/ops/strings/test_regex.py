"""Regular expression ops."""

from __future__ import annotations

import time

import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from tests.ops.cases import case, case_tests
from tests.ops.graphs import f32, run
from tests.ops.strings.test_joining import scalar, texts

LINES = texts("cat hat", "dog", "")


def test_regex_replace() -> None:
    rest = (scalar("(.)at"), scalar(r"\1ow"))
    assert run("RegexReplace", LINES, *rest).tolist() == [b"cow how", b"dog", b""]
    first = run("RegexReplace", LINES, *rest, replace_global=False)
    assert first.tolist() == [b"cow hat", b"dog", b""]


def test_static_regex_replace() -> None:
    result = run("StaticRegexReplace", LINES, pattern="[aeiou]", rewrite="é")
    assert result.tolist() == ["cét hét".encode(), "dég".encode(), b""]


def test_regex_full_match() -> None:
    assert run("RegexFullMatch", LINES, scalar("d.*")).tolist() == [False, True, False]
    assert run("StaticRegexFullMatch", LINES, pattern="[a-z ]*").tolist() == [True, True, True]


@pytest.mark.parametrize(("pattern", "rewrite"), [("(", ""), ("a", r"\1"), ("(?=a)", "")])
def test_invalid_expression_names_the_node(pattern: str, rewrite: str) -> None:
    with pytest.raises(Exception, match="node 'y'") as error:
        run("RegexReplace", LINES, scalar(pattern), scalar(rewrite))
    assert error.type.__name__ in ("InvalidGraphError", "UnsupportedError")


def test_invalid_utf8_is_preserved() -> None:
    odd = texts("x")
    odd[0] = b"\xffx"
    assert run("RegexReplace", odd, scalar("x"), scalar("y")).tolist() == [b"\xffy"]


def test_numbers_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match="strings are needed, not float32"):
        run("StaticRegexFullMatch", f32(1), pattern="a")


OP_CASES = [
    case("RegexReplace", [(2, -1), (), ()], [(2, -1)]),
    case("RegexFullMatch", [(2, -1), ()], [(2, -1)]),
    case("StaticRegexReplace", [(2, -1)], [(2, -1)], pattern="a", rewrite="b"),
    case("StaticRegexFullMatch", [(2, -1)], [(2, -1)], pattern="a"),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_catastrophic_backtracking_is_avoided() -> None:
    begin = time.perf_counter()
    try:
        result = run("RegexFullMatch", texts("a" * 41), scalar("(a*)*b"))
    except UnsupportedError as error:
        assert "mobileprep[regex]" in error.hint
    else:
        assert result.tolist() == [False]
    assert time.perf_counter() - begin < 20  # a backtracking engine needs hours
