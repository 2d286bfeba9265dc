"""RE2's syntax in both engines."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.ops.numerics.regular_expressions import (
    Expression,
    decoded,
    encoded,
    python_expression,
    re2_expression,
)

Engine = Callable[[bytes], "Expression[bytes] | Expression[str]"]


def with_re2(pattern: bytes) -> Expression[bytes]:
    return re2_expression(pattern, pytest.importorskip("re2"))


@pytest.fixture(params=[with_re2, python_expression])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def changed(
    engine: Engine, pattern: str, rewrite: str, text: str, *, everywhere: bool = True
) -> str:
    expression = engine(pattern.encode())
    return expression.replaced(rewrite.encode(), text.encode(), everywhere=everywhere).decode()


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        # A match of nothing right after a match does not count, as it does to Python.
        ("b*", "abc", "-a-c-"),
        ("", "ab", "-a-b-"),
        # The end of the text, not the place before its last line end.
        ("$", "a\n", "a\n-"),
        ("(?m)$", "a\n", "a-\n-"),
        (r"\z", "a", "a-"),
        ("[[:digit:][:space:]]+", "a1 2b", "a-b"),
        ("[^[:alpha:]]", "a1b", "a-b"),
        (r"\Q.*\E", "a.*b", "a-b"),
        (r"\x{e9}", "é", "-"),
        ("[]x]", "a]x", "a--"),
        # Classes of letters are those of ASCII.
        (r"\w", "aé", "-é"),
        (r"\d", "٣3", "٣-"),
        (".", "日\n", "-\n"),
        # Nothing matches between the bytes of a character.
        ("x*", "日x日", "-日-日-"),
    ],
)
def test_what_matches(engine: Engine, pattern: str, text: str, expected: str) -> None:
    assert changed(engine, pattern, "-", text) == expected


def test_rewrites_name_groups(engine: Engine) -> None:
    assert changed(engine, "(a)(b)?", r"[\2\1\0\\]", "ab a") == r"[baab\] [aa\]"


def test_only_the_first_match(engine: Engine) -> None:
    assert changed(engine, "a", "b", "aaa", everywhere=False) == "baa"


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)", r"(a)\1", "a++", r"\pL", "(?P=n)", r"\C"])
def test_what_only_one_engine_has_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match="needs RE2") as caught:
        python_expression(pattern.encode())
    assert "mobileprep[regex]" in caught.value.hint


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]", "*"])
def test_malformed_patterns_are_refused(engine: Engine, pattern: str) -> None:
    with pytest.raises(ValueError, match="is not understood"):
        engine(pattern.encode())


@pytest.mark.parametrize("rewrite", [r"\1", "\\", r"\x"])
def test_groups_that_are_not_there_are_refused(engine: Engine, rewrite: str) -> None:
    with pytest.raises(ValueError, match="names a group"):
        changed(engine, "a", rewrite, "a")


def test_any_bytes_survive() -> None:
    data = bytes(range(256))
    assert encoded(decoded(data)) == data


# Each takes Python's engine more than 2 to the power of 30 steps on a text that does not match.
HOSTILE = [
    "(a+)+$",
    "(a|a)*$",
    "(a|aa)+$",
    "(a?){40}$",
    "(?:a*)*$",
    "a*a*a*a*a*a*$",
    "(a{0,9}){9}$",
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_patterns_end_at_once(pattern: str) -> None:
    begin = time.perf_counter()
    assert not with_re2(pattern.encode()).matches(b"a" * 60 + b"b")
    assert time.perf_counter() - begin < 1


@pytest.mark.parametrize("pattern", HOSTILE)
def test_python_refuses_hostile_patterns_before_they_run(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match="may take very long on a text of 61 characters"):
        python_expression(pattern.encode()).matches(b"a" * 60 + b"b")


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        (r"\s+", 10_000),
        ("<br />|[!-~]", 100_000),
        (r"\w+@\w+", 500),
        (r"(?:\d{1,3}\.){3}\d{1,3}", 10_000),
        ("(?P<first>a+)+", 4),
        (r"[(*)|]+\(+", 1000),
    ],
)
def test_python_runs_ordinary_patterns(pattern: str, length: int) -> None:
    assert not python_expression(pattern.encode()).matches(b"~" * length)


def test_texts_that_are_no_utf8_keep_their_bytes(engine: Engine) -> None:
    found = engine(b"x*").replaced(b"-", b"\xffx\xe6\x97", everywhere=True)
    assert found == b"-\xff-\xe6-\x97-"


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        # The Kelvin sign, and the long s, are letters of Unicode's case folding.
        ("(?i)k", "\u212a".encode(), True),
        ("(?i:s)", "\u017f".encode(), True),
        ("(?i)ä", "Ä".encode(), True),
        # A byte that is no UTF-8 is not a character.
        (".", b"\xff", False),
        ("[^a]", b"\xff", False),
        (r"a\W", b"a\xff", False),
        # Nothing has no border of a word.
        (r"\B", b"", True),
    ],
)
def test_where_the_engines_part_python_s_refuses(pattern: str, text: bytes, matches: bool) -> None:
    assert with_re2(pattern.encode()).matches(text) is matches
    with pytest.raises(UnsupportedError, match="needs RE2 for the text") as error:
        python_expression(pattern.encode()).matches(text)
    assert "pip install 'mobileprep[regex]'" in str(error.value.hint)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("(?i)k", b"K"), (".", "ä".encode()), ("[^a]", "ä".encode()), ("ä", "ä".encode())],
)
def test_where_they_agree_both_run(engine: Engine, pattern: str, text: bytes) -> None:
    assert engine(pattern.encode()).matches(text)


def test_flags_within_a_pattern_need_re2() -> None:
    assert with_re2(b"a(?i)b").matches(b"aB")
    with pytest.raises(UnsupportedError, match="needs RE2"):
        python_expression(b"a(?i)b")


def test_a_thousand_million_ways_are_tried_and_no_more() -> None:
    # Each "a?" doubles them, and a search may begin at 4 places of 3 characters.
    assert python_expression(b"a?" * 28).matches(b"aaa")
    with pytest.raises(UnsupportedError, match="may take very long on a text of 3 characters"):
        python_expression(b"a?" * 29).matches(b"aaa")
