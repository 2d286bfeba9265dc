"""Names for new nodes."""

from __future__ import annotations

from mobileprep.graph.refs import FreshNames, unique_name


def test_unique_name_uses_the_first_free_number() -> None:
    assert unique_name("a", {"b"}) == "a"
    assert unique_name("a", {"a", "a_1"}) == "a_2"
    assert unique_name("a", {"a"}, {"a_1": None}) == "a_2"


def test_fresh_names_do_not_repeat() -> None:
    names = FreshNames(["a"])
    assert [names.name(name) for name in "aabb"] == ["a_1", "a_2", "b", "b_1"]
