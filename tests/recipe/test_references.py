"""Unquoted variables where braces have a meaning in YAML."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mobileprep.errors import RecipeError
from mobileprep.recipe.tree import find, plain
from mobileprep.recipe.units import Variables
from mobileprep.recipe.yaml_tree import References, parse_yaml

LOADERS = [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)]
VALUES = {"N": "16", "B": "true", "S": "text", "EVIL": "x}, {y: [1, # '\"\n- z: &a *a"}


@pytest.fixture(params=LOADERS)
def values(source, request):
    """Parse YAML text and substitute its variables."""

    def read(text):
        tree = parse_yaml(source(text), request.param)
        variables = Variables({}, VALUES)
        result = plain(variables.substitute(tree))
        assert variables.problems == []
        return result

    return read


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a: {b: ${N}}", {"a": {"b": 16}}),
        ("a: {b: ${N}, c: ${B} }", {"a": {"b": 16, "c": True}}),
        ("a: [${N},${S},x${N}y]", {"a": [16, "text", "x16y"]}),
        ("a: {b: ${NO:-16}}", {"a": {"b": 16}}),
        ("a: {b: ${NO:-x, y: [z]}}", {"a": {"b": "x, y: [z]"}}),
        ("a: {b: ${NO:-c # d}}  # ${N", {"a": {"b": "c # d"}}),
        ("a: ${NO:-c: d}", {"a": "c: d"}),
        ("a: {b: '${N}', c: \"${N}\"}", {"a": {"b": "16", "c": "16"}}),
        ('a: {b: "${NO:-it\'s}"}', {"a": {"b": "it's"}}),
        ("a: {b: '${NO:-it''s}'}", {"a": {"b": "it's"}}),
        ('a: {b: "${NO:-\\ttab}"}', {"a": {"b": "\ttab"}}),
        ("a: {b: $${N}}", {"a": {"b": "${N}"}}),
        ("a: {b: $$$${N}}", {"a": {"b": "$${N}"}}),
        ('a: {"b":${N}}', {"a": {"b": 16}}),
        ("a: {\n  b: ${N}, # ${S}, }\n  c: 1}", {"a": {"b": 16, "c": 1}}),
        ("a: |\n  {b: ${N}}\n  ${S}\n", {"a": "{b: 16}\ntext\n"}),
        ("a: >\n  ${S}\n  ${S}\n", {"a": "text text\n"}),
        ("a: x ${NO:-y\n  z}", {"a": "x y z"}),
        ("{${N}: 1}", {"${N}": 1}),
        ("a: &x ${N}\nb: [*x, ${N}]", {"a": 16, "b": [16, 16]}),
        ("a: [${S}, \U00100024]", None),
        ("a: \U00100024 ${N}", {"a": "\U00100024 16"}),
        ("a: [\U0001f600${NO:-\U0001f600}]", None),
        ("a: \U0001f600${NO:-\U0001f600}", {"a": "\U0001f600\U0001f600"}),
    ],
)
def test_variables_are_single_words(values, text, meaning):
    if meaning is None:
        with pytest.raises(RecipeError, match="not YAML"):
            values(text)
    else:
        assert values(text) == meaning


def test_values_never_become_structure(values):
    assert values("a: {b: ${EVIL}}\nc: [${EVIL}]\nd: ${EVIL}") == {
        "a": {"b": VALUES["EVIL"]},
        "c": [VALUES["EVIL"]],
        "d": VALUES["EVIL"],
    }


def test_locations_are_preserved(source):
    tree = parse_yaml(source("a: {b: ${NO:-x, y}, c: [1, ${N}, end]}"))
    for keys, column in ((("a", "b"), 8), (("a", "c", 0), 25), (("a", "c", 1), 28)):
        assert find(tree, keys).place.column == column
    assert find(tree, ("a", "c", 2)).place.column == 34


@pytest.mark.parametrize("loader", LOADERS)
def test_messages_do_not_show_placeholder_characters(source, loader):
    for text in ("a: [&${N} x]", 'a: "\\${N}"', "a: {b: ${N} ${S}: ]}", "!<${N}> a: b"):
        with pytest.raises(RecipeError) as caught:
            parse_yaml(source(text), loader)
        assert all(ord(c) < 0x100000 for c in caught.value.message)


@given(st.text(alphabet="${}NAME:-\"'\\ ,[]#\n\u00e9\U0001f600\U00100024"))
def test_hiding_keeps_the_length_and_is_reversible(text):
    references = References(text)
    assert len(references.hidden) == len(text)
    assert references.shown(references.hidden) == text


def as_text(value):
    return json.dumps(value, ensure_ascii=False, default=str)


@given(st.text(alphabet="${}NA:-ab\n"))
def test_valid_yaml_keeps_its_meaning(text):
    # Comments, quotes, and colons with blanks are excluded: they differ in a default.
    try:
        before = as_text(yaml.safe_load(text))
    except (yaml.YAMLError, TypeError):  # TypeError: a mapping as a key.
        return
    references = References(text)
    assert references.shown(as_text(yaml.safe_load(references.hidden))) == before


def test_many_dollar_signs_take_linear_time():
    text = "${" * 200_000 + "$" * 200_000
    assert References(text).hidden == text
