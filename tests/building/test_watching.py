"""Waiting for changes of what a build reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mobileprep.building import watching
from mobileprep.building.watching import Watched, wait_for_change, watch_folders, watcher
from mobileprep.errors import UnsupportedError


class Told:
    """Stands for the package that tells of changes: what it tells, round by round."""

    def __init__(self, *rounds: set[object]) -> None:
        self.rounds = list(rounds)
        self.asked: list[tuple[tuple[Path, ...], dict[str, Any]]] = []

    def watch(self, *folders: Path, **options: Any) -> Iterator[set[object]]:
        self.asked.append((folders, options))
        while self.rounds:
            yield self.rounds.pop(0)


def use(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    monkeypatch.setattr(watching, "watcher", lambda: SimpleNamespace(watch=told.watch))


def stamps(*paths: Path) -> Watched:
    return Watched({path: watching._stamp(path) for path in paths})


def test_a_change_of_a_file_ends_the_wait_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").write_text("a")
    watched = stamps(tmp_path / "model", tmp_path / "gone")
    told = Told({"other"}, set())
    use(monkeypatch, told)
    wait_for_change(watched)
    assert told.rounds == [], "nothing of what is read has changed"
    ((folders, options),) = told.asked
    assert folders == (tmp_path,)
    assert options["recursive"] is False

    told.rounds = [set(), {"model"}, {"more"}]
    os.utime(tmp_path / "model", ns=(1, 1))
    wait_for_change(watched)
    assert len(told.asked) == 1, "it had changed before the wait"


@pytest.mark.parametrize("change", ["touched", "gone", "there"])
def test_change_during_the_wait_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path, new = tmp_path / "model", tmp_path / "new"
    path.write_text("a")
    watched = stamps(path, new)

    class Changing(Told):
        def watch(self, *folders: Path, **options: Any) -> Iterator[set[object]]:
            yield set()
            if change == "touched":
                os.utime(path, ns=(1, 1))
            elif change == "gone":
                path.unlink()
            else:
                new.write_text("")
            yield set()
            pytest.fail("it went on waiting")

    use(monkeypatch, Changing())
    wait_for_change(watched)


@pytest.mark.parametrize("error", [OSError("watch limit reached"), RuntimeError("no watcher")])
def test_polling_replaces_missing_notifications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    path = tmp_path / "model"
    path.write_text("a")
    watched = stamps(path)

    class Limited(Told):
        def watch(self, *folders: Path, **options: Any) -> Iterator[set[object]]:
            if not options.get("force_polling"):
                raise error
            os.utime(path, ns=(1, 1))
            yield set()
            pytest.fail("it went on waiting")

    use(monkeypatch, Limited())
    wait_for_change(watched)


def test_a_folder_that_goes_as_the_wait_begins_is_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(Told):
        def watch(self, *folders: Path, **options: Any) -> Iterator[set[object]]:
            raise FileNotFoundError(folders[0])
            yield

    use(monkeypatch, Gone())
    wait_for_change(stamps(tmp_path))


def test_below_a_broken_recipe_any_change_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "recipe.yaml").write_text("")
    before = stamps(tmp_path / "elsewhere")
    watched = watch_folders([tmp_path / "recipe.yaml"], before)
    assert set(watched.stamps) == {
        tmp_path / "elsewhere",
        tmp_path / "recipe.yaml",
        tmp_path,
        tmp_path / "deep",
    }
    assert watched.below == {tmp_path}
    told = Told(set(), {"any"}, {"more"})
    use(monkeypatch, told)
    wait_for_change(watched)
    assert told.rounds == [{"more"}]
    folders, options = told.asked[0]
    assert folders == (tmp_path, tmp_path / "deep")
    assert options["recursive"] is False
    assert watch_folders([], None) == Watched({})


def test_folders_that_cannot_be_read_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package would give up at the first."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "recipe.yaml").write_text("source: secret/model.pb\n")
    watched = watch_folders([tmp_path / "recipe.yaml"], None)
    assert tmp_path / "secret" in watched.stamps
    monkeypatch.setattr(os, "access", lambda path, _mode: path.name != "secret")
    told = Told({"any"})
    use(monkeypatch, told)
    wait_for_change(watched)
    assert told.asked[0][0] == (tmp_path,)


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(UnsupportedError) as caught:
        watcher()
    assert caught.value.hint == "pip install 'mobileprep[watch]'"
