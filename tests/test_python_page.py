"""The examples of docs/python.md, run as they stand there, and its lists held to the code."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mobileprep

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
DIGITS = ROOT / "recipes" / "digits"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page names: a model, a recipe, a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    shutil.copytree(DIGITS, tmp_path / "digits")


@pytest.mark.usefixtures("_folder")
def test_its_examples_run_one_after_the_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, checkpoint = Path("digits/model/graph.pbtxt"), Path("digits/model/model.ckpt-1000")
    frozen = mobileprep.freeze(model, ["probabilities"], checkpoint=checkpoint)
    # The repository has no SavedModel of the digits: what freezes one has tests of its own.
    monkeypatch.setattr(mobileprep, "freeze", lambda *_, **__: frozen)
    known: dict[str, object] = {}
    *code, dodo, error = examples()
    for block in (*code, error):
        exec(compile(block, "docs/python.md", "exec"), known)
    told = capsys.readouterr().out.splitlines()
    steps = [line.split() for line in told[:3]]
    assert [step[0] for step in steps] == ["strip_unused_nodes", "remove_nodes", "fold_constants"]
    assert all(float(gap) < 1e-5 for _, _, gap in steps)
    assert told[3] == "(1, 10)"
    assert re.fullmatch(r"[\d.]+ microseconds \d+ FLOPs", told[4])
    assert told[5].startswith(f"{Path('out/digits/phone')} ")
    assert told[5].endswith(" changed")
    assert "digits/freeze: fresh" in told[6:-1]
    assert told[-1] == "there is no tensor 'imgae' in the graph did you mean 'image'?"
    header = known["header"]
    assert isinstance(header, str)
    assert "TensorFlow 1.15" in header
    assert "Conv2DOp" in header
    assert mobileprep.build("digits/recipe.yaml", targets=["phone"]).ran == ()
    shutil.move("digits", "recipes/digits")
    exec(compile(dodo, "dodo.py", "exec"), known)
    tasks = known["task_recipe"]
    assert callable(tasks)
    names = {task["name"] for task in tasks()}
    assert {"digits/phone", "digits/download", "digits/freeze"} <= names


def test_it_lists_every_function_and_every_error() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)[(`]", row)}
    public = {name: getattr(mobileprep, name) for name in mobileprep.__all__}
    functions = {name for name, value in public.items() if inspect.isfunction(value)}
    errors = {name for name in public if name.endswith("Error") and name != "MobileprepError"}
    assert listed == functions | errors


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert "://" in target or (ROOT / "docs" / target).exists(), target


def test_importing_the_package_imports_nothing_else() -> None:
    script = (
        "import sys, mobileprep; mobileprep.MobileprepError; "
        "print(*(n for n in ('numpy', 'google.protobuf', 'doit', 'yaml') if n in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
