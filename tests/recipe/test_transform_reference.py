"""The transform reference."""

from __future__ import annotations

import re

from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.steps import parse_transforms_flag
from tools.transform_reference import render


def test_page_has_every_transform():
    page = render(TransformSchemas())
    for name in TransformSchemas().names:
        assert page.count(f"### {name}\n") == 1


def test_transforms_of_the_original_come_first():
    original, beyond = render(TransformSchemas()).split("## Further transforms\n")
    assert "### fold_constants\n" in original
    assert "### optimize\n" in beyond


def test_chains_on_the_page_are_valid():
    page = render(TransformSchemas())
    chains = re.findall(r"transforms[:=] ?'(.*?)'", page)
    assert len(chains) == 2
    for chain in chains:
        steps, warnings = parse_transforms_flag(chain)
        assert len(steps) >= 2
        assert not warnings


def test_image_is_below_the_description():
    page = render(TransformSchemas(), {"rename_op"})
    assert page.count("![") == 1
    sentence = TransformSchemas().get("rename_op")["description"]
    image = "![rename_op: before and after](../images/transforms/rename_op.svg)"
    assert f"### rename_op\n\n{sentence}\n\n{image}\n\n| parameter" in page
