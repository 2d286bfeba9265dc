"""Run the files in ``examples/`` on the digits recipe with their tools."""

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
    """An app directory with the digits recipe."""
    folder = tmp_path / "app"
    shutil.copytree(ROOT / "recipes" / "digits", folder / "recipes" / "digits")
    return folder


@pytest.fixture
def shell(app: Path, tmp_path: Path) -> Shell:
    """Run a command in the app directory and return its output."""
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


def check_rebuilds(app: Path, build: Callable[[], str], *, forgets: bool = True) -> None:
    """Check that editing an input triggers a build, and editing another file does not.

    Args:
        app: the app directory.
        build: builds the app and returns the output.
        forgets: whether the tool drops dependencies that are no longer in the depfile; CMake's
            makefiles do not.
    """
    ran = "stages ran"
    assert ran in build()
    assert ran not in build()
    folder = app / "recipes" / "digits"
    for name in ("model/graph.pbtxt", "data/test.npz", "model/model.ckpt-1000.index"):
        (folder / name).touch()
        assert ran in build(), name
        assert ran not in build(), name
    (folder / "README.md").write_text("not an input")
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
    assert ran in build(), "the depfile lacks the moved file"


@pytest.mark.slow
@needs("make")
def test_makefile(app: Path, shell: Shell) -> None:
    shutil.copy(EXAMPLES / "make" / "Makefile", app)
    check_rebuilds(app, lambda: shell("make"))
    model = app / "out" / "digits" / "phone" / "digits.pb"
    assert (app / "assets" / "digits.pb").read_bytes() == model.read_bytes()


@pytest.mark.slow
@needs("ninja")
def test_ninja_file(app: Path, shell: Shell) -> None:
    shutil.copy(EXAMPLES / "ninja" / "build.ninja", app)
    (app / "assets").mkdir()
    check_rebuilds(app, lambda: shell("ninja"))
    copied = (app / "assets" / "digits.pb").stat().st_mtime_ns
    recipe = app / "recipes" / "digits" / "recipe.yaml"
    recipe.write_text(f"{recipe.read_text()}# more\n")
    assert "0 of " in shell("ninja")
    assert (app / "assets" / "digits.pb").stat().st_mtime_ns == copied, "the model was copied again"


