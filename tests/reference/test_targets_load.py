"""Real models load after ``init``, ``validate``, ``build``, and ``check-target``."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.cli.main import main
from mobileprep.graph.refs import parse_ref
from mobileprep.recipe.load import load_recipe
from tests.reference.golden import read_golden
from tests.reference.native import run_in_115
from tests.reference.test_init import SOURCES

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("work_dir")]

MODELS = {golden: source for source, golden in reversed(SOURCES.items())}
"""One source for each model, by recorded run."""
OLD_RELEASE = 'tensorflow: ["1.15"]'


@pytest.mark.parametrize("name", MODELS)
def test_built_model_loads_and_runs(
    models: Path, original: Path, tmp_path: Path, name: str
) -> None:
    recipe = Path("recipe.yaml")
    assert main(["init", str(models / MODELS[name])]) == 0
    # The recorded inputs of models with a decoder are files; test_preprocessing_code.py cuts them.
    recipe.write_text(recipe.read_text().replace("\npreprocessing: cut\n", "\n"))
    assert main(["validate", "recipe.yaml"]) == 0
    assert main(["build", "recipe.yaml"]) == 0
    loaded = load_recipe(recipe)
    (target,) = loaded.targets
    built = Path("out", loaded.name, "phone", f"{loaded.name}.pb")
    assert main(["check-target", str(built)]) == 0
    assert target.registration == ("1.15",)
    nodes = {parse_ref(i.name).node: i.name for i in target.inputs}
    path = models / MODELS[name].split("/")[0] / f"{name}.npz"
    feeds, _ = read_golden(path, lambda tensor: nodes.get(parse_ref(tensor).node, tensor))
    assert run_in_115(original, built, feeds, target.outputs, tmp_path)
    if "\n  - downgrade\n" in recipe.read_text():
        # Without it, the build fails.
        recipe.write_text(recipe.read_text().replace("\n  - downgrade\n", "\n"))
        assert main(["validate", "recipe.yaml"]) == 6
        assert main(["build", "recipe.yaml"]) == 6


@pytest.mark.parametrize("name", MODELS)
def test_commands_agree_on_other_releases(models: Path, name: str) -> None:
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
