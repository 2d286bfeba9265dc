"""Files that parameters name, as the schema's ``format`` marks them."""

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
    """The mapping of a YAML text in a recipe of the folder ``app``."""

    def parameters(text: str) -> MappingNode:
        read = source(text)
        read.folder = Path("app")
        return parse_yaml(read)

    return parameters


def test_what_is_marked_is_found_beside_the_recipe(parameters):
    found = named_files(parameters("log: a/b.txt\nweights: ../w\ncount: 3\nday: x\n"), SCHEMA)
    assert [(f.parameter, f.index, f.kind) for f in found] == [
        ("log", None, "path"),
        ("weights", None, "checkpoint"),
    ]
    assert [(f.file.name, f.file.path) for f in found] == [
        ("a/b.txt", Path("app/a/b.txt")),
        ("../w", Path("app/../w")),
    ]
    assert [f.file.place.split(":", 1)[1] for f in found] == ["1:6", "2:10"]


def test_each_of_a_list_is_found(parameters):
    found = named_files(parameters("tables: [a, b]\n"), SCHEMA)
    assert [(f.parameter, f.index, f.file.name) for f in found] == [
        ("tables", 0, "a"),
        ("tables", 1, "b"),
    ]


def test_an_empty_text_names_nothing(parameters):
    assert named_files(parameters("weights: ''\n"), SCHEMA) == ()


@pytest.mark.parametrize("text", ['log: "a\\0b"', 'tables: [a, "b\\n"]', 'weights: "\\x7f"'])
def test_names_that_no_file_can_have(parameters, text):
    (problem,) = path_problems(parameters(text), SCHEMA)
    assert problem.message == "a path has no control characters"


def test_what_is_no_path_may_have_any_character(parameters):
    assert path_problems(parameters('day: "a\\nb"\nlog: a b\n'), SCHEMA) == []
