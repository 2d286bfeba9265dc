"""The recipes and the function of docs/validation.md, as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.metrics import METRIC_NAMES
from tests.cli.conftest import RECIPES, Run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "validation.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
# Of models that this repository does not have.
OTHERS = ("speech.npz", "street.npz")
DIGITS = (RECIPES / "digits" / "recipe.yaml").read_text(encoding="utf-8")
VALIDATION = re.search(r"validation:\n.*?\n\n", DIGITS, re.DOTALL)


@pytest.fixture
def _digits(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digits recipe, with labels of other kinds besides, and the page's function."""
    monkeypatch.chdir(digits.parent)
    arrays = read_arrays(Path("data/test.npz"))
    one_hot = np.eye(10, dtype=np.float32)[arrays["label"]]
    Path("data/test.npz").unlink()
    write_arrays(Path("data/test.npz"), {**arrays, "one_hot": one_hot})
    Path("tools").mkdir()
    (function,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    Path("tools/metric.py").write_text(function)


def recipe(section: str) -> str:
    assert VALIDATION is not None
    return DIGITS.replace(VALIDATION[0], f"{section}\n")


@pytest.mark.usefixtures("_digits")
@pytest.mark.parametrize("section", [s for s in SECTIONS if not any(o in s for o in OTHERS)])
def test_its_recipes_build(run: Run, section: str) -> None:
    Path("recipe.yaml").write_text(recipe(section))
    assert run("validate", "recipe.yaml").code == 0
    told = run("build", "recipe.yaml", "--target", "phone", "--json")
    assert told.code == 0, told.err
    (report,) = json.loads(told.out)
    target = load_recipe("recipe.yaml").targets[0]
    assert target.validation is not None
    assert len(report["accuracy"]["metrics"]) == len(target.validation.metrics)


@pytest.mark.parametrize("section", [s for s in SECTIONS if any(o in s for o in OTHERS)])
def test_its_other_recipes_are_right(tmp_path: Path, section: str) -> None:
    text = recipe(section).replace("outputs: [probabilities]", "outputs:")
    found = load_recipe(tmp_path / "recipe.yaml", text=text).targets[0].validation
    assert found is not None
    assert len(found.metrics) == 1


@pytest.mark.usefixtures("_digits")
def test_a_miss_is_told_as_it_says(run: Run) -> None:
    (block,) = re.findall(r"```console\n\$ mobileprep (.*?)\n(.*?)```", TEXT, re.DOTALL)
    section = "validation: {data: data/test.npz, metric: top1, at_least: 0.9999}\n"
    Path("recipe.yaml").write_text(recipe(section))
    told = run(*shlex.split(block[0]))
    assert told.code == 8
    assert block[1] in told.err


def test_it_lists_every_metric() -> None:
    listed = set(re.findall(r"`(\w+)`", TEXT))
    assert set(METRIC_NAMES) - listed == set()
