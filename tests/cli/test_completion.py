"""``mobileprep completion`` with real shells."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mobileprep.cli.main import verb_names
from mobileprep.transforms.base import transform_names
from tests.cli.conftest import Run

_BASH = """
source ./script
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
COMP_LINE="${{COMP_WORDS[*]}}"
_shtab_mobileprep 2> /dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

_ZSH = """
compdef() {{ }}; compadd() {{ print -l -- "$@" }}; eval "$(cat script)"
words=({words}); _mobileprep_target_names
"""


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def script(run: Run, shell: str, folder: Path) -> Path:
    pytest.importorskip("shtab")
    result = run("completion", shell)
    assert (result.code, result.err) == (0, "")
    (folder / "script").write_text(result.out)
    (folder / "recipe.yaml").write_text("")
    (folder / "models").mkdir()
    return folder


def answers(folder: Path, *command: str) -> set[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return {line.partition("\t")[0].strip() for line in done.stdout.splitlines()}


def completed(folder: Path, shell: str, line: str) -> set[str]:
    if shell == "fish":
        return answers(folder, "fish", "-c", f"source ./script; complete -C '{line}'")
    words = line.replace(" ", "' '")
    return answers(folder, "bash", "--norc", "-c", _BASH.format(words=f"'{words}'"))


@pytest.mark.parametrize("shell", [pytest.param(s, marks=needs(s)) for s in ("bash", "fish")])
def test_verbs_flags_choices_and_files_are_completed(run: Run, shell: str, tmp_path: Path) -> None:
    folder = script(run, shell, tmp_path)
    assert set(verb_names()) <= completed(folder, shell, "mobileprep ")
    assert completed(folder, shell, "mobileprep com") == {"compare", "completion"}
    assert {"--depfile", "--dry-run"} <= completed(folder, shell, "mobileprep build --d")
    assert completed(folder, shell, "mobileprep completion z") == {"zsh"}
    assert "recipe.yaml" in completed(folder, shell, "mobileprep build rec")
    assert "markdown" in completed(folder, shell, "mobileprep report --format ")
    prefix = "mobileprep transform --transforms fold_"
    assert completed(folder, shell, prefix) == {
        n for n in transform_names() if n.startswith("fold_")
    }


RECIPE = """\
name: digits
targets:  # two
  phone:
    platform: android
    targets-of-note: 1

  # and
  download: {platform: ios}
validation:
  data: data.npz
"""
MODELS = """\
models:
  one:
    targets:
      watch:
        abis: [a]
"""


@pytest.mark.parametrize("shell", [pytest.param(s, marks=needs(s)) for s in ("bash", "fish")])
def test_target_names_come_from_the_named_recipes(run: Run, shell: str, tmp_path: Path) -> None:
    folder = script(run, shell, tmp_path)
    (folder / "digits").mkdir()
    (folder / "digits" / "recipe.yaml").write_text(RECIPE)
    (folder / "more.yml").write_text(MODELS)
    prefix = "mobileprep build digits more.yml --target "
    assert completed(folder, shell, prefix) == {"phone", "download", "watch"}
    assert completed(folder, shell, "mobileprep plan digits --target do") == {"download"}
    assert completed(folder, shell, "mobileprep plan --target do") in (set(), {""})


QUOTED = [r"my\ recipes", "'my recipes'", '"my recipes"', r"my\ recipes/recipe.yaml"]


@pytest.mark.parametrize("word", QUOTED)
@pytest.mark.parametrize("shell", [pytest.param(s, marks=needs(s)) for s in ("bash", "zsh")])
def test_target_names_come_from_paths_with_spaces(
    run: Run, shell: str, word: str, tmp_path: Path
) -> None:
    folder = script(run, shell, tmp_path)
    (folder / "my recipes").mkdir()
    (folder / "my recipes" / "recipe.yaml").write_text(RECIPE)
    words = f"mobileprep build {shlex.quote(word)} --target ''"
    if shell == "bash":
        candidates = answers(folder, "bash", "--norc", "-c", _BASH.format(words=words))
    else:
        candidates = answers(folder, "zsh", "-f", "-c", _ZSH.format(words=words))
    assert candidates - {"--"} == {"phone", "download"}


@pytest.mark.parametrize("shell", [pytest.param(s, marks=needs(s)) for s in ("bash", "fish")])
def test_schemas_and_help_topics_are_completed(run: Run, shell: str, tmp_path: Path) -> None:
    folder = script(run, shell, tmp_path)
    assert {"recipe", "report", "cache-gc"} <= completed(folder, shell, "mobileprep schema ")
    assert "recipe.yaml" not in completed(folder, shell, "mobileprep schema ")
    assert completed(folder, shell, "mobileprep schema cache-") == {
        f"cache-{action}" for action in ("clear", "gc", "info", "verify")
    }
    assert completed(folder, shell, "mobileprep help wat") == {"watch"}
    assert completed(folder, shell, "mobileprep he") >= {"header", "help"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_schemas_and_help_topics_are_in_scripts(run: Run, shell: str, tmp_path: Path) -> None:
    text = (script(run, shell, tmp_path) / "script").read_text()
    assert re.search(r"recipe benchmark cache-clear .* validate verify", text)
    assert re.search(r"benchmark build .* verify watch", text)


@needs("zsh")
def test_zsh_completes_target_names(run: Run, tmp_path: Path) -> None:
    folder = script(run, "zsh", tmp_path)
    (folder / "recipe.yaml").write_text(RECIPE)
    load = _ZSH.format(words="mobileprep build recipe.yaml --target ''")
    assert answers(folder, "zsh", "-f", "-c", load) == {"--", "phone", "download"}


@needs("zsh")
def test_zsh_loads_its_script(run: Run, tmp_path: Path) -> None:
    folder = script(run, "zsh", tmp_path)
    load = 'autoload -U compinit; compinit -u -d dump; eval "$(cat script)"; '
    load += "print $_comps[mobileprep]"
    done = subprocess.run(
        ["zsh", "-f", "-c", load], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "_shtab_mobileprep"
    text = (folder / "script").read_text()
    assert all(f"    {name}:'" in text for name in verb_names())


def test_unsupported_shell_is_refused(run: Run) -> None:
    assert run("completion", "tcsh").code == 2


def test_missing_package_is_reported_with_its_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    result = run("completion", "bash")
    assert (result.code, "pip install 'mobileprep[completion]'" in result.err) == (6, True)
