from __future__ import annotations

import pytest

from mobileprep.recipe.steps import TextPlaces
from mobileprep.recipe.yaml_tree import parse_yaml


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("t: one two\n", 1, 8),
        ("t: 'one two'\n", 1, 9),
        ('t: "one two"\n', 1, 9),
        ("t:   &a  one two\n", 1, 14),
        ("t: &a 'one two'\n", 1, 12),
        ("t: |\n  one\n    two\n", 3, 5),
        ("t: &a >-\n\n  one\n\n  two\n", 5, 3),
        ("t: one\n  two\n", 2, 3),
        ("t: 'one\n\n  two'\n", 3, 3),
        ("t: |2\r\n    one\r\n  two\r\n", 3, 3),
    ],
)
def test_location_in_quoted_and_folded_text(source, text, line, column):
    scalar = parse_yaml(source(text)).get("t")
    place = TextPlaces(scalar).at(scalar.text.index("two"))
    assert (place.line, place.column) == (line, column)


@pytest.mark.parametrize("text", ['t: "one \\u0074wo"\n', "t: 'it''s two'\n"])
def test_location_after_an_escape_is_that_of_the_scalar(source, text):
    scalar = parse_yaml(source(text)).get("t")
    place = TextPlaces(scalar).at(scalar.text.index("two"))
    assert (place.line, place.column) == (1, 4)


def test_location_of_the_end_of_the_text(source):
    scalar = parse_yaml(source("t: 'one two '\n")).get("t")
    assert TextPlaces(scalar).at(len(scalar.text)).column == 12


def test_keys_are_appended(source):
    scalar = parse_yaml(source("t: one\n")).get("t")
    assert TextPlaces(scalar).at(0, ("x", "y")).keys == ("t", "x", "y")
