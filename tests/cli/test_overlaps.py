"""Builds whose outputs would overwrite their inputs or the cache are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier
from tests.cli.conftest import Run

RECIPE = """\
version: 1
name: l
source: {{frozen: {source}}}
inputs: {{x: {{}}}}
outputs: [y]
targets: {{t: {{}}}}
"""
MODEL = "l/t/l.pb"


def entries() -> dict[Path, tuple[int, ...]]:
    """The status of all files, without access times."""
    stats = {p: p.lstat() for p in Path().rglob("*")}
    return {p: (s.st_ino, s.st_mode, s.st_size, s.st_mtime_ns) for p, s in stats.items()}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path / "work")


def model(path: str) -> bytes:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_graph(Path(path), classifier())
    return Path(path).read_bytes()


def recipe(source: str, path: str = "recipe.yaml", more: str = "") -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(RECIPE.format(source=source) + more)
    return path


def refused(run: Run, *arguments: str) -> str:
    before = entries()
    result = run("build", *arguments)
    assert result.code == 9, result.err
    assert "help:" in result.err
    assert entries() == before, "nothing was written"
    return result.err


@pytest.mark.parametrize("source", [MODEL, "../work/l/t/../t/l.pb", "link.pb", "linked/l.pb"])
def test_source_is_not_overwritten(run: Run, source: str) -> None:
    data = model(MODEL)
    Path("link.pb").symlink_to(MODEL)
    Path("linked").symlink_to("l/t")
    err = refused(run, recipe(source), "--out", ".")
    assert "outputs would go to this folder, where the build reads" in err
    assert Path(MODEL).read_bytes() == data


def test_spelling_of_the_output_directory_does_not_matter(run: Run) -> None:
    model(MODEL)
    Path("here").symlink_to(".")
    for out in ("here", "../work", "l/..", str(Path.cwd())):
        refused(run, recipe(MODEL), "--out", out)


def test_symlinked_source_is_not_replaced(run: Run) -> None:
    model("data/m.pb")
    Path("l/t").mkdir(parents=True)
    Path(MODEL).symlink_to("../../data/m.pb")
    refused(run, recipe(MODEL), "--out", ".")
    Path("link.pb").symlink_to(MODEL)
    refused(run, recipe("link.pb"), "--out", ".")


def test_hard_link_of_the_source_is_replaced(run: Run) -> None:
    data = model("m.pb")
    Path("l/t").mkdir(parents=True)
    Path(MODEL).hardlink_to("m.pb")
    chain = "transforms: [obfuscate_names]\n"
    assert run("build", recipe("m.pb", more=chain), "--out", ".").code == 0
    assert Path("m.pb").read_bytes() == data
    assert not Path(MODEL).samefile("m.pb")


def test_recipe_plugin_and_data_are_not_overwritten(run: Run) -> None:
    model("m.pb")
    refused(run, recipe("../../m.pb", "l/t/report.json"), "--out", ".")
    base = recipe("../../m.pb", "l/t/manifest.json")
    Path("over.yaml").write_text(f"extends: {base}\nname: l\n")
    refused(run, "over.yaml", "--out", ".")
    for path in (base, "l/t/report.json"):
        Path(path).unlink()
    for ending, text in (("py", ""), ("json", '{"type": "object"}')):
        Path(f"l/t/plug.{ending}").write_text(text)
    refused(run, recipe("m.pb", more="plugins: [l/t/plug.py]\ntransforms: [plug]\n"), "--out", ".")
    Path("l/t/data.npz").write_bytes(b"")
    more = "validation: {data: l/t/data.npz}\n"
    refused(run, recipe("m.pb", more=more), "--out", ".")


def test_outputs_and_cache_do_not_overlap(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model("m.pb")
    assert "store" in refused(run, recipe("m.pb"), "--out", str(tmp_path / "store" / "v1" / "out"))
    monkeypatch.setenv("MOBILEPREP_CACHE", str(Path("out/l/t/cache").absolute()))
    assert "store" in refused(run, recipe("m.pb"))
    assert not (tmp_path / "store").exists()
    monkeypatch.setenv("MOBILEPREP_CACHE", str(Path("cache").absolute()))
    assert run("build", "recipe.yaml", "--out", ".").code == 0


def test_symlinked_target_directories_are_refused(run: Run) -> None:
    model("m.pb")
    Path("out/l/t").mkdir(parents=True)
    Path("out/l/u").symlink_to("t")
    text = RECIPE.format(source="m.pb").replace("{t: {}}", "{t: {}, u: {}}")
    Path("recipe.yaml").write_text(text)
    assert "the outputs of l/t and l/u would go to the same folder" in refused(run, "recipe.yaml")


def test_recipe_reads_outputs_of_another(run: Run) -> None:
    model("m.pb")
    assert run("build", recipe("m.pb")).code == 0
    text = RECIPE.format(source="out/l/t/l.pb").replace("name: l", "name: second")
    Path("second.yaml").write_text(text)
    assert run("build", "second.yaml").code == 0
    refused(run, "recipe.yaml", "second.yaml")


@pytest.mark.parametrize("name", ["report.json", "manifest.json", "l.pb"])
def test_symlinked_output_is_replaced(run: Run, name: str) -> None:
    model("m.pb")
    assert run("build", recipe("m.pb")).code == 0
    folder = Path("out/l/t")
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    (folder / name).unlink()
    (folder / name).symlink_to("l.pb" if name != "l.pb" else "report.json")
    assert run("build", "recipe.yaml").code == 0
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == files
    assert not (folder / name).is_symlink()


def test_clean_removes_symlinks_and_not_their_targets(run: Run) -> None:
    model("m.pb")
    assert run("build", recipe("m.pb")).code == 0
    target = Path("kept")
    target.write_text("mine")
    Path("out/l/t/report.json").unlink()
    Path("out/l/t/report.json").symlink_to(target.absolute())
    assert run("clean", "recipe.yaml").code == 0
    assert target.read_text() == "mine"
    assert not Path("out/l").exists()


def test_doit_refuses_overlapping_outputs(run: Run) -> None:
    from doit.exceptions import InvalidDodoFile

    from mobileprep.building.tasks import recipe_tasks

    model(f"recipes/{MODEL}")
    recipe(f"../{MODEL}", "recipes/l/recipe.yaml")
    with pytest.raises(InvalidDodoFile, match="outputs would go to this folder"):
        list(recipe_tasks(Path("recipes"), Path("recipes")))


def test_overlong_output_directory_is_reported(run: Run) -> None:
    model("m.pb")
    result = run("build", recipe("m.pb"), "--out", "x" * 300)
    assert result.code == 9, result.err
    assert "too long" in result.err
