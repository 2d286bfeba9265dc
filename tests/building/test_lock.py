"""Pins from Python: what is compared, and the names that are the same on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.builder import prepared
from mobileprep.building.lock import check_locks, lock, lock_warnings, write_locks
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.lock_file import read_lock
from tests.cli.conftest import digits

__all__ = ["digits"]


def test_a_lock_is_written_once_and_fits(digits: Path) -> None:
    recipe = load_recipe(digits)
    path = digits.parent / "mobileprep.lock"
    assert [(one.path, one.is_changed) for one in write_locks([recipe])] == [(path, True)]
    assert [one.is_changed for one in write_locks([recipe])] == [False]
    state = prepared([recipe], Path("out"))
    check_locks([recipe], state, whole=True)
    assert list(lock_warnings([recipe], state, whole=True)) == []
    path.write_text(path.read_text().replace("data/test.npz", "data/old.npz"))
    with pytest.raises(CorruptFileError) as caught:
        check_locks([recipe], state, whole=True)
    assert len(caught.value.message.splitlines()) == 2
    (warning,) = lock_warnings([recipe], state, whole=True)
    assert "and 1 more" in warning
    path.unlink()
    assert list(lock_warnings([recipe], state, whole=True)) == []
    with pytest.raises(CorruptFileError, match="does not exist"):
        check_locks([recipe], state, whole=False)


def test_a_lock_of_other_recipes_warns_of_nothing(digits: Path) -> None:
    write_locks([load_recipe(digits)])
    other = digits.with_name("other.yaml")
    other.write_text(digits.read_text().replace("name: digits", "name: other"))
    recipe = load_recipe(other)
    state = prepared([recipe], Path("out"))
    assert list(lock_warnings([recipe], state, whole=True)) == []
    with pytest.raises(CorruptFileError, match="is not pinned"):
        check_locks([recipe], state, whole=True)


def test_recipe_files_are_locked(digits: Path) -> None:
    path = digits.parent / "mobileprep.lock"
    assert [(one.path, one.is_changed) for one in lock(digits)] == [(path, True)]
    assert [one.is_changed for one in lock([load_recipe(digits)])] == [False]
    with pytest.raises(UsageError, match="both named"):
        lock([digits, str(digits)])


def test_absolute_paths_with_equal_names_are_distinguished(digits: Path, tmp_path: Path) -> None:
    found = []
    for place in ("a", "z"):
        other = tmp_path / place / "graph.pbtxt"
        other.parent.mkdir()
        other.write_bytes((digits.parent / "model" / "graph.pbtxt").read_bytes())
        data = tmp_path / f"more-{place}" / "graph.pbtxt"
        data.parent.mkdir()
        data.write_bytes((digits.parent / "data" / "test.npz").read_bytes())
        text = digits.read_text().replace("model/graph.pbtxt", str(other))
        digits.with_name(f"{place}.yaml").write_text(text.replace("data/test.npz", str(data)))
        write_locks([load_recipe(digits.with_name(f"{place}.yaml"))])
        pinned = read_lock(digits.parent / "mobileprep.lock")
        assert pinned is not None
        found.append(pinned.recipes[f"{place}.yaml"].files)
    assert {"*/graph.pbtxt", "*/graph.pbtxt #2"} < found[0].keys()
    assert found[0] == found[1]
