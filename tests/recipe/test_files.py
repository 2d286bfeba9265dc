from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.recipe.files import MAX_BYTES, load_tree, read_source
from mobileprep.recipe.tree import InvalidRecipeError, find, plain
from mobileprep.recipe.units import Variables


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
