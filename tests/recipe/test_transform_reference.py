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
    original, beyond = render(TransformSchemas()).split("## Beyond it\n")
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
