"""The transform reference."""

from __future__ import annotations

import re

from mobileprep.recipe.documents.transform_reference import render
from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.steps import parse_transforms_flag


def test_every_transform_is_on_the_page():
    page = render(TransformSchemas())
    for name in TransformSchemas().names:
        assert page.count(f"### {name}\n") == 1


def test_those_of_the_original_and_those_beyond_it_stand_apart():
    original, beyond = render(TransformSchemas()).split("## Further transforms\n")
    assert "### fold_constants\n" in original
    assert "### optimize\n" in beyond


def test_the_chains_of_the_page_are_understood():
    page = render(TransformSchemas())
    chains = re.findall(r"transforms[:=] ?'(.*?)'", page)
    assert len(chains) == 2
    for chain in chains:
        steps, warnings = parse_transforms_flag(chain)
        assert len(steps) >= 2
        assert not warnings


def test_a_picture_stands_below_the_sentence_where_there_is_one():
    page = render(TransformSchemas(), {"rename_op"})
    assert page.count("![") == 1
    sentence = TransformSchemas().get("rename_op")["description"]
    picture = "![rename_op: before and after](../images/transforms/rename_op.svg)"
    assert f"### rename_op\n\n{sentence}\n\n{picture}\n\n| parameter" in page
