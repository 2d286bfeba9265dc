"""RE2's syntax in Python's engine."""

from __future__ import annotations

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.numerics.regular_expressions import compiled, decoded, encoded, replaced


def changed(pattern: str, rewrite: str, text: str, *, everywhere: bool = True) -> str:
    return replaced(compiled(pattern.encode()), rewrite, text, everywhere=everywhere)


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
    ],
)
def test_what_matches(pattern: str, text: str, expected: str) -> None:
    assert changed(pattern, "-", text) == expected


def test_rewrites_name_groups() -> None:
    assert changed("(a)(b)?", r"[\2\1\0\\]", "ab a") == r"[baab\] [aa\]"


def test_only_the_first_match() -> None:
    assert changed("a", "b", "aaa", everywhere=False) == "baa"


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)", r"(a)\1", "a++", r"\pL", "(?P=n)", r"\C"])
def test_what_only_one_engine_has_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be run here"):
        compiled(pattern.encode())


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]", "*"])
def test_malformed_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not understood"):
        compiled(pattern.encode())


@pytest.mark.parametrize("rewrite", [r"\1", "\\", r"\x"])
def test_groups_that_are_not_there_are_refused(rewrite: str) -> None:
    with pytest.raises(ValueError, match="names a group"):
        changed("a", rewrite, "a")


def test_any_bytes_survive() -> None:
    data = bytes(range(256))
    assert encoded(decoded(data)) == data
