"""``mobileprep watch`` with edits of real files."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mobileprep.building import watching as waiting
from mobileprep.building.watching import wait_for_change, watch_folders, watch_inputs
from mobileprep.recipe.load import load_recipe
from tests.cli.conftest import Run

WAITING = "press Ctrl-C to stop"
MOST_SECONDS = 30


class Watching:
    """A ``watch`` process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environ = {**os.environ, "MOBILEPREP_CACHE": str(folder / "store"), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mobileprep", "watch", *arguments],
            cwd=folder,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Background processes of a shell, and their child processes, ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)

    def output(self) -> str:
        """Read output until the process waits again."""
        lines: list[str] = []
        while not lines or WAITING not in lines[-1]:
            lines.append(self._lines.get(timeout=MOST_SECONDS))
        return "".join(lines)

    def is_quiet(self) -> bool:
        """Whether the process prints nothing for longer than it takes to detect a change."""
        try:
            self._lines.get(timeout=2.5)
        except queue.Empty:
            return True
        return False


@pytest.fixture
def watching(built: Path) -> Iterator[Watching]:
    started = Watching(built.parents[1], "digits", "--target", "phone")
    yield started
    started.process.kill()
    started.process.wait()
    started.reader.join()
    assert started.process.stderr is not None
    started.process.stderr.close()


def save(path: Path, text: str) -> None:
    """Replace a file atomically, so that the process never reads an empty one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@pytest.mark.slow
def test_edits_are_built_and_ctrl_c_ends(built: Path, watching: Watching) -> None:
    assert "0 of " in watching.output()
    folder = built.parent
    model = Path("out/digits/phone/digits.pb")
    before = model.read_bytes()

    text = built.read_text()
    save(built, text.replace("quantize: weights\n", "quantize: {mode: round, num_steps: 16}\n"))
    assert "written" in watching.output()
    assert model.read_bytes() != before

    save(built, text.replace("outputs: [", "outptus: ["))
    err = watching.output()
    assert "error: " in err
    assert "did you mean 'outputs'?" in err

    shutil.copy(folder / "data" / "test.npz", folder / "data" / "other.npz")
    watching.output()
    save(built, text.replace("data/test.npz", "data/other.npz"))
    assert "written" in watching.output()
    assert model.read_bytes() == before

    (folder / "data" / "test.npz").touch()
    (folder / "README.md").write_text("no part of the build")
    assert watching.is_quiet(), "the recipe reads other data now"
    (folder / "data" / "other.npz").touch()
    assert "0 of " in watching.output()

    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait(timeout=MOST_SECONDS) == 130


class Edits:
    """A fake of the package watchfiles: each wait makes an edit and yields once."""

    def __init__(self, *edits: Callable[[], object]) -> None:
        self.edits = list(edits)

    def watch(self, *_folders: Path, **_options: Any) -> Iterator[set[object]]:
        if not self.edits:
            raise KeyboardInterrupt
        self.edits.pop(0)()
        yield set()
        pytest.fail("the edit was not noticed")


Watch = Callable[..., list[str]]


@pytest.fixture
def watch(run: Run, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Run ``watch`` during edits, and return the output of each build."""

    def call(arguments: tuple[object, ...], *edits: Callable[[], object]) -> list[str]:
        watcher = SimpleNamespace(watch=Edits(*edits).watch)
        monkeypatch.setattr(waiting, "watcher", lambda: watcher)
        result = run("watch", *arguments)
        assert result.code == 130, result.err
        return re.split(f".*{WAITING}\n", result.err)[:-1]

    return call


@pytest.mark.parametrize("flags", [(), ("-r",)])
def test_temporarily_missing_recipe_is_awaited(
    built: Path, watch: Watch, flags: tuple[str, ...]
) -> None:
    aside = built.with_name("aside")
    err = watch(("digits", *flags), lambda: built.rename(aside), lambda: aside.rename(built))
    assert len(err) == 3
    assert "recipe.yaml" in err[1].partition("error: ")[2]
    assert "0 of " in err[2]


def test_new_recipe_in_a_subdirectory_is_built(built: Path, watch: Watch) -> None:
    text = built.read_text().replace("name: digits", "name: more")

    def come() -> None:
        shutil.copytree(built.parent, "digits/more")
        Path("digits/more/recipe.yaml").write_text(text)

    err = watch(("-r", "digits", "--target", "phone"), come)
    assert [step.count("out/more/phone: written") for step in err] == [0, 1]


