"""The recipes as doit tasks."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.report.page.render import page_key
from tests.cli.conftest import replace_text

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class DoitResult:
    code: int
    out: str
    err: str


def doit(folder: Path, *arguments: str) -> DoitResult:
    environment = {**os.environ, "MOBILEPREP_CACHE": str(folder / "store")}
    command = [sys.executable, "-m", "doit", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    return DoitResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def folder(built_once: Path, tmp_path: Path) -> Path:
    """A project with the digits recipe and ``dodo.py``."""
    shutil.copy(ROOT / "dodo.py", tmp_path)
    shutil.copytree(built_once / "digits", tmp_path / "recipes" / "digits")
    return tmp_path


def check_model(built_once: Path, folder: Path, target: str) -> None:
    ours = folder / "out" / "digits" / target / "digits.pb"
    theirs = built_once / "out" / "digits" / target / "digits.pb"
    assert ours.read_bytes() == theirs.read_bytes()


def test_second_run_of_doit_is_up_to_date(built_once: Path, folder: Path) -> None:
    listed = doit(folder, "list", "--all").out
    assert "recipe:digits/phone " in listed
    assert "recipe:digits/freeze" in listed
    assert doit(folder).code == 0
    for name in ("phone", "download"):
        check_model(built_once, folder, name)
    again = doit(folder).out.splitlines()
    assert again
    assert all(line.startswith("-- ") for line in again)


@pytest.mark.slow
def test_report_page_is_a_task(app: Path) -> None:
    page = app / "built" / "digits" / "report.html"
    first = doit(app)
    assert ran(first)[-2:] == ["model:digits/report.html", "app"]
    assert page_key(page.read_bytes())
    assert ran(doit(app)) == []
    page.write_bytes(page.read_bytes()[:-1])
    result = doit(app, "info", "model:digits/report.html").out
    assert "built/digits/report.html was altered" in result
    assert ran(doit(app, "-n", "2")) == ["model:digits/report.html"]
    recipe = app / "recipes" / "digits" / "recipe.yaml"
    replace_text(recipe, "num_steps: 256", "num_steps: 64")
    assert "model:digits/report.html" in ran(doit(app, "-n", "2", "-P", "thread"))
    assert ran(doit(app)) == []
    assert f"removing file '{Path('built/digits/report.html')}'" in doit(app, "clean").out
    assert not page.exists()
    page.parent.mkdir(exist_ok=True)
    page.write_text("mine")
    done = doit(app)
    assert "is no page of a build" in done.err
    assert page.read_text() == "mine"
    doit(app, "clean")
    assert page.exists()


def test_single_target_is_built(built_once: Path, folder: Path) -> None:
    done = doit(folder, "recipe:digits/phone")
    assert done.code == 0, done.out
    check_model(built_once, folder, "phone")
    assert not (folder / "out" / "digits" / "download").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_doit_builds_in_parallel(built_once: Path, folder: Path, kind: str) -> None:
    done = doit(folder, "-n", "3", "-P", kind)
    assert done.code == 0, done.out + done.err
    for name in ("phone", "download"):
        check_model(built_once, folder, name)


def test_spawned_processes_build(built_once: Path, folder: Path) -> None:
    dodo = folder / "dodo.py"
    start = "import multiprocessing\nmultiprocessing.set_start_method('spawn', force=True)\n"
    dodo.write_text(f"{start}{dodo.read_text()}")
    # Only this backend of doit can be passed to another process.
    done = doit(folder, "--backend", "json", "-n", "2", "recipe:digits/phone")
    assert done.code == 0, done.out + done.err
    check_model(built_once, folder, "phone")


@pytest.fixture
def app(folder: Path, built_once: Path) -> Path:
    """A project whose task reads published files, with a filled cache."""
    shutil.copytree(built_once / "store", folder / "store")
    (folder / "dodo.py").write_text(APP)
    return folder


APP = """
from mobileprep import recipe_tasks

def task_models():
    yield from recipe_tasks("recipes/digits/recipe.yaml", "built", name="model")

def task_app():
    taken = ["built/digits/phone/digits.pb",
             "built/digits/phone/tensorflow-1.15/ops_to_register.h"]
    return {"actions": ["cat %(dependencies)s > app.bin"], "file_dep": taken,
            "targets": ["app.bin"]}
