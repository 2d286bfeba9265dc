"""Files in parameters, which have a ``format`` in the schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.recipe.files import named_files, path_problems
from mobileprep.recipe.tree import MappingNode
from mobileprep.recipe.yaml_tree import parse_yaml

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
