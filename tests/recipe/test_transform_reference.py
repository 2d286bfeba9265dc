"""The transform reference."""

from __future__ import annotations

import re
from pathlib import Path

from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.steps import parse_transforms_flag
from mobileprep.recipe.transform_reference import _OWN, main, render

PAGE = Path(__file__).parents[2] / "docs" / "transforms.md"


def test_the_page_is_up_to_date():
    command = "python -m mobileprep.recipe.transform_reference docs/transforms.md"
    assert PAGE.read_text(encoding="utf-8") == render(TransformSchemas()), command


def test_every_transform_is_on_the_page():
    page = render(TransformSchemas())
    for name in TransformSchemas().names:
        assert page.count(f"### {name}\n") == 1


def test_every_transform_that_is_marked_as_our_own_exists():
    assert set(TransformSchemas().names) >= _OWN


def test_the_chains_of_the_page_are_understood():
    page = render(TransformSchemas())
    chains = re.findall(r"transforms[:=] ?'(.*?)'", page)
    assert len(chains) == 2
    for chain in chains:
        steps, warnings = parse_transforms_flag(chain)
        assert len(steps) >= 2
        assert not warnings


def test_the_page_is_written_to_the_path_given(tmp_path):
    assert main([str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == render(TransformSchemas())
