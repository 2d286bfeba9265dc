"""Rules that select layers by name."""

from __future__ import annotations

import re

import pytest
import yaml

from mobileprep.data.calibration.layers import layers_expression, recipe_rule, rule_text

NAMES = ["Conv2d_1/Conv2D", "a.b/c-1", "it's"]


@pytest.mark.parametrize("names", [NAMES[:1], NAMES[1:], NAMES])
def test_expression_matches_only_the_named_layers(names: list[str]) -> None:
    fits = re.compile(layers_expression(names))
    assert all(fits.search(name) for name in names)
    others = [f"x{names[0]}", f"{names[0]}_1", "aXb/c-1", "other"]
    assert not any(fits.search(name) for name in others)


def test_rule_for_transforms_and_recipes() -> None:
    assert rule_text("float", ["a/b"]) == "mode=float nodes=^a/b$"
    read = yaml.safe_load(recipe_rule("weights", NAMES))
    assert read == {"mode": "weights", "nodes": layers_expression(NAMES)}
