"""After any edit, an incremental build equals a build from scratch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.building.pipeline.small_plans import SPOILS
from tests.cli.conftest import Run, replace_text

PHONE = Path("out/digits/phone")
RECIPE = Path("digits/recipe.yaml")
MODEL = Path("digits/model")


def flip_quietly(path: Path) -> None:
    """Change a byte without changing size and mtime."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def add_comment(path: Path) -> None:
    path.write_text(path.read_text() + "# another line\n")


def first_record() -> Path:
    return min(Path("store/v2/ac").rglob("*.json"))


EDITS: dict[str, Callable[[], object]] = {
    "a comment in the recipe": lambda: add_comment(RECIPE),
    "a word of the recipe, times as before": lambda: flip_quietly(RECIPE),
    "the model, times as before": lambda: flip_quietly(MODEL / "graph.pbtxt"),
    "the data, times as before": lambda: flip_quietly(Path("digits/data/test.npz")),
    "one more file of the checkpoint": lambda: shutil.copy(
        next(MODEL.glob("*.data-*")), MODEL / "model.ckpt-1000.data-00002-of-00003"
    ),
    "no checkpoint": lambda: next(MODEL.glob("*.index")).unlink(),
    "no output": lambda: (PHONE / "digits.pb").unlink(),
    "an output, times as before": lambda: flip_quietly(PHONE / "digits.pb"),
    "an output that is a link": lambda: SPOILS["a link"](PHONE / "digits.pb"),
    "a report": lambda: add_comment(PHONE / "report.json"),
    "no manifest": lambda: (PHONE / "manifest.json").unlink(),
    "an unfinished file": lambda: (PHONE / ".digits.pb.0123456789abcdef").write_text(""),
    "no target directory": lambda: shutil.rmtree(PHONE),
    "no record": lambda: first_record().unlink(),
    "a damaged record": lambda: flip_quietly(first_record()),
    "no records": lambda: shutil.rmtree("store/v2/ac"),
}


def outputs(top: Path) -> dict[str, bytes]:
    """The files of all targets."""
    files = [path for path in top.glob("digits/*/**/*") if path.is_file()]
    return {str(path.relative_to(top)): path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("name", EDITS)
def test_incremental_build_equals_a_build_from_scratch(
    name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    EDITS[name]()
    again = run("build", "digits", "--out", "out")
    pending = run("build", "digits", "--out", "out", "--dry-run", "--exit-code")
    assert (pending.code == 0) == (again.code == 0)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(Path("another").absolute()))
    assert run("build", "digits", "--out", "fresh").code == again.code
    if again.code == 0:
        assert outputs(Path("out")) == outputs(Path("fresh"))


@pytest.mark.usefixtures("built")
def test_variables_and_targets_select_stages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_text(RECIPE, "num_steps: 256", "num_steps: ${STEPS:-256}")
    build = ("build", "digits", "--out", "out")
    assert "0 of 24 stages ran" in run(*build).err
    monkeypatch.setenv("STEPS", "128")
    assert "8 of 24 stages ran" in run(*build).err
    monkeypatch.delenv("STEPS")
    assert "8 of 24 stages ran" in run(*build, "--set", "STEPS=64").err
    assert "0 of 16 stages ran" in run(*build, "--target", "phone").err