@pytest.fixture
def child(digits: Path) -> Path:
    """A recipe that extends one outside its folder."""
    path = digits.parents[1] / "child" / "recipe.yaml"
    path.parent.mkdir()
    path.write_text("extends: ../digits/recipe.yaml\nname: child\n")
    return path


def test_fixed_base_recipe_is_built(digits: Path, child: Path, watch: Watch) -> None:
    text = digits.read_text()
    digits.write_text(f"{text}bogus: 1\n")
    err = watch((child, "--target", "phone"), lambda: save(digits, text))
    assert "bogus" in err[0]
    assert "written" in err[1]


def test_restored_base_recipe_is_built(digits: Path, child: Path, watch: Watch) -> None:
    aside = digits.rename(digits.with_name("aside"))
    err = watch((child, "--target", "phone"), lambda: aside.rename(digits))
    assert "cannot be read" in err[0]
    assert "written" in err[1]


@pytest.mark.parametrize("names", ["model/graph.pbtxt", "model/model.ckpt-*", "model"])
def test_restored_model_of_a_base_recipe_is_built(
    digits: Path, child: Path, watch: Watch, names: str
) -> None:
    aside = {path: path.rename(f"aside-{path.name}") for path in digits.parent.glob(names)}

    def come() -> None:
        for path, gone in aside.items():
            gone.rename(path)

    err = watch((child, "--target", "phone"), come)
    assert "error: " in err[0]
    assert "written" in err[1]


@pytest.mark.parametrize("name", ["model.ckpt-1000.index", "model.ckpt-1000.data-00001-of-00002"])
def test_restored_checkpoint_file_is_built(built: Path, watch: Watch, name: str) -> None:
    path, aside = built.parent / "model" / name, built.with_name("aside")
    err = watch(("digits",), lambda: path.rename(aside), lambda: aside.rename(path))
    assert "error: " in err[1]
    assert "0 of " in err[2]


def test_lock_file_is_watched_for_locked_builds(built: Path, run: Run, watch: Watch) -> None:
    assert run("lock", "digits").code == 0
    path = built.with_name("mobileprep.lock")
    text = path.read_text()
    digest = text.split("graph.pbtxt")[1].split('"')[2]
    err = watch(
        ("digits", "--locked"),
        lambda: save(path, text.replace(digest, "0" * 64)),
        lambda: save(path, text),
    )
    assert ["error: " in step for step in err] == [False, True, False]


def test_overridden_base_recipe_is_watched(built: Path, watch: Watch) -> None:
    base = built.with_name("base.yaml")
    base.write_text("name: base\n")
    built.write_text(f"extends: base.yaml\n{built.read_text()}")
    err = watch(("digits",), lambda: save(base, "name: base\nbogus: 1\n"))
    assert "bogus" in err[1]


def test_recipe_edited_during_planning_is_planned_again(
    built: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = shutil.copy(built.parent / "data" / "test.npz", built.parent / "data" / "other.npz")
    text, whole = built.read_text(), waiting.plan_recipes

    def edited(*arguments: Any) -> Any:
        built.write_text(text.replace("data/test.npz", "data/other.npz"))
        return whole(*arguments)

    monkeypatch.setattr(waiting, "plan_recipes", edited)
    err = watch(("digits",), lambda: os.utime(other, (1, 1)))
    assert len(err) == 3, "it was planned again, and then the other data watched"


def test_change_before_the_wait_is_detected(digits: Path) -> None:
    watched = watch_inputs([load_recipe(digits)])
    assert digits.resolve() in {path.resolve() for path in watched.stamps}
    os.utime(digits, (1, 1))
    wait_for_change(watched)


def test_deleted_file_is_a_change(digits: Path) -> None:
    watched = watch_folders([digits], None)
    digits.unlink()
    wait_for_change(watched)


@pytest.mark.parametrize("flag", ["--dry-run", "--exit-code", "--json"])
def test_flags_of_single_builds_are_refused(digits: Path, run: Run, flag: str) -> None:
    result = run("watch", digits, flag)
    assert result.code == 2
    assert f"{flag} is not an option of watch" in result.err


def test_invalid_arguments_are_refused(digits: Path, run: Run) -> None:
    assert run("watch", digits, "--target", "phnoe").code == 2
    assert run("watch", digits.parent / "model").code == 2


def test_missing_package_is_reported_with_its_extra(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    result = run("watch", digits)
    assert (result.code, "pip install 'mobileprep[watch]'" in result.err) == (6, True)
