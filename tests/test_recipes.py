"""The recipes of this repository build, and no target loses more accuracy than it may."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mobileprep import build, load_recipe

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
EIGHT_BITS = ("digits-eight-bits", "mnist")


@pytest.mark.parametrize("name", sorted(p.parent.name for p in RECIPES.glob("*/recipe.yaml")))
def test_a_recipe_builds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    shutil.copytree(RECIPES, tmp_path / "recipes")
    # Fails where a target's accuracy falls by more than max_drop.
    built = build(tmp_path / "recipes" / name / "recipe.yaml", tmp_path / "out")
    for target in built.targets:
        assert target.report.accuracy is not None, target.folder


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_every_target_has_to_be_within_half_a_point_on_the_whole_test_split(name: str) -> None:
    for target in load_recipe(RECIPES / name / "recipe.yaml", environ={}).targets:
        assert target.validation is not None
        metric = target.validation.metrics[0]
        assert (metric.metric, metric.max_drop) == ("top1", 0.005)
        assert target.validation.samples is None


def test_what_mnist_is_built_from_is_below_3_mb() -> None:
    files = [p for d in ("model", "data") for p in (RECIPES / "mnist" / d).iterdir()]
    assert sum(p.stat().st_size for p in files) < 3_000_000
