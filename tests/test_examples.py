"""What stands in ``examples/``, run on the digits recipe by the tools that it is for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
Shell = Callable[..., str]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An app's folder with the digits recipe."""
    folder = tmp_path / "app"
    shutil.copytree(ROOT / "recipes" / "digits", folder / "recipes" / "digits")
    return folder


@pytest.fixture
def shell(app: Path, tmp_path: Path) -> Shell:
    """Runs a command in the app's folder; what it says."""
    script = tmp_path / "bin" / "mobileprep"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mobileprep "$@"\n')
    script.chmod(0o755)
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "MOBILEPREP_CACHE": str(tmp_path / "store")}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=app, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def follows_edits(app: Path, build: Callable[[], str], *, forgets: bool = True) -> None:
    """Check that each file that is read sets off a build when it is edited, and nothing else.

    Args:
        app: the app's folder.
        build: what builds there; what it says.
        forgets: whether the tool drops a dependency that is in the depfile no longer; CMake's
            makefiles do not.
    """
    ran = "stages ran"
    assert ran in build()
    assert ran not in build()
    folder = app / "recipes" / "digits"
    for read in (
        "model/graph.pbtxt",
        "data/test.npz",
        "model/model.ckpt-1000.index",
    ):
        (folder / read).touch()
        assert ran in build(), read
        assert ran not in build(), read
    (folder / "README.md").write_text("nothing that a build reads")
    (folder / "train.py").touch()
    assert ran not in build()
    recipe = folder / "recipe.yaml"
    recipe.write_text(f"{recipe.read_text()}# more\n")
    assert "0 of " in build()
    shutil.move(folder / "data/test.npz", folder / "data/moved.npz")
    recipe.write_text(recipe.read_text().replace("data/test.npz", "data/moved.npz"))
    assert ran in build()
    assert ran not in build() or not forgets
    (folder / "data/moved.npz").touch()
    assert ran in build(), "what is read since the last edit is in the depfile"


@needs("make")
def test_the_makefile(app: Path, shell: Shell) -> None:
    shutil.copy(EXAMPLES / "make" / "Makefile", app)
    follows_edits(app, lambda: shell("make"))
    model = app / "out" / "digits" / "phone" / "digits.pb"
    assert (app / "assets" / "digits.pb").read_bytes() == model.read_bytes()


@needs("ninja")
def test_the_ninja_file(app: Path, shell: Shell) -> None:
    shutil.copy(EXAMPLES / "ninja" / "build.ninja", app)
    (app / "assets").mkdir()
    follows_edits(app, lambda: shell("ninja"))
    copied = (app / "assets" / "digits.pb").stat().st_mtime_ns
    recipe = app / "recipes" / "digits" / "recipe.yaml"
    recipe.write_text(f"{recipe.read_text()}# more\n")
    assert "0 of " in shell("ninja")
    assert (app / "assets" / "digits.pb").stat().st_mtime_ns == copied, "the model is as it was"


@needs("cmake")
@pytest.mark.parametrize(("generator", "tool"), [("Ninja", "ninja"), ("Unix Makefiles", "make")])
def test_the_cmake_lists(app: Path, shell: Shell, generator: str, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    shutil.copy(EXAMPLES / "cmake" / "CMakeLists.txt", app)
    shell("cmake", "-G", generator, "-S", ".", "-B", "build")
    follows_edits(app, lambda: shell("cmake", "--build", "build"), forgets=tool != "make")


def test_the_dodo_file(app: Path, shell: Shell) -> None:
    shutil.copy(EXAMPLES / "doit" / "dodo.py", app)
    doit = [sys.executable, "-m", "doit"]
    assert ".  assets\n" in shell(*doit)
    assert all(line.startswith("-- ") for line in shell(*doit).splitlines())
    shell(*doit, "clean", "recipe", "assets")
    assert not (app / "assets" / "digits.pb").exists()
    assert ".  assets\n" in shell(*doit, "-n", "4")
