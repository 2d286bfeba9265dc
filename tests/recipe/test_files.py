"""Tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.recipe.files import MAX_BYTES, load_tree, named_files, path_problems, read_source
from mobileprep.recipe.sections import merge_sections
from mobileprep.recipe.tree import InvalidRecipeError, MappingNode, find, plain
from mobileprep.recipe.units import Variables
from mobileprep.recipe.yaml_tree import parse_yaml


def tree_of(path, **settings):
    return load_tree(path, Variables(settings, {}))


def problem_of(path, **settings):
    """Return the only problem of a file as ``file:line:column: keys: message; hint``."""
    with pytest.raises(InvalidRecipeError) as caught:
        tree_of(path, **settings)
    (problem,) = caught.value.problems
    return str(problem)


def test_missing_recipe_is_reported(write):
    path = write("a: 1\n")
    path.unlink()
    with pytest.raises(CorruptFileError) as caught:
        tree_of(path)
    assert caught.value.exit_code == 4
    assert str(caught.value) == "recipe.yaml: cannot be read: No such file or directory"


def test_directory_is_refused(tmp_path):
    with pytest.raises(CorruptFileError, match="is a directory, not a file"):
        tree_of(tmp_path)


def test_invalid_utf8_is_reported_with_its_location(write):
    path = write("a: 1\nb: é".encode() + b"x\xffy")
    assert problem_of(path) == "recipe.yaml:2:6: byte 0xff is not UTF-8; save the file as UTF-8"


def test_utf16_is_refused(write):
    assert "is not UTF-8" in problem_of(write("a: 1\n".encode("utf-16")))


def test_byte_order_mark_is_skipped(write):
    path = write(b"\xef\xbb\xbfa: 1\n")
    tree = tree_of(path)
    assert plain(tree) == {"a": 1}
    assert tree.entries["a"].key_place.column == 1


def test_size_limit(write):
    text = "a: 1\n#"
    assert read_source(write(text + "x" * (MAX_BYTES - len(text)))).text.startswith("a: 1")
    path = write(text + "x" * (MAX_BYTES - len(text) + 1))
    assert problem_of(path).startswith("recipe.yaml:1:1: a recipe has at most 1,048,576 bytes")


def test_extended_recipe(write):
    write("a: 1\nf: {x: 1, y: 2}\n", "shared/base.yaml")
    path = write("extends: ../shared/base.yaml\nf: {y: 3}\n", "app/recipe.yaml")
    tree = tree_of(path)
    assert plain(tree) == {"a": 1, "f": {"x": 1, "y": 3}}
    assert str(find(tree, ("f", "x")).place) == f"{Path('shared/base.yaml')}:2:8"
    assert str(find(tree, ("f", "y")).place) == f"{Path('app/recipe.yaml')}:2:8"


def test_extends_in_several_steps(write):
    write("{a: 1, b: 1, c: 1}", "one.yaml")
    write("{extends: one.yaml, b: 2, c: 2}", "two.yaml")
    path = write("{extends: two.yaml, c: 3}")
    assert plain(tree_of(path)) == {"a": 1, "b": 2, "c": 3}


def test_extends_with_variables(write):
    write("a: 1", "debug.yaml")
    path = write("extends: ${KIND}.yaml")
    assert plain(tree_of(path, KIND="debug")) == {"a": 1}
    assert problem_of(path).startswith("recipe.yaml:1:10: extends: the variable KIND has no value")


def test_overridden_variable_needs_no_value(write):
    write("a: ${NOWHERE}", "base.yaml")
    path = write("{extends: base.yaml, a: 1}")
    variables = Variables({}, {})
    load_tree(path, variables)
    assert variables.problems == []


def test_circular_extends_is_refused(write):
    write("extends: recipe.yaml\n", "other.yaml")
    path = write("a: 1\nextends: other.yaml\n")
    assert problem_of(path) == (
        "other.yaml:1:10: extends: recipes extend each other in a circle, or more than 20 deep; "
        "remove one 'extends'"
    )
    assert "in a circle" in problem_of(write("extends: ./x/../recipe.yaml\n"))


def test_depth_of_extends_is_limited(write):
    for i in range(30):
        write(f"extends: r{i + 1}.yaml\n", f"r{i}.yaml")
    path = write("extends: r0.yaml\n")
    assert problem_of(path).startswith("r19.yaml:1:10: extends: recipes extend each other")


def test_missing_base_is_reported_at_its_reference(write):
    write("x: 1\nextends: none.yaml\n", "base.yaml")
    path = write("extends: base.yaml\n")
    with pytest.raises(CorruptFileError) as caught:
        tree_of(path)
    assert str(caught.value) == (
        "base.yaml:2:10: none.yaml cannot be read: No such file or directory"
    )


@pytest.mark.parametrize("value", ["", "1", "[a]", "{a: b}", "''", "true"])
def test_extends_must_be_a_path(write, value):
    problem = problem_of(write(f"extends: {value}\n"))
    assert problem.startswith("recipe.yaml:1:")
    assert "expected the path of a recipe" in problem


def test_nul_in_the_path_is_refused(write):
    assert "a path cannot hold a NUL" in problem_of(write('extends: "a\\0b"\n'))


def test_problem_of_the_base_is_reported_in_the_base(write):
    write("- a\n", "base.yaml")
    assert problem_of(write("extends: base.yaml\n")).startswith(
        "base.yaml:1:1: a recipe is a mapping"
    )


FILE = {"type": "string", "format": "path"}
SCHEMA = {
    "properties": {
        "log": FILE,
        "weights": {"type": "string", "format": "checkpoint"},
        "tables": {"type": "array", "items": FILE},
        "day": {"type": "string", "format": "date"},
        "count": {"type": "integer"},
    }
}


@pytest.fixture
def parameters(source):
    """Parse the YAML text of a recipe in the directory ``app``."""

    def parameters(text: str) -> MappingNode:
        read = source(text)
        read.folder = Path("app")
        return parse_yaml(read)

    return parameters


def test_paths_are_relative_to_the_recipe(parameters):
    files = named_files(parameters("log: a/b.txt\nweights: ../w\ncount: 3\nday: x\n"), SCHEMA)
    assert [(f.parameter, f.index, f.kind) for f in files] == [
        ("log", None, "path"),
        ("weights", None, "checkpoint"),
    ]
    assert [(f.file.name, f.file.path) for f in files] == [
        ("a/b.txt", Path("app/a/b.txt")),
        ("../w", Path("app/../w")),
    ]
    assert [f.file.place.split(":", 1)[1] for f in files] == ["1:6", "2:10"]


def test_paths_in_a_list(parameters):
    files = named_files(parameters("tables: [a, b]\n"), SCHEMA)
    assert [(f.parameter, f.index, f.file.name) for f in files] == [
        ("tables", 0, "a"),
        ("tables", 1, "b"),
    ]


def test_empty_string_is_not_a_path(parameters):
    assert named_files(parameters("weights: ''\n"), SCHEMA) == ()


@pytest.mark.parametrize("text", ['log: "a\\0b"', 'tables: [a, "b\\n"]', 'weights: "\\x7f"'])
def test_control_characters_in_paths_are_refused(parameters, text):
    (problem,) = path_problems(parameters(text), SCHEMA)
    assert problem.message == "a path has no control characters"


def test_other_parameters_may_have_any_character(parameters):
    assert path_problems(parameters('day: "a\\nb"\nlog: a b\n'), SCHEMA) == []


@pytest.fixture
def merge(source):
    """Merge a YAML text into another."""
    return lambda base, over: merge_sections(parse_yaml(source(base)), parse_yaml(source(over)))


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ("{a: 1, b: 2}", "{b: 3, c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("f: {x: 1, y: {z: 2}}", "f: {y: {w: 3}}", {"f": {"x": 1, "y": {"z": 2, "w": 3}}}),
        ("o: [a, b]", "o: [c]", {"o": ["c"]}),
        ("t: [a]", "t: 'a b'", {"t": "a b"}),
        ("f: {x: 1}", "f: 2", {"f": 2}),
        ("f: 2", "f: {x: 1}", {"f": {"x": 1}}),
        ("{v: {x: 1}, w: 1}", "v: null", {"w": 1}),
        ("i: {a: {}, b: {}}", "i: {a: null}", {"i": {"b": {}}}),
        ("x: 1", "i: {a: null}", {"x": 1, "i": {"a": None}}),
        ("x: 1", "{v: null}", {"x": 1, "v": None}),
        ("source: {graph: g, checkpoint: c}", "source: {frozen: f}", {"source": {"frozen": "f"}}),
        ("source: {graph: g}", "source: {checkpoint: c}", {"source": {"checkpoint": "c"}}),
        (
            "targets: {a: {quantize: {mode: weights, minimum_size: 8}, sort: true}, b: {}}",
            "targets: {a: {quantize: {mode: round}}, c: {}}",
            {"targets": {"a": {"quantize": {"mode": "round"}, "sort": True}, "b": {}, "c": {}}},
        ),
        ("targets: {a: {}, b: {}}", "targets: {a: null}", {"targets": {"b": {}}}),
        (
            "models: {m: {source: {graph: g}, targets: {t: {source: {graph: g}}}}}",
            "models: {m: {targets: {t: {source: {frozen: f}}}}}",
            {
                "models": {
                    "m": {"source": {"graph": "g"}, "targets": {"t": {"source": {"frozen": "f"}}}}
                }
            },
        ),
        # A target that is named like a section is merged like any other.
        (
            "targets: {source: {sort: true}}",
            "targets: {source: {obfuscate: true}}",
            {"targets": {"source": {"sort": True, "obfuscate": True}}},
        ),
        ("targets: [a]", "targets: {a: {}}", {"targets": {"a": {}}}),
        ("targets: {a: 1}", "targets: {a: {sort: true}}", {"targets": {"a": {"sort": True}}}),
        ("targets: {a: {sort: true}}", "targets: {a: 1}", {"targets": {"a": 1}}),
    ],
)
def test_sections_are_merged(merge, base, over, merged):
    result = plain(merge(base, over))
    assert result == merged
    assert list(result) == list(merged)


def test_merged_values_keep_their_locations(source):
    base = parse_yaml(source("f:\n  x: 1\n  y: 2\n"))
    over = parse_yaml(source("\n\n\n\nf: {y: 3}\n"))
    merged = merge_sections(base, over)
    assert str(find(merged, ("f", "x")).place) == "recipe.yaml:2:6"
    assert str(find(merged, ("f", "y")).place) == "recipe.yaml:5:8"
    assert str(merged.entries["f"].key_place) == "recipe.yaml:5:1"


def test_order_of_the_base_is_preserved(merge):
    assert list(plain(merge("{a: 1, b: 2}", "{c: 3, a: 4}"))) == ["a", "b", "c"]
