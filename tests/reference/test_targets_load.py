"""``init``, ``validate``, ``build``, ``check-target``: what is built of a real model, loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.cli.main import main
from mobileprep.graph.refs import parse_ref
from mobileprep.recipe.load import load_recipe
from tests.reference.native import run_in_115
from tests.reference.test_init import SOURCES

pytestmark = pytest.mark.reference

MODELS = {golden: source for source, golden in reversed(SOURCES.items())}
"""One source for each model, by the file of what TensorFlow gives for it."""
OLD_RELEASE = 'tensorflow: ["1.15"]'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))


@pytest.mark.parametrize("name", MODELS)
def test_a_target_loads_and_runs_what_is_built_for_it(
    models: Path, original: Path, tmp_path: Path, name: str
) -> None:
    recipe = Path("recipe.yaml")
    assert main(["init", str(models / MODELS[name])]) == 0
    assert main(["validate", "recipe.yaml"]) == 0
    assert main(["build", "recipe.yaml"]) == 0
    named = load_recipe(recipe)
    (target,) = named.targets
    built = Path("out", named.name, "phone", f"{named.name}.pb")
    assert main(["check-target", str(built)]) == 0
    assert target.registration == ("1.15",)
    golden = np.load(models / MODELS[name].split("/")[0] / f"{name}.npz", allow_pickle=True)
    nodes = {parse_ref(i.name).node: i.name for i in target.inputs}
    fed = {key[3:].replace("|", "/"): golden[key] for key in golden if key.startswith("in:")}
    feeds = {nodes[parse_ref(key).node]: value for key, value in fed.items()}
    assert run_in_115(original, built, feeds, target.outputs, tmp_path)
    if "\n  - downgrade\n" in recipe.read_text():
        # It was needed: without it, the recipe is refused.
        recipe.write_text(recipe.read_text().replace("\n  - downgrade\n", "\n"))
        assert main(["validate", "recipe.yaml"]) == 6
        assert main(["build", "recipe.yaml"]) == 6


@pytest.mark.parametrize("name", MODELS)
def test_other_releases_and_forms_agree(models: Path, name: str) -> None:
    recipe = Path("recipe.yaml")
    assert main(["init", str(models / MODELS[name]), "--no-try"]) == 0
    text = recipe.read_text()
    assert OLD_RELEASE in text
    assert main(["validate", "recipe.yaml"]) == 0
    for release in ('["1.15", "2.21"]', '["2.21"]'):
        keys = f"artifact: memmapped\n    registration: {{tensorflow: {release}}}"
        recipe.write_text(text.replace(f"registration: {{{OLD_RELEASE}}}", keys))
        code = main(["build", "recipe.yaml"])
        assert code == main(["validate", "recipe.yaml"])
        assert code in (0, 6)
        folder = Path("out", load_recipe(recipe).name, "phone")
        for listed in ("1.15", "2.21") if code == 0 else ():
            if listed in release:
                built = str(folder / f"{load_recipe(recipe).name}.pb")
                assert main(["check-target", built, f"--tensorflow={listed}"]) == 0
