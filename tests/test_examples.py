"""What stands in ``examples/``, run on the digits recipe by the tools that it is for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mobileprep import __version__

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
    for name in ("CMakeLists.txt", "mobileprep.cmake"):
        shutil.copy(EXAMPLES / "cmake" / name, app)
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


def workflow(name: str) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as a truth; as a text it is what GitHub reads.
    text = (EXAMPLES / "ci" / name).read_text().replace("\non:", "\n'on':")
    loaded = yaml.safe_load(text)
    assert isinstance(loaded, dict)
    return loaded


def scripts(name: str, job: str) -> list[str]:
    """The shell commands of a job, but those that install."""
    if name == "github.yml":
        steps = workflow(name)["jobs"][job]["steps"]
        found = [step["run"] for step in steps if "run" in step]
    else:
        found = workflow(name)[job]["script"]
    return [command for command in found if not command.startswith("pip install ")]


def committed(shell: Shell) -> str:
    """Commit the app's folder into a repository that is its own origin; the commit."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    shell("git", "init", "--quiet")
    shell("git", "add", "--all")
    shell("git", *who, "commit", "--quiet", "--message=all")
    shell("git", "remote", "add", "origin", ".")
    return shell("git", "rev-parse", "HEAD").strip()


@pytest.mark.parametrize(("name", "job"), [("github.yml", "build"), ("gitlab-ci.yml", "models")])
def test_the_commands_of_ci_build_and_report(name: str, job: str, app: Path, shell: Shell) -> None:
    commands = scripts(name, job)
    assert sum("mobileprep " in command for command in commands) == 4
    environ = [f"GITHUB_STEP_SUMMARY={app / 'summary.md'}"]
    if name == "github.yml":  # the base is checked out by a step before
        shutil.copytree(app / "recipes", app / "base" / "recipes")
    else:
        environ.append(f"CI_MERGE_REQUEST_DIFF_BASE_SHA={committed(shell)}")
    recipe = app / "recipes" / "digits" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("num_steps: 256", "num_steps: 64"))
    shell("env", *environ, "bash", "-e", "-c", "\n".join(commands))
    report = (app / "report.md").read_text()
    assert "| digits/phone | digits.pb |" in report
    assert "- **cause** transforms.round&#95;weights.num&#95;steps: 256 -&#62; 64 (" in report
    assert "Nothing differs in digits/phone." in report
    assert json.loads((app / "report.json").read_text())[0]["recipe"] == "digits"
    if name == "github.yml":
        assert (app / "summary.md").read_text() == report


def test_the_github_workflow_has_pinned_actions_and_least_rights() -> None:
    found = workflow("github.yml")
    text = (EXAMPLES / "ci" / "github.yml").read_text()
    uses = [
        step["uses"] for job in found["jobs"].values() for step in job["steps"] if "uses" in step
    ]
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action) for action in uses)
    assert len(re.findall(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+\n", text)) == len(uses)
    assert found["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in text
    assert "secrets." not in text
    comment = found["jobs"]["comment"]
    assert comment["permissions"] == {"pull-requests": "write"}
    assert "head.repo.full_name == github.repository" in comment["if"]
    assert not any("checkout" in step.get("uses", "") for step in comment["steps"])
    assert "permissions" not in found["jobs"]["build"]


def test_the_gitlab_pipeline_keeps_the_store_and_comments_on_own_branches_only() -> None:
    found = workflow("gitlab-ci.yml")
    assert set(found["stages"]) == {found["models"]["stage"], found["comment"]["stage"]}
    (path,) = found["models"]["cache"]["paths"]
    assert found["models"]["variables"]["MOBILEPREP_CACHE"] == f"$CI_PROJECT_DIR/{path}"
    (rule,) = found["comment"]["rules"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in rule["if"]
    assert "TOKEN" not in json.dumps(found["models"])
    assert found["comment"]["needs"] == ["models"]


def test_ci_names_this_version() -> None:
    for path in (EXAMPLES / "ci").iterdir():
        assert set(re.findall(r"mobileprep(?:==|-)(\d[\d.]*\d)", path.read_text())) == {__version__}