@pytest.mark.slow
@needs("cmake")
@pytest.mark.parametrize(("generator", "tool"), [("Ninja", "ninja"), ("Unix Makefiles", "make")])
def test_cmake_lists(app: Path, shell: Shell, generator: str, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    for name in ("CMakeLists.txt", "mobileprep.cmake"):
        shutil.copy(EXAMPLES / "cmake" / name, app)
    shell("cmake", "-G", generator, "-S", ".", "-B", "build")
    check_rebuilds(app, lambda: shell("cmake", "--build", "build"), forgets=tool != "make")


@pytest.mark.reference  # slow to start
@needs("gradle")
def test_gradle_task(app: Path, shell: Shell, tmp_path: Path) -> None:
    for name in ("build.gradle", "mobileprep.gradle"):
        shutil.copy(EXAMPLES / "gradle" / name, app)
    (app / "settings.gradle").write_text("rootProject.name = 'app'\n")
    home = ("-g", str(tmp_path / "home"), "--offline", "--no-daemon", "--console=plain")
    ran = "stages ran"
    assert ran in shell("gradle", *home, "digits")
    assert (app / "build/models/digits/phone/digits.pb").is_file()
    output = shell("gradle", *home, "digits")
    assert ran not in output and "UP-TO-DATE" in output
    with (app / "recipes/digits/recipe.yaml").open("a") as recipe:
        recipe.write("# more\n")
    assert ran in shell("gradle", *home, "digits")
    (app / "build/models/digits/phone/digits.pb").write_text("altered")
    assert ran in shell("gradle", *home, "digits")
    assert (app / "build/models/digits/phone/digits.pb").stat().st_size > 10_000


@pytest.mark.reference  # slow to start
@needs("gradle")
def test_gradle_task_reports_undeclared_inputs(app: Path, shell: Shell, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "gradle" / "mobileprep.gradle", app)
    task = "task digits(type: MobileprepModel) {\n recipe = file('recipes/digits/recipe.yaml')\n"
    build = f"apply from: 'mobileprep.gradle'\n{task} target = 'phone'\n"
    (app / "build.gradle").write_text(f"{build}}}\n")
    (app / "settings.gradle").write_text("rootProject.name = 'app'\n")
    (app / "my data").mkdir()
    (app / "recipes/digits/data/test.npz").rename(app / "my data/$1#test.npz")
    recipe = app / "recipes/digits/recipe.yaml"
    recipe.write_text(
        recipe.read_text().replace("data: data/test.npz", "data: '../../my data/$1#test.npz'")
    )
    command = ("gradle", "-g", str(tmp_path / "home"), "--offline", "--no-daemon", "digits")
    with pytest.raises(AssertionError, match=r"my data/\$1#test.npz\]: add them to 'sources' of"):
        shell(*command)
    (app / "build.gradle").write_text(f"{build} sources = files('my data/$1#test.npz')\n}}\n")
    assert "0 of " in shell(*command)
    assert "UP-TO-DATE" in shell(*command, "--console=plain")


XCODE = {
    "SRCROOT": "{}",
    "DERIVED_FILE_DIR": "{}/derived files",
    "SCRIPT_INPUT_FILE_COUNT": "1",
    "SCRIPT_INPUT_FILE_0": "{}/recipes/digits/recipe.yaml",
    "SCRIPT_OUTPUT_FILE_COUNT": "2",
    "SCRIPT_OUTPUT_FILE_0": "{}/App of mine.app/digits.pb",
    "SCRIPT_OUTPUT_FILE_1": "{}/derived files/include/ops_to_register.h",
}
"""Variables that Xcode sets; ``{}`` is the project directory."""


def xcode(app: Path, shell: Shell, **changed: str) -> str:
    """The output of the script phase."""
    settings = {**XCODE, **changed}
    variables = [f"{key}={value.replace('{}', str(app))}" for key, value in settings.items()]
    return shell("env", *variables, "sh", str(EXAMPLES / "xcode" / "mobileprep.sh"), "phone")


def test_xcode_script_phase(app: Path, shell: Shell) -> None:
    recipe = app / "recipes/digits/recipe.yaml"
    recipe.write_text(recipe.read_text().replace('["1.15", "2.21"]', '["1.15"]'))
    (app / "derived files").mkdir()
    assert "stages ran" in xcode(app, shell)
    built = app / "derived files/models/digits/phone"
    assert (app / "App of mine.app/digits.pb").read_bytes() == (built / "digits.pb").read_bytes()
    assert (app / "derived files/include/ops_to_register.h").is_file()
    depfile = (app / "derived files/phone.d").read_text()
    assert "recipes/digits/model/graph.pbtxt" in depfile and "data/test.npz" in depfile
    assert "0 of " in xcode(app, shell)
    with pytest.raises(AssertionError, match="error: the phase needs the recipe"):
        xcode(app, shell, SCRIPT_OUTPUT_FILE_COUNT="0")
    with pytest.raises(AssertionError, match=r"no\.such"):
        xcode(app, shell, SCRIPT_OUTPUT_FILE_1="{}/no.such")
    with pytest.raises(AssertionError, match=r"recipe\.yaml:\d+:\d+"):
        recipe.write_text(recipe.read_text().replace("android", "andriod"))
        xcode(app, shell)


@needs("shellcheck")
def test_xcode_script_passes_shellcheck(shell: Shell) -> None:
    assert not shell("shellcheck", "-s", "sh", str(EXAMPLES / "xcode" / "mobileprep.sh"))


@pytest.mark.reference  # slow to start
@needs("bazel")
def test_bazel_rule(app: Path, shell: Shell, tmp_path: Path) -> None:
    for name in ("BUILD.bazel", "mobileprep.bzl"):
        shutil.copy(EXAMPLES / "bazel" / name, app)
    (app / "WORKSPACE").write_text("")
    bazel = ("bazel", "--batch", f"--output_user_root={tmp_path / 'bazel'}", "build", "//:digits")
    assert "stages ran" in shell(*bazel)
    assert (app / "bazel-bin/digits.pb").stat().st_size > 10_000
    assert "stages ran" not in shell(*bazel)
    with (app / "recipes/digits/recipe.yaml").open("a") as recipe:
        recipe.write("# more\n")
    assert "stages ran" in shell(*bazel)


STARLARK = """\
def stub(**arguments):
    return arguments

def rule(implementation, doc, attrs):
    return attrs

DefaultInfo = stub
depset = stub
attr = struct(label = stub, label_list = stub, output_list = stub, string = stub)
"""
"""Stubs of Bazel's builtins."""


def test_bazel_rule_evaluates_in_starlark() -> None:
    """Evaluate the module of the rule, then the BUILD file that uses it."""
    starlark = pytest.importorskip("starlark")
    folder = EXAMPLES / "bazel"
    names = starlark.Globals.extended_by([starlark.LibraryExtension.StructType])

    def evaluate(file: str, source: str, **stubs: Callable[..., Any]) -> Any:
        module = starlark.Module()
        for name, stub in stubs.items():
            module.add_callable(name, stub)
        dialect = starlark.Dialect.standard()
        return starlark.eval(module, starlark.parse(file, source, dialect), names)

    rule = (folder / "mobileprep.bzl").read_text()
    attributes = evaluate("mobileprep.bzl", f"{STARLARK}{rule}\nmobileprep_model\n")
    assert all(attributes[key].get("mandatory") for key in ("outs", "recipe", "target"))
    calls: list[dict[str, Any]] = []
    build = (folder / "BUILD.bazel").read_text()
    load = 'load(":mobileprep.bzl", "mobileprep_model")\n'
    assert load in build
    stubs = {"glob": lambda patterns: patterns, "mobileprep_model": lambda **g: calls.append(g)}
    evaluate("BUILD.bazel", build.replace(load, ""), **stubs)
    assert [called.keys() for called in calls] == [{"name", *attributes}]


@needs("buildifier")
def test_bazel_rule_passes_buildifier(shell: Shell) -> None:
    files = [str(path) for path in sorted((EXAMPLES / "bazel").iterdir())]
    shell("buildifier", "-mode=check", "-lint=warn", *files)


def test_dodo_file(app: Path, shell: Shell) -> None:
    shutil.copy(EXAMPLES / "doit" / "dodo.py", app)
    doit = [sys.executable, "-m", "doit"]
    assert ".  assets\n" in shell(*doit)
    assert all(line.startswith("-- ") for line in shell(*doit).splitlines())
    shell(*doit, "clean", "recipe", "assets")
    assert not (app / "assets" / "digits.pb").exists()
    assert ".  assets\n" in shell(*doit, "-n", "4")


def workflow(name: str) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as a boolean, GitHub as a string.
    text = (EXAMPLES / "ci" / name).read_text().replace("\non:", "\n'on':")
    loaded = yaml.safe_load(text)
    assert isinstance(loaded, dict)
    return loaded


def scripts(name: str, job: str) -> list[str]:
    """The shell commands of a job, except installations."""
    if name == "github.yml":
        steps = workflow(name)["jobs"][job]["steps"]
        commands = [step["run"] for step in steps if "run" in step]
    else:
        commands = workflow(name)[job]["script"]
    return [command for command in commands if not command.startswith("pip install ")]


def commit_app(shell: Shell) -> str:
    """Commit the app directory to a repository that is its own origin; return the commit."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    shell("git", "init", "--quiet")
    shell("git", "add", "--all")
    shell("git", *who, "commit", "--quiet", "--message=all")
    shell("git", "remote", "add", "origin", ".")
    return shell("git", "rev-parse", "HEAD").strip()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "job"), [("github.yml", "build"), ("gitlab-ci.yml", "models")])
def test_ci_commands_build_and_report(name: str, job: str, app: Path, shell: Shell) -> None:
    commands = scripts(name, job)
    assert sum("mobileprep " in command for command in commands) == 4
    environ = [f"GITHUB_STEP_SUMMARY={app / 'summary.md'}"]
    if name == "github.yml":  # an earlier step checks out the base
        shutil.copytree(app / "recipes", app / "base" / "recipes")
    else:
        environ.append(f"CI_MERGE_REQUEST_DIFF_BASE_SHA={commit_app(shell)}")
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


def test_gitlab_runner_recreates_the_base_for_each_job(app: Path, shell: Shell) -> None:
    (script,) = (command for command in scripts("gitlab-ci.yml", "models") if "worktree" in command)
    first = script.partition("if mobileprep ")[0]
    environ = f"CI_MERGE_REQUEST_DIFF_BASE_SHA={commit_app(shell)}"
    for _ in range(2):
        shell("env", environ, "bash", "-e", "-c", f"{first}fi")
        assert (app / "base" / "recipes").is_dir()
        # As a runner cleans its clone before each job.
        shell("git", "clean", "-ffdx", "--quiet")


def test_github_workflow_pins_actions_and_limits_permissions() -> None:
    config = workflow("github.yml")
    text = (EXAMPLES / "ci" / "github.yml").read_text()
    uses = [
        step["uses"] for job in config["jobs"].values() for step in job["steps"] if "uses" in step
    ]
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action) for action in uses)
    assert len(re.findall(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+\n", text)) == len(uses)
    assert config["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in text
    assert "secrets." not in text
    comment = config["jobs"]["comment"]
    assert comment["permissions"] == {"pull-requests": "write"}
    assert "head.repo.full_name == github.repository" in comment["if"]
    assert not any("checkout" in step.get("uses", "") for step in comment["steps"])
    assert "permissions" not in config["jobs"]["build"]


def test_gitlab_pipeline_caches_and_comments_on_own_branches_only() -> None:
    pipeline = workflow("gitlab-ci.yml")
    assert set(pipeline["stages"]) == {pipeline["models"]["stage"], pipeline["comment"]["stage"]}
    (path,) = pipeline["models"]["cache"]["paths"]
    assert pipeline["models"]["variables"]["MOBILEPREP_CACHE"] == f"$CI_PROJECT_DIR/{path}"
    (rule,) = pipeline["comment"]["rules"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in rule["if"]
    assert "TOKEN" not in json.dumps(pipeline["models"])
    assert pipeline["comment"]["needs"] == ["models"]


def test_ci_uses_the_current_version() -> None:
    for path in (EXAMPLES / "ci").iterdir():
        assert set(re.findall(r"mobileprep(?:==|-)(\d[\d.]*\d)", path.read_text())) == {__version__}
