"""Keys and values in messages."""

from __future__ import annotations

from mobileprep.recipe.tree import dotted, show


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