"""


def ran(done: DoitResult) -> list[str]:
    """The names of the tasks that doit ran."""
    assert done.code == 0, done.out + done.err
    return [line[3:] for line in done.out.splitlines() if line.startswith(".  ")]


def test_task_depends_on_published_files(app: Path) -> None:
    first = ran(doit(app, "app"))
    assert first[-2:] == ["model:digits/phone", "app"]
    assert "model:digits/download" not in first
    assert ran(doit(app, "app")) == []
    model = app / "built" / "digits" / "phone" / "digits.pb"
    right = model.read_bytes()
    model.write_bytes(right[:-1] + b"!")
    assert ran(doit(app, "app")) == ["model:digits/phone"]
    assert model.read_bytes() == right


def test_published_file_selects_its_task(app: Path) -> None:
    file = "built/digits/download/manifest.json"
    assert ran(doit(app, "run", file))[-1] == "model:digits/download"
    assert (app / file).is_file()
    assert not (app / "built" / "digits" / "phone").exists()


def test_task_targets_match_published_files(app: Path) -> None:
    result = doit(app, "info", "model:digits/phone").out
    targets = result.partition("targets    :")[2].split("\n - ")[1:]
    assert ran(doit(app, "model:digits/phone"))
    files = {p for p in (app / "built").rglob("*") if p.is_file()}
    assert {app / name.strip() for name in targets} == files


def test_info_prints_files_and_reasons(app: Path) -> None:
    before = doit(app, "info", "model:digits/phone")
    assert "status     : run\n" in before.out
    assert "built/digits/phone does not exist" in before.out
    doit(app)
    done = doit(app, "info", "model:digits/phone")
    assert (done.code, "status     : up-to-date" in done.out) == (0, True)
    freeze = doit(app, "info", "model:digits/freeze").out
    assert "status     : up-to-date" in freeze
    assert " - recipes/digits/model/graph.pbtxt\n" in freeze
    recipe = app / "recipes" / "digits" / "recipe.yaml"
    replace_text(recipe, "ignore_errors: true", "ignore_errors: false")
    changed = doit(app, "info", "model:digits/03-fold_constants").out
    assert "status     : run\n" in changed
    assert "ignore_errors" in changed


def test_list_prints_status_and_files(app: Path) -> None:
    doit(app)
    status = doit(app, "list", "--all", "--status").out.splitlines()
    assert {line[0] for line in status if ":" in line.partition(" ")[2].partition(" ")[0]} == {"U"}
    (app / "built" / "digits" / "phone" / "digits.pb").unlink()
    stale = doit(app, "list", "--all", "--status").out.splitlines()
    subtasks = [line.split()[:2] for line in stale if ":" in line]
    assert [name for letter, name in subtasks if letter == "R"] == ["model:digits/phone"]
    deps = doit(app, "list", "--all", "--deps").out
    assert " -  recipes/digits/data/test.npz" in deps


def test_clean_removes_files_of_the_manifest(app: Path) -> None:
    doit(app)
    folder = app / "built" / "digits" / "phone"
    (folder / "mine.txt").write_text("kept")
    tried = doit(app, "clean", "-n", "model:digits/phone").out
    assert "removing file 'built/digits/phone/digits.pb'" in tried
    assert "executing 'Python: remove the files of the manifest in built/digits/phone'" in tried
    page = doit(app, "clean", "-n", "model:digits/report.html").out
    assert "executing 'Python: remove the page built/digits/report.html'" in page
    assert (folder / "digits.pb").is_file()
    doit(app, "clean", "model:digits/phone")
    assert [p.name for p in folder.iterdir()] == ["mine.txt"]
    assert (app / "built" / "digits" / "download" / "digits.pb").is_file()
    assert ran(doit(app, "-n", "4")) == ["model:digits/phone"]


def test_forgotten_tasks_run_and_ignored_tasks_do_not(app: Path) -> None:
    doit(app)
    doit(app, "forget", "model:digits/phone", "model:digits/freeze")
    assert ran(doit(app, "-n", "2", "-P", "thread")) == [
        "model:digits/freeze",
        "model:digits/phone",
    ]
    assert ran(doit(app, "-n", "2")) == []
    shutil.rmtree(app / "built")
    doit(app, "ignore", "model:digits/download")
    assert ran(doit(app)) == ["model:digits/phone"]
    assert not (app / "built" / "digits" / "download").exists()


def test_recipe_tasks_wait_for_a_generated_model(app: Path) -> None:
    model = app / "recipes" / "digits" / "model" / "graph.pbtxt"
    model.rename(app / "kept.pbtxt")
    dodo = APP.replace("def task_models", LATER).replace(
        '"file_dep"', '"task_dep": ["model"], "file_dep"'
    )
    (app / "dodo.py").write_text(f"from doit import create_after\n{dodo}\n{FETCH}")
    assert ran(doit(app, "app"))[0] == "fetch"
    assert ran(doit(app, "app")) == []
    source = app / "kept.pbtxt"
    source.write_text(source.read_text() + "# changed\n")
    again = ran(doit(app, "app"))
    assert again[:2] == ["fetch", "model:digits/freeze"]


LATER = "@create_after(executed='fetch', creates=['model'])\ndef task_models"
FETCH = """
def task_fetch():
    made = "recipes/digits/model/graph.pbtxt"
    return {"actions": [f"cp kept.pbtxt {made}"], "file_dep": ["kept.pbtxt"], "targets": [made]}
