from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.recipe.schemas import recipe_schema
from tools.recipe_reference import render

PAGE = Path(__file__).parents[2] / "docs" / "reference/recipe.md"


def test_page_has_every_key_of_the_schema():
    page = render(recipe_schema())
    for section in ("source", "freeze", "input", "validation", "model", "target"):
        for key in recipe_schema()["$defs"][section]["properties"]:
            assert f"| `{key}` |" in page


def _examples():
    blocks = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]
    return [block.partition("```")[0] for block in blocks]


@pytest.mark.parametrize("index", range(len(_examples())))
def test_examples_on_the_page_are_valid(load, index):
    text = _examples()[index]
    if "version:" not in text:
        text = "version: 1\nname: x\nsource: {frozen: m}\ntargets: {p: {}}\n" + text
    assert load(text).targets
