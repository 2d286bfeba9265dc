"""Validity of recipes on the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mobileprep.recipe.load import load_recipe
from mobileprep.targets.measurements import Measurement, measurement_bytes
from tests.docs.pages import PAGES, ROOT, Block, blocks, page_id

DIGITS = yaml.safe_load((ROOT / "recipes" / "digits" / "recipe.yaml").read_text("utf-8"))
MEASUREMENT = Measurement("phone", "a phone", "", "", "", "", "0" * 64, 1.0)


def fragments() -> Iterator[Any]:
    for page in PAGES:
        for index, block in enumerate(blocks(page)):
            if is_recipe(block):
                yield pytest.param(page, block.body, id=f"{page_id(page)}-{index}")


def is_recipe(block: Block) -> bool:
    # The others are a device profile and the configuration of pre-commit.
    return block.language == "yaml" and not block.body.startswith(("title:", "repos:"))


@pytest.mark.parametrize(("page", "text"), list(fragments()))
def test_fragment_is_a_valid_recipe(page: Path, text: str, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.file and not is_recipe(block):
            (tmp_path / block.file).parent.mkdir(exist_ok=True)
            (tmp_path / block.file).write_text(block.body)
    fragment = yaml.safe_load(text)
    recipe = {**DIGITS, "calibration": {"data": "data/calibration.npz"}, **fragment}
    if "extends" in fragment:
        (tmp_path / fragment["extends"]).parent.mkdir(exist_ok=True)
        written = {block.file: block.body for block in blocks(page)}
        extended = written.get(fragment["extends"], yaml.safe_dump(DIGITS))
        (tmp_path / fragment["extends"]).write_text(extended)
        recipe = fragment
    for target in filter(None, fragment.get("targets", {}).values()):
        if "measurement" in target:
            (tmp_path / target["measurement"]).parent.mkdir(parents=True)
            (tmp_path / target["measurement"]).write_bytes(measurement_bytes(MEASUREMENT))
    if "outputs" in str(fragment.get("validation")):
        recipe["outputs"] = None
    load_recipe(tmp_path / "recipe.yaml", text=yaml.safe_dump(recipe, sort_keys=False))