"""


MAKER = """
def task_made():
    return {"actions": ["cp %(dependencies)s %(targets)s"], "file_dep": ["kept"],
            "targets": ["{made}"]}
"""


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("-n", "3"), ("-n", "3", "-P", "thread")])
@pytest.mark.parametrize("name", ["data/test.npz", "model/graph.pbtxt"])
def test_generated_files_are_checked_after_their_tasks(
    app: Path, flags: tuple[str, ...], name: str
) -> None:
    file = app / "recipes" / "digits" / name
    source = app / "kept"
    shutil.copy(file, source)
    # Another recipe is planned first, and does not wait for the file.
    shutil.copytree(app / "recipes" / "digits", app / "recipes" / "another")
    another = app / "recipes" / "another" / "recipe.yaml"
    replace_text(another, "name: digits", "name: another")
    dodo = APP.replace("recipes/digits/recipe.yaml", "recipes")
    (app / "dodo.py").write_text(dodo + MAKER.replace("{made}", f"recipes/digits/{name}"))
    assert doit(app, *flags).code == 0
    assert ran(doit(app, *flags)) == []
    source.write_bytes(_changed(source))
    again = ran(doit(app, *flags))
    assert "made" in again and "model:digits/phone" in again
    assert file.read_bytes() == source.read_bytes()
    command = [sys.executable, "-m", "mobileprep", "plan", "--exit-code", "recipes/digits"]
    environment = {**os.environ, "MOBILEPREP_CACHE": str(app / "store")}
    process = subprocess.run(
        [*command, "--out", "built"], cwd=app, env=environment, capture_output=True, check=False
    )
    assert process.returncode == 0, process.stdout


def _changed(file: Path) -> bytes:
    """The content of a file with a comment or with fewer samples."""
    data = file.read_bytes()
    if not data.startswith(b"PK"):
        return data + b"# changed\n"
    whole = np.load(file)
    buffer = io.BytesIO()
    np.savez(buffer, **{name: whole[name][:100] for name in whole})
    return buffer.getvalue()


def test_dependencies_have_normalized_paths(app: Path) -> None:
    digits = app / "recipes" / "digits"
    (digits / "model").rename(app / "model")
    recipe = digits / "recipe.yaml"
    replace_text(recipe, " model/", " ../../model/")
    deps = doit(app, "list", "--all", "--deps").out
    assert " -  model/graph.pbtxt" in deps.splitlines()
    assert ".." not in deps


@pytest.mark.parametrize(
    ("named", "message"),
    [("recipse", "is missing"), ("store", "neither it nor a folder in it has a recipe.yaml")],
)
def test_missing_recipe_is_reported(app: Path, named: str, message: str) -> None:
    (app / "dodo.py").write_text(APP.replace("recipes/digits/recipe.yaml", named))
    done = doit(app)
    assert (done.code, f"{named}: {message}" in done.out + done.err) == (3, True), done


def test_recipe_is_found_by_its_directory(app: Path) -> None:
    (app / "dodo.py").write_text(APP.replace("recipes/digits/recipe.yaml", "recipes/digits"))
    assert "model:digits/freeze" in doit(app, "list", "--all").out


def test_target_with_the_name_of_a_stage_is_refused(app: Path) -> None:
    recipe = app / "recipes" / "digits" / "recipe.yaml"
    replace_text(recipe, "  phone:", "  freeze:")
    done = doit(app)
    assert done.code == 3
    assert "the target 'digits/freeze' is named as a stage of its recipe is" in done.out + done.err


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("outputs: [", "outptus: [", 3, "did you mean 'outputs'?"),
        ("graph: model/graph.pbtxt", "graph: model/grahp.pbtxt", 3, "did you mean 'graph.pbtxt'?"),
        ("outputs: [probabilities]", "outputs: [probabilites]", 1, "'probabilities'"),
    ],
)
def test_errors_have_no_traceback(
    folder: Path, old: str, new: str, code: int, message: str
) -> None:
    recipe = folder / "recipes" / "digits" / "recipe.yaml"
    text = recipe.read_text()
    assert old in text
    recipe.write_text(text.replace(old, new))
    done = doit(folder)
    assert (done.code, message in done.out + done.err) == (code, True), done
    assert "recipe.yaml:" in done.out + done.err
