"""``mobileprep watch``, driven from outside by edits of real files."""

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
    """A process that watches."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environ = {**os.environ, "MOBILEPREP_CACHE": str(folder / "store"), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mobileprep", "watch", *arguments],
            cwd=folder,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A shell has what it starts in the background ignore Ctrl-C, and so what that starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)

    def told(self) -> str:
        """All that it says until it waits again."""
        lines: list[str] = []
        while not lines or WAITING not in lines[-1]:
            lines.append(self._lines.get(timeout=MOST_SECONDS))
        return "".join(lines)

    def is_quiet(self) -> bool:
        """Whether it says nothing for longer than a change takes to be noticed."""
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
    """Replace a file at once: on a busy machine an empty one may be seen otherwise."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@pytest.mark.slow
def test_edits_are_built_errors_told_and_ctrl_c_ends(built: Path, watching: Watching) -> None:
    assert "0 of " in watching.told()
    folder = built.parent
    model = Path("out/digits/phone/digits.pb")
    before = model.read_bytes()

    text = built.read_text()
    save(built, text.replace("quantize: weights\n", "quantize: {mode: round, num_steps: 16}\n"))
    assert "written" in watching.told()
    assert model.read_bytes() != before

    save(built, text.replace("outputs: [", "outptus: ["))
    told = watching.told()
    assert "error: " in told
    assert "did you mean 'outputs'?" in told

    shutil.copy(folder / "data" / "test.npz", folder / "data" / "other.npz")
    watching.told()
    save(built, text.replace("data/test.npz", "data/other.npz"))
    assert "written" in watching.told()
    assert model.read_bytes() == before

    (folder / "data" / "test.npz").touch()
    (folder / "README.md").write_text("no part of the build")
    assert watching.is_quiet(), "the recipe reads other data now"
    (folder / "data" / "other.npz").touch()
    assert "0 of " in watching.told()

    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait(timeout=MOST_SECONDS) == 130


class Edits:
    """Stands for the package that tells of changes: each wait makes an edit and looks once."""

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
    """Watches while edits are made; what each build told."""

    def call(arguments: tuple[object, ...], *edits: Callable[[], object]) -> list[str]:
        told_of = SimpleNamespace(watch=Edits(*edits).watch)
        monkeypatch.setattr(waiting, "watcher", lambda: told_of)
        told = run("watch", *arguments)
        assert told.code == 130, told.err
        return re.split(f".*{WAITING}\n", told.err)[:-1]

    return call


@pytest.mark.parametrize("flags", [(), ("-r",)])
def test_a_recipe_that_is_gone_for_a_moment_is_waited_for(
    built: Path, watch: Watch, flags: tuple[str, ...]
) -> None:
    aside = built.with_name("aside")
    told = watch(("digits", *flags), lambda: built.rename(aside), lambda: aside.rename(built))
    assert len(told) == 3
    assert "recipe.yaml" in told[1].partition("error: ")[2]
    assert "0 of " in told[2]


def test_a_recipe_that_comes_below_a_folder_is_noticed(built: Path, watch: Watch) -> None:
    text = built.read_text().replace("name: digits", "name: more")

    def come() -> None:
        shutil.copytree(built.parent, "digits/more")
        Path("digits/more/recipe.yaml").write_text(text)

    told = watch(("-r", "digits", "--target", "phone"), come)
    assert [step.count("out/more/phone: written") for step in told] == [0, 1]


@pytest.fixture
def child(digits: Path) -> Path:
    """A recipe that extends one outside its folder."""
    path = digits.parents[1] / "child" / "recipe.yaml"
    path.parent.mkdir()
    path.write_text("extends: ../digits/recipe.yaml\nname: child\n")
    return path


def test_a_mend_of_a_recipe_outside_is_noticed(digits: Path, child: Path, watch: Watch) -> None:
    text = digits.read_text()
    digits.write_text(f"{text}bogus: 1\n")
    told = watch((child, "--target", "phone"), lambda: save(digits, text))
    assert "bogus" in told[0]
    assert "written" in told[1]


