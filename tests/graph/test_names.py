"""Names for new nodes."""

from __future__ import annotations

from mobileprep.graph.refs import FreshNames, unique_name


def test_names_are_made_unique_by_the_first_free_number() -> None:
    assert unique_name("a", {"b"}) == "a"
    assert unique_name("a", {"a", "a_1"}) == "a_2"
    assert unique_name("a", {"a"}, {"a_1": None}) == "a_2"


def test_a_fresh_name_is_given_once() -> None:
    names = FreshNames(["a"])
    assert [names.name("a"), names.name("a"), names.name("b"), names.name("b")] == [
        "a_1",
        "a_2",
        "b",
        "b_1",
    ]
