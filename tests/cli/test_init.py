"""``mobileprep init``: a first recipe that is a good one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.ir.files import read_graph, write_graph
from mobileprep.recipe import load_recipe
from tests.cli.conftest import Run
from tests.stages.jobs import classifier


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A frozen graph in a folder of its own, seen from the folder above."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / "models" / "net.pb", classifier())
    return Path("models/net.pb")


def test_the_recipe_builds_as_it_stands(model: Path, run: Run) -> None:
    told = run("init", model, "--inputs", "x", "--outputs", "y")
    assert told.code == 0
    assert "recipe.yaml: written" in told.err
    assert run("validate", "recipe.yaml").code == 0
    built = run("build", "recipe.yaml")
    assert built.code == 0, built.err
    assert "y" in read_graph(Path("out/net/phone/net.pb"))
    assert Path("out/net/phone/ops_to_register.h").exists()


@pytest.mark.parametrize("recipe", ["models/recipe.yaml", "recipes/net/recipe.yaml", "r.yaml"])
def test_paths_start_at_the_recipe(model: Path, run: Run, recipe: str) -> None:
    told = run("init", model, "--inputs", "x", "--outputs", "y", "--recipe", recipe)
    assert told.code == 0
    assert run("build", recipe).code == 0
    assert str(Path.cwd()) not in Path(recipe).read_text()


@pytest.mark.parametrize("name", ["123", "true", "1e5", "null", "a b", "~", "#", ".hidden"])
def test_any_file_name_gives_a_name(model: Path, run: Run, name: str) -> None:
    other = model.with_name(f"{name}.pb")
    model.rename(other)
    assert run("init", other, "--inputs", "x", "--outputs", "y").code == 0
    recipe = load_recipe(Path("recipe.yaml"), environ={})
    assert recipe.targets[0].source.file.path.resolve() == other.resolve()


def test_names_are_taken_apart_and_quoted(model: Path, run: Run) -> None:
    run("init", model, "--inputs", "a, b:0", "--outputs", "y,z:1")
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert [i.name for i in target.inputs] == ["a", "b:0"]
    assert target.outputs == ("y", "z:1")


def test_a_checkpoint_makes_it_a_training_graph(model: Path, run: Run) -> None:
    run("init", model, "--checkpoint", "models/model.ckpt-10")
    source = load_recipe(Path("recipe.yaml"), environ={}).targets[0].source
    assert (source.kind, source.file.name) == ("graph", "models/net.pb")
    assert source.checkpoint is not None
    assert source.checkpoint.name == "models/model.ckpt-10"


@pytest.mark.parametrize(
    ("name", "kind"), [("net.meta", "meta_graph"), ("saved", "saved_model"), ("g.pbtxt", "frozen")]
)
def test_the_kind_follows_from_the_name(model: Path, run: Run, name: str, kind: str) -> None:
    path = model.with_name(name)
    if kind == "saved_model":
        path.mkdir()
    else:
        model.rename(path)
    run("init", path)
    assert load_recipe(Path("recipe.yaml"), environ={}).targets[0].source.kind == kind


def test_inputs_and_outputs_are_the_likely_ones(model: Path, run: Run) -> None:
    assert run("init", model).code == 0
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert [(i.name, i.dtype, i.shape) for i in target.inputs] == [("x", "float32", (-1, 3))]
    assert target.outputs == ("y",)
    assert run("build", "recipe.yaml").code == 0


def test_a_model_that_cannot_be_read_leaves_names_to_be_filled_in(model: Path, run: Run) -> None:
    model.write_bytes(b"\xff" * 100)
    told = run("init", model)
    assert (told.code, "inputs and outputs are not known" in told.err) == (0, True)
    assert load_recipe(Path("recipe.yaml"), environ={}).targets[0].outputs == ("output",)


def test_of_a_training_graph_the_likeliest_output_is_taken(
    built_once: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    model = built_once / "digits" / "model"
    told = run("init", model / "graph.pbtxt", "--checkpoint", model / "model.ckpt-1000")
    assert told.code == 0
    assert load_recipe(Path("recipe.yaml"), environ={}).targets[0].outputs == ("probabilities",)
    assert "# likely too: accuracy/ArgMax" in Path("recipe.yaml").read_text()


def test_an_existing_recipe_is_never_overwritten(model: Path, run: Run) -> None:
    Path("recipe.yaml").write_text("mine")
    told = run("init", model)
    assert (told.code, Path("recipe.yaml").read_text()) == (2, "mine")
    assert "--recipe" in told.err


def test_a_missing_model_is_told(model: Path, run: Run) -> None:
    told = run("init", "models/none.pb")
    assert told.code == 4
    assert "models/none.pb: is not there" in told.err
    assert not Path("recipe.yaml").exists()
