"""Tests."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mobileprep.errors import RecipeError
from mobileprep.recipe.steps import TextPlaces
from mobileprep.recipe.tree import InvalidRecipeError, find, plain
from mobileprep.recipe.units import Variables
from mobileprep.recipe.yaml_tree import MAX_DEPTH, MAX_NODES, References, parse_yaml

LOADERS = [
    pytest.param(yaml.SafeLoader, id="python"),
    pytest.param(
        getattr(yaml, "CSafeLoader", None),
        id="libyaml",
        marks=pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="PyYAML without libyaml"),
    ),
]


@pytest.fixture(params=LOADERS)
def parse(request, source):
    """Parse text with each parser of PyYAML."""
    return lambda text: parse_yaml(source(text), request.param)


@pytest.fixture
def problem_of(parse):
    """Return the only problem of a text as ``line:column: message; hint``."""

    def problem_of(text: str) -> str:
        with pytest.raises(InvalidRecipeError) as caught:
            parse(text)
        (problem,) = caught.value.problems
        return f"{problem.place.line}:{problem.place.column}: {problem.message}; {problem.hint}"

    return problem_of


def test_values_follow_yaml_1_2(parse):
    text = "a: 1e-3\nb: no\nc: 'true'\nd: true\ne:\nf: [1, 010, 1:30]\ng: 2024-01-31\n"
    assert plain(parse(text)) == {
        "a": 0.001,
        "b": "no",
        "c": "true",
        "d": True,
        "e": None,
        "f": [1, "010", "1:30"],
        "g": "2024-01-31",
    }


def test_keys_and_values_have_locations(parse):
    tree = parse("version: 1\ntargets:\n  phone:\n    abis: [x86,\n      arm]\n  é: 'x'\n")
    assert str(tree.entries["version"].key_place) == "recipe.yaml:1:1"
    assert str(tree.entries["version"].value.place) == "recipe.yaml:1:10"
    item = find(tree, ("targets", "phone", "abis", 1))
    assert str(item.place) == "recipe.yaml:5:7"
    assert item.place.keys == ("targets", "phone", "abis", 1)
    # Columns count characters, not bytes.
    assert str(find(tree, ("targets", "é")).place) == "recipe.yaml:6:6"


def test_scalar_keeps_its_text(parse):
    tree = parse("a: 1.10\nb: '1.10'\n")
    assert (tree.get("a").value, tree.get("a").text, tree.get("a").plain) == (1.1, "1.10", True)
    assert (tree.get("b").value, tree.get("b").plain) == ("1.10", False)


def test_aliases_and_merge_keys(parse):
    text = (
        "base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\n"
        "one: {<<: *b, y: 9}\nboth: {<<: [*b, *o]}\nsame: *b\n'<<': text\n"
    )
    result = plain(parse(text))
    assert result["one"] == {"x": 1, "y": 9}
    assert result["both"] == {"x": 1, "y": 2, "z": 4}
    assert result["same"] == result["base"]
    assert result["<<"] == "text"


def test_merged_key_keeps_its_location(parse):
    tree = parse("base: &b\n  x: 1\none:\n  <<: *b\n")
    assert str(find(tree, ("one", "x")).place) == "recipe.yaml:2:6"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: the file is empty"),
        ("# nothing\n", "1:1: the file is empty"),
        ("- a\n", "1:1: a recipe is a mapping"),
        ("just text\n", "1:1: a recipe is a mapping"),
        ("a: 1\n---\nb: 2\n", "2:1: a second YAML document starts here"),
        ("a: 1\nb: 2\na: 3\n", "3:1: the key 'a' is given twice; first at recipe.yaml:1:1"),
        ("t:\n  x: 1\n  x: 1\n", "3:3: the key 'x' is given twice; first at recipe.yaml:2:3"),
        ("'a': 1\n\"a\": 2\n", "2:1: the key 'a' is given twice; first at recipe.yaml:1:1"),
        ("a: 1\n2: b\n", '2:1: a key must be text, and 2 is not; write "2" in quotes'),
        ("true: b\n", "1:1: a key must be text, and true is not"),
        ("~: b\n", "1:1: a key must be text, and ~ is not"),
        ("? \n: b\n", "1:2: a key must be text, and an empty key is not"),
        ("? [a]\n: b\n", "1:3: a key must be text"),
        ("a: !!str 1\n", "1:4: YAML tags are not read; remove 'tag:yaml.org,2002:str'"),
        ("a: !!python/object:os.system x\n", "1:4: YAML tags are not read"),
        ("a: !x {b: c}\n", "1:4: YAML tags are not read; remove '!x'"),
        ("a: *b\n", "1:4: the alias *b has no anchor above it"),
        ("a: &a [1, *a]\n", "1:11: the alias *a stands inside its own anchor"),
        ("<<: 1\n", "1:5: '<<' merges mappings only"),
        ("a: &a {x: 1}\nb: {<<: *a, <<: *a}\n", "2:13: the merge key '<<' is given twice"),
        ("a: \x07\n", "1:4: the character U+0007 is not allowed in YAML; delete it"),
        ("a: 1\nb: x\x00y\n", "2:5: the character U+0000 is not allowed in YAML; delete it"),
    ],
)
def test_invalid_text_is_refused_with_its_location(problem_of, text, expected):
    assert problem_of(text).startswith(expected)


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("a:\n\tb: 1\n", "2:1"),
        ("a:\n  b: 1\n\tc: 2\n", "3:1"),
        ("a:\n  - x\n  \t- y\n", "3:3"),
        ("a:\n  b: x\n\ty\n", "3:1"),
        ("\ta: 1\n", "1:1"),
    ],
)
def test_tab_in_the_indentation_is_refused(source, text, location):
    with pytest.raises(InvalidRecipeError) as caught:
        parse_yaml(source(text))
    assert str(caught.value.problems[0]).startswith(
        f"recipe.yaml:{location}: a tab in the indentation; indent with spaces"
    )


@pytest.mark.parametrize(
    ("text", "location"),
    [("a: b: c\n", "1:5"), ("a: [1, 2\n", "2:1"), ("a: 'x\n", "2:1"), ("a: @x\n", "1:4")],
)
def test_syntax_error_has_its_location(problem_of, text, location):
    assert problem_of(text).startswith(f"{location}: not YAML: ")


@pytest.mark.parametrize("text", ['a: "\\ud800"\n', 'a: "\\UFFFFFFFF"\n', "%YAML 1" + "0" * 5000])
def test_invalid_escapes_and_directives_are_refused(parse, text):
    with pytest.raises(RecipeError):
        parse(text)


def test_alias_bomb_is_refused(parse):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    with pytest.raises(InvalidRecipeError, match="more than 10,000 values") as caught:
        parse("\n".join(lines))
    # a3 would have 11,111 values. Its tenth item exceeds the limit.
    assert caught.value.problems[0].place.line == 4


def test_number_of_values_is_limited(parse):
    # The list, its key, and the root also count.
    assert len(plain(parse(f"a: [{'1,' * (MAX_NODES - 3)}]"))["a"]) == MAX_NODES - 3
    with pytest.raises(RecipeError, match="more than 10,000 values"):
        parse(f"a: [{'1,' * (MAX_NODES - 2)}]")


@pytest.mark.parametrize("depth", [MAX_DEPTH, 100_000])
def test_deep_nesting_is_refused(parse, depth):
    with pytest.raises(RecipeError, match="nested more than 100 levels deep"):
        parse(f"a: {'[' * depth}")


def test_nesting_up_to_the_limit_is_accepted(parse):
    inner = MAX_DEPTH - 1
    assert plain(parse(f"a: {'[' * inner}{']' * inner}"))


def test_nesting_through_aliases_is_limited(parse):
    lines = [f"a0: &a0 {'[' * 60}{']' * 60}", f"a1: {'[' * 60}*a0{']' * 60}"]
    with pytest.raises(RecipeError, match=r"2:65: .*nested more than 100 levels deep"):
        parse("\n".join(lines))


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


REFERENCES_LOADERS = [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)]
VALUES = {"N": "16", "B": "true", "S": "text", "EVIL": "x}, {y: [1, # '\"\n- z: &a *a"}


@pytest.fixture(params=REFERENCES_LOADERS)
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


@pytest.mark.parametrize("loader", REFERENCES_LOADERS)
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
