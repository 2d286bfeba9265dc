"""Registries and module discovery."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mobileprep.core.loading import (
    Author,
    Registry,
    blaming,
    import_on_demand,
    load_file,
    module_names,
)
from mobileprep.errors import AccuracyError, InternalError, UsageError


def test_entry_is_registered_under_all_its_names() -> None:
    registry: Registry[str] = Registry("thing")
    assert registry.register("b", "a")("entry") == "entry"
    assert (registry.get("a"), registry.get("b"), registry.get("c")) == ("entry", "entry", None)
    assert ("a" in registry, "c" in registry) == (True, False)


def test_names_are_sorted() -> None:
    registry: Registry[int] = Registry("thing")
    for name in ("c", "a", "b"):
        registry.register(name)(1)
    assert list(registry) == ["a", "b", "c"]
    assert len(registry) == 3


def test_duplicate_name_is_refused() -> None:
    registry: Registry[int] = Registry("op kernel")
    registry.register("Add")(1)
    with pytest.raises(InternalError, match="op kernel 'Add' is registered twice"):
        registry.register("Add")(2)
    assert registry.get("Add") == 1


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with two public modules, a private one, and a subpackage."""
    folder = tmp_path / "registry_test_package"
    (folder / "below").mkdir(parents=True)
    for name in ("__init__", "second", "first", "_private", "below/__init__"):
        (folder / f"{name}.py").write_text("LOADED = True\n")
    (folder / "notes.txt").write_text("not a module")
    monkeypatch.syspath_prepend(tmp_path)
    return folder.name


def test_public_modules_are_listed_without_import(package: str) -> None:
    assert module_names(package) == ["below", "first", "second"]
    assert f"{package}.first" not in sys.modules


def test_concurrent_imports_return_complete_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both threads import a module that has a circular import with its package."""
    folder = tmp_path / "registry_test_threads"
    folder.mkdir()
    needs = f"from {folder.name}.inner import VALUE\n"
    (folder / "__init__.py").write_text(f"import time\ntime.sleep(0.3)\n{needs}")
    (folder / "inner.py").write_text(f"from {folder.name} import leaf\nVALUE = leaf.VALUE\n")
    (folder / "leaf.py").write_text("VALUE = 1\n")
    (folder / "user.py").write_text(needs)
    monkeypatch.syspath_prepend(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        names = folder.name, f"{folder.name}.user"
        assert [module.VALUE for module in pool.map(import_on_demand, names)] == [1, 1]


AUTHOR = Author("helper", AccuracyError, "so that nothing came of it")


def test_file_is_executed_on_every_load(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    for number in (1, 2):
        path.write_text(f"x = {number}  # {'.' * number}\n")
        assert load_file(path, "own", AUTHOR).x == number


def test_changed_file_is_reloaded_despite_equal_mtime(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    for number in (1, 2):
        path.write_text(f"x = {number}\n")
        os.utime(path, (1, 1))
        assert load_file(path, "own", AUTHOR).x == number
    assert [*tmp_path.iterdir()] == [path]


def test_exception_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("\n\n1 / 0\n")
    with pytest.raises(AccuracyError, match="ZeroDivisionError: division by zero") as error:
        load_file(path, "own", AUTHOR)
    assert (error.value.where, error.value.hint) == (f"{path}:3", "fix the helper")


def test_os_exit_is_reported_as_an_error(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    message = "ended the program, so that nothing came of it"
    with pytest.raises(AccuracyError, match=message), blaming(path, AUTHOR):
        os._exit(0)
    assert os._exit.__module__ in ("nt", "posix")


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the helper .* does not exist"):
        load_file(tmp_path / "none.py", "none", AUTHOR)
