"""The README: its recipe is the one in the repository, its commands run in an app's repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mobileprep.cli.main import verb_names
from mobileprep.recipe.load import load_recipe
from tests.cli.conftest import Run, run

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DIGITS = ROOT / "recipes" / "digits"


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_its_recipe_and_targets_are_those_of_the_digits() -> None:
    recipe = section("A recipe")
    shown = re.search(r"```yaml\n(.*?)```", recipe, re.DOTALL)
    assert shown
    assert shown[1] == (DIGITS / "recipe.yaml").read_text(encoding="utf-8")
    targets = load_recipe(DIGITS / "recipe.yaml").targets
    assert re.findall(r"`out/(\S+)/`", recipe) == [f"digits/{t.folder}" for t in targets]


def test_its_set_up_is_two_commands() -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    assert len(block.splitlines()) == 2


def test_it_names_every_verb() -> None:
    told = set(re.findall(r"^\| `(?:mobileprep )?([\w-]+)` \|", README, re.MULTILINE))
    assert told == set(verb_names())


def test_its_commands_for_an_app_leave_what_it_lists(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    Path("ml/model").mkdir(parents=True)
    model, checkpoint = DIGITS / "model" / "graph.pbtxt", DIGITS / "model" / "model.ckpt-1000"
    flags = (f"--input_graph={model}", f"--input_checkpoint={checkpoint}")
    frozen = ("--output_graph=ml/model/digits.pb", "--output_node_names=probabilities")
    assert run("freeze", *flags, *frozen).code == 0
    app = section("In your app's repository")
    for command in re.findall(r"^\$ (.*)$", app, re.MULTILINE):
        for part in command.split(" && "):
            tool, *arguments = part.split()
            if tool == "mobileprep":
                told = run(*arguments)
                assert told.code == 0, told.err
            else:
                assert part == "pip install mobileprep"
    listed = re.search(r"out/digits/phone/ .*\n((?:    \S+ .*\n)+)", app)
    assert listed
    for name in re.findall(r"^    (\S+)", listed[1], re.MULTILINE):
        assert (tmp_path / "out" / "digits" / "phone" / name).is_file()


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
