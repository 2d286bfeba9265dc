"""RE2 syntax in both engines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.ops.numerics.regular_expressions import (
    Expression,
    decoded,
    doublings,
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


def replace(
    engine: Engine, pattern: str, rewrite: str, text: str, *, everywhere: bool = True
) -> str:
    expression = engine(pattern.encode())
    return expression.replaced(rewrite.encode(), text.encode(), everywhere=everywhere).decode()


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        # An empty match right after a match is skipped, unlike in Python.
        ("b*", "abc", "-a-c-"),
        ("", "ab", "-a-b-"),
        # The end of the text, not before its last newline.
        ("$", "a\n", "a\n-"),
        ("(?m)$", "a\n", "a-\n-"),
        (r"\z", "a", "a-"),
        ("[[:digit:][:space:]]+", "a1 2b", "a-b"),
        ("[^[:alpha:]]", "a1b", "a-b"),
        (r"\Q.*\E", "a.*b", "a-b"),
        (r"\x{e9}", "é", "-"),
        ("[]x]", "a]x", "a--"),
        # Character classes are ASCII.
        (r"\w", "aé", "-é"),
        (r"\d", "٣3", "٣-"),
        (".", "日\n", "-\n"),
        # Empty matches do not split a character.
        ("x*", "日x日", "-日-日-"),
    ],
)
def test_matches(engine: Engine, pattern: str, text: str, expected: str) -> None:
    assert replace(engine, pattern, "-", text) == expected


def test_rewrite_with_groups(engine: Engine) -> None:
    assert replace(engine, "(a)(b)?", r"[\2\1\0\\]", "ab a") == r"[baab\] [aa\]"


def test_replace_first_match(engine: Engine) -> None:
    assert replace(engine, "a", "b", "aaa", everywhere=False) == "baa"


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)", r"(a)\1", "a++", r"\pL", "(?P=n)", r"\C"])
def test_unsupported_syntax_needs_re2(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match="needs RE2") as error:
        python_expression(pattern.encode())
    assert "mobileprep[regex]" in error.value.hint


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]", "*"])
def test_malformed_patterns_are_refused(engine: Engine, pattern: str) -> None:
    with pytest.raises(ValueError, match="is not understood"):
        engine(pattern.encode())


@pytest.mark.parametrize("rewrite", [r"\1", "\\", r"\x"])
def test_missing_groups_are_refused(engine: Engine, rewrite: str) -> None:
    with pytest.raises(ValueError, match="names a group"):
        replace(engine, "a", rewrite, "a")


def test_any_bytes_round_trip() -> None:
    data = bytes(range(256))
    assert encoded(decoded(data)) == data


# Each takes more than 2 ** 30 steps in Python's engine on a text that does not match.
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
def test_re2_runs_hostile_patterns_fast(pattern: str) -> None:
    begin = time.perf_counter()
    assert not with_re2(pattern.encode()).matches(b"a" * 60 + b"b")
    assert time.perf_counter() - begin < 1


@pytest.mark.parametrize("pattern", HOSTILE)
def test_python_refuses_hostile_patterns(pattern: str) -> None:
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


def test_invalid_utf8_is_preserved(engine: Engine) -> None:
    result = engine(b"x*").replaced(b"-", b"\xffx\xe6\x97", everywhere=True)
    assert result == b"-\xff-\xe6-\x97-"


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        # The Kelvin sign and the long s are in Unicode case folding.
        ("(?i)k", "\u212a".encode(), True),
        ("(?i:s)", "\u017f".encode(), True),
        ("(?i)ä", "Ä".encode(), True),
        # An invalid UTF-8 byte is not a character.
        (".", b"\xff", False),
        ("[^a]", b"\xff", False),
        (r"a\W", b"a\xff", False),
        # An empty text has no word boundary.
        (r"\B", b"", True),
    ],
)
def test_python_refuses_ambiguous_matches(pattern: str, text: bytes, matches: bool) -> None:
    assert with_re2(pattern.encode()).matches(text) is matches
    with pytest.raises(UnsupportedError, match="needs RE2 for the text") as error:
        python_expression(pattern.encode()).matches(text)
    assert "pip install 'mobileprep[regex]'" in str(error.value.hint)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("(?i)k", b"K"), (".", "ä".encode()), ("[^a]", "ä".encode()), ("ä", "ä".encode())],
)
def test_both_engines_match(engine: Engine, pattern: str, text: bytes) -> None:
    assert engine(pattern.encode()).matches(text)


def test_inline_flags_need_re2() -> None:
    assert with_re2(b"a(?i)b").matches(b"aB")
    with pytest.raises(UnsupportedError, match="needs RE2"):
        python_expression(b"a(?i)b")


def test_number_of_paths_is_limited() -> None:
    # Each "a?" doubles the paths, and a search of 3 characters has 4 start positions.
    assert python_expression(b"a?" * 28).matches(b"aaa")
    with pytest.raises(UnsupportedError, match="may take very long on a text of 3 characters"):
        python_expression(b"a?" * 29).matches(b"aaa")


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("ab", 1),
        ("a?", 2),
        ("a?b?", 4),
        # one path for the first and two for the second
        ("a|b?", 3),
        ("a?|b?|c", 5),
        ("(a|b?)c?", 6),
        # 0, 1, 2, or 3 times
        ("a{0,3}", 4),
        ("a{2}", 1),
        ("a{2,4}", 3),
        # 1, 2, or 3 times, each with two paths
        ("(a?){1,3}", 3 * 2**3),
    ],
)
def test_paths_at_one_position(pattern: str, paths: int) -> None:
    assert doublings(pattern, 0) == pytest.approx(math.log2(paths))


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("a", 1),
        # 0 to 7 times
        ("a*", 8),
        ("a+", 7),
        ("a*b*", 64),
        ("a{2,}", 8),
        ("(a*)*", 8 * 8**7),
    ],
)
def test_paths_on_seven_characters(pattern: str, paths: int) -> None:
    """A search starts at each of 8 positions."""
    assert doublings(pattern, 7) == pytest.approx(math.log2(8 * paths))
