"""Overrides of sections in targets."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Target

SOURCE = {"frozen": "model.pb"}
# By section: the value of the recipe and the override of a target.
SECTIONS: dict[str, tuple[Any, Any]] = {
    "calibration": ({"data": "a.npz"}, {"method": "min_max"}),
    "check": ({"data": "a.npz"}, {"max_difference": 0.5}),
    "decoding": ("cut", "keep"),
    "device": ("smartphone", "raspberry-pi-3"),
    "engine": ("numpy", "auto"),
    "freeze": ({"clear_devices": False}, {"moving_averages": True}),
    "inputs": ({"x": {"shape": [1]}}, {"x": {"shape": [2]}}),
    "integration": ({"languages": ["cpp"], "threads": 2}, {"threads": 4}),
    "migration_report": (False, True),
    "ops": ({"A": {"kernel": "AOp"}}, {"B": {"kernel": ["BOp"], "source": "a.npz"}}),
    "outputs": (["y"], ["z"]),
    "preprocessing": ({"channels": "bgr", "mean": 1}, {"mean": 2}),
    "protect": ({"obfuscate": False}, {"obfuscate": True}),
    "quantization_report": (True, False),
    "source": (SOURCE, {"frozen": "other.pb"}),
    "transforms": (["strip_unused_nodes"], ["fold_constants"]),
    "validation": ({"data": "a.npz", "labels": "l", "metric": "top1"}, {"max_drop": 0.5}),
}


def resolved(folder: Path, recipe: dict[str, Any]) -> dict[str, Target]:
    for name in ("model.pb", "other.pb", "a.npz"):
        (folder / name).touch()
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "name": "r", "source": SOURCE, **recipe}))
    return {target.name: target for target in load_recipe(path, environ={}).targets}


def facts(target: Target, section: str) -> str:
    """Return a section of a target without the locations."""
    return re.sub(r"recipe\.yaml(:\d+)+", "", repr(getattr(target, section)))


def test_every_section_of_targets_is_tested() -> None:
    text = resources.files("mobileprep").joinpath("schemas/recipe.json").read_text()
    schema = json.loads(text)
    of_targets = set(schema["$defs"]["target"]["properties"])
    # Pipelines need several models; their own tests override them.
    assert set(SECTIONS) | {"description", "pipeline"} == of_targets & set(schema["properties"])


@pytest.mark.parametrize("section", SECTIONS)
def test_section_of_a_target_overrides_the_recipe(section: str, tmp_path: Path) -> None:
    below, above = SECTIONS[section]
    both = resolved(tmp_path, {section: below, "targets": {"a": {section: above}, "b": None}})
    merged = {**below, **above} if isinstance(below, dict) and section != "source" else above
    if section == "inputs":
        merged = above
    alone = resolved(tmp_path, {section: merged, "targets": {"a": None}})["a"]
    plain = resolved(tmp_path, {section: below, "targets": {"b": None}})["b"]
    assert facts(both["a"], section) == facts(alone, section)
    assert facts(both["b"], section) == facts(plain, section)
    assert facts(both["a"], section) != facts(both["b"], section)
