"""Text of a first recipe: all names must be quoted safely."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mobileprep.recipe.first import Draft, DraftInput, quoted, recipe_text
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.schemas import modeline
from mobileprep.recipe.tree import SourceText, plain
from mobileprep.recipe.yaml_tree import parse_yaml

DRAFT = Draft(
    "net",
    "# yaml-language-server: $schema=recipe.schema.json",
    (("frozen", "net.pb"),),
    (DraftInput("x", "float32", (-1, 3)),),
    ("y",),
)


@pytest.mark.parametrize(
    "text",
    [
        "plain", "true", "NO", "null", "1e5", "2020-01-01", "a: b", "# no", "- a", "'", '"', "\\",
        "{a}", "[a]", "*a", "&a", "!!str", "a\nb: c", "tab\t", "\x00\x1b[31m", "\x85\u2028", "ü",
        "\U0001f600", " spaced ", "~", "=", "<<", "%TAG",
    ],
)  # fmt: skip
def test_quoted_strings_survive_a_round_trip(tmp_path, text):
    line = f"key: {quoted(text)}\n"
    tree = parse_yaml(SourceText("r", tmp_path, line))
    assert plain(tree) == {"key": text.replace("$", "$$")}
    assert line.count("\n") == 1


def test_dollar_is_not_a_variable(tmp_path):
    draft = replace(DRAFT, source=(("frozen", "${HOME}.pb"),))
    recipe = load_recipe(tmp_path / "r.yaml", environ={"HOME": "x"}, text=recipe_text(draft))
    assert recipe.targets[0].source.file.name == "${HOME}.pb"


def test_comments_do_not_end_early(tmp_path):
    evil = "x\ntargets: {evil: {}}\r\n\x85\u2028name: evil " + "word " * 50
    draft = replace(
        DRAFT,
        about=((evil,), (evil,), (evil,)),
        inputs=(DraftInput("x", remark=evil),),
        unchecked=evil,
        about_weights=(evil, evil),
    )
    text = recipe_text(draft)
    recipe = load_recipe(tmp_path / "r.yaml", environ={}, text=text)
    assert (recipe.name, [t.name for t in recipe.targets]) == ("net", ["phone"])
    assert max(map(len, text.splitlines())) <= 100


def test_quantized_draft_has_a_check_and_validation(tmp_path):
    draft = replace(DRAFT, check=0.05, quantize="weights", validation=("d.npz", "class"))
    target = load_recipe(tmp_path / "r.yaml", environ={}, text=recipe_text(draft)).targets[0]
    assert target.check
    assert [s.name for s in target.transforms][-1] == "quantize_weights"
    assert target.validation is not None
    assert target.validation.data.file.name == "d.npz"
    assert target.validation.metrics[0].labels == "class"


def test_first_line_is_the_modeline(tmp_path):
    line = modeline(tmp_path / "r.yaml")
    assert recipe_text(replace(DRAFT, modeline=line)).startswith(f"{line}\n")
