"""Regular expressions over texts."""

from __future__ import annotations

import time

import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from tests.ops.cases import OpCase, case
from tests.ops.graphs import f32, run
from tests.ops.strings.test_joining import scalar, texts

LINES = texts("cat hat", "dog", "")


def test_every_match_or_the_first_is_rewritten() -> None:
    rest = (scalar("(.)at"), scalar(r"\1ow"))
    assert run("RegexReplace", LINES, *rest).tolist() == [b"cow how", b"dog", b""]
    first = run("RegexReplace", LINES, *rest, replace_global=False)
    assert first.tolist() == [b"cow hat", b"dog", b""]


def test_pattern_and_rewrite_may_be_attributes() -> None:
    found = run("StaticRegexReplace", LINES, pattern="[aeiou]", rewrite="é")
    assert found.tolist() == ["cét hét".encode(), "dég".encode(), b""]


def test_whole_matches() -> None:
    assert run("RegexFullMatch", LINES, scalar("d.*")).tolist() == [False, True, False]
    assert run("StaticRegexFullMatch", LINES, pattern="[a-z ]*").tolist() == [True, True, True]


@pytest.mark.parametrize(("pattern", "rewrite"), [("(", ""), ("a", r"\1"), ("(?=a)", "")])
def test_malformed_expressions_name_the_node(pattern: str, rewrite: str) -> None:
    with pytest.raises(Exception, match="node 'y'") as caught:
        run("RegexReplace", LINES, scalar(pattern), scalar(rewrite))
    assert caught.type.__name__ in ("InvalidGraphError", "UnsupportedError")


def test_texts_that_are_no_utf8_pass_through() -> None:
    odd = texts("x")
    odd[0] = b"\xffx"
    assert run("RegexReplace", odd, scalar("x"), scalar("y")).tolist() == [b"\xffy"]


def test_numbers_are_no_texts() -> None:
    with pytest.raises(InvalidGraphError, match="strings are needed, not float32"):
        run("StaticRegexFullMatch", f32(1), pattern="a")


OP_CASES = [
    case("RegexReplace", [(2, -1), (), ()], [(2, -1)]),
    case("RegexFullMatch", [(2, -1), ()], [(2, -1)]),
    case("StaticRegexReplace", [(2, -1)], [(2, -1)], pattern="a", rewrite="b"),
    case("StaticRegexFullMatch", [(2, -1)], [(2, -1)], pattern="a"),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()


def test_a_graph_made_to_keep_a_backtracking_engine_busy_is_folded_or_refused_at_once() -> None:
    begin = time.perf_counter()
    try:
        found = run("RegexFullMatch", texts("a" * 41), scalar("(a*)*b"))
    except UnsupportedError as error:
        assert "mobileprep[regex]" in error.hint
    else:
        assert found.tolist() == [False]
    assert time.perf_counter() - begin < 20  # a backtracking engine takes hours