def test_a_recipe_outside_that_comes_is_noticed(digits: Path, child: Path, watch: Watch) -> None:
    aside = digits.rename(digits.with_name("aside"))
    told = watch((child, "--target", "phone"), lambda: aside.rename(digits))
    assert "cannot be read" in told[0]
    assert "written" in told[1]


@pytest.mark.parametrize("names", ["model/graph.pbtxt", "model/model.ckpt-*", "model"])
def test_a_model_outside_that_comes_is_noticed(
    digits: Path, child: Path, watch: Watch, names: str
) -> None:
    aside = {path: path.rename(f"aside-{path.name}") for path in digits.parent.glob(names)}

    def come() -> None:
        for path, gone in aside.items():
            gone.rename(path)

    told = watch((child, "--target", "phone"), come)
    assert "error: " in told[0]
    assert "written" in told[1]


@pytest.mark.parametrize("name", ["model.ckpt-1000.index", "model.ckpt-1000.data-00001-of-00002"])
def test_a_file_of_a_checkpoint_that_comes_back_is_noticed(
    built: Path, watch: Watch, name: str
) -> None:
    path, aside = built.parent / "model" / name, built.with_name("aside")
    told = watch(("digits",), lambda: path.rename(aside), lambda: aside.rename(path))
    assert "error: " in told[1]
    assert "0 of " in told[2]


def test_a_lock_counts_where_the_build_goes_by_it(built: Path, run: Run, watch: Watch) -> None:
    assert run("lock", "digits").code == 0
    path = built.with_name("mobileprep.lock")
    text = path.read_text()
    digest = text.split("graph.pbtxt")[1].split('"')[2]
    told = watch(
        ("digits", "--locked"),
        lambda: save(path, text.replace(digest, "0" * 64)),
        lambda: save(path, text),
    )
    assert ["error: " in step for step in told] == [False, True, False]


def test_a_recipe_that_is_overridden_as_a_whole_counts(built: Path, watch: Watch) -> None:
    base = built.with_name("base.yaml")
    base.write_text("name: base\n")
    built.write_text(f"extends: base.yaml\n{built.read_text()}")
    told = watch(("digits",), lambda: save(base, "name: base\nbogus: 1\n"))
    assert "bogus" in told[1]


def test_a_recipe_that_is_edited_while_it_is_read_is_watched_as_it_is_then(
    built: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = shutil.copy(built.parent / "data" / "test.npz", built.parent / "data" / "other.npz")
    text, whole = built.read_text(), waiting.plan_recipes

    def edited(*arguments: Any) -> Any:
        built.write_text(text.replace("data/test.npz", "data/other.npz"))
        return whole(*arguments)

    monkeypatch.setattr(waiting, "plan_recipes", edited)
    told = watch(("digits",), lambda: os.utime(other, (1, 1)))
    assert len(told) == 3, "it was planned again, and then the other data watched"


def test_a_change_before_the_wait_begins_is_not_lost(digits: Path) -> None:
    watched = watch_inputs([load_recipe(digits)])
    assert digits.resolve() in {path.resolve() for path in watched.stamps}
    os.utime(digits, (1, 1))
    wait_for_change(watched)


def test_what_is_gone_is_a_change(digits: Path) -> None:
    watched = watch_folders([digits], None)
    digits.unlink()
    wait_for_change(watched)


@pytest.mark.parametrize("flag", ["--dry-run", "--exit-code", "--json"])
def test_flags_of_builds_that_end_are_refused(digits: Path, run: Run, flag: str) -> None:
    told = run("watch", digits, flag)
    assert told.code == 2
    assert f"{flag} is not an option of watch" in told.err


def test_a_wrong_command_line_ends_at_once(digits: Path, run: Run) -> None:
    assert run("watch", digits, "--target", "phnoe").code == 2
    assert run("watch", digits.parent / "model").code == 2


def test_without_the_package_its_extra_is_named(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    told = run("watch", digits)
    assert (told.code, "pip install 'mobileprep[watch]'" in told.err) == (6, True)
