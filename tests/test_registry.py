"""Registries and the discovery of modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mobileprep.errors import InternalError
from mobileprep.registry import Registry, module_names


def test_an_entry_is_found_under_every_name_of_its() -> None:
    registry: Registry[str] = Registry("thing")
    assert registry.register("b", "a")("entry") == "entry"
    assert (registry.get("a"), registry.get("b"), registry.get("c")) == ("entry", "entry", None)
    assert ("a" in registry, "c" in registry) == (True, False)


def test_names_come_sorted() -> None:
    registry: Registry[int] = Registry("thing")
    for name in ("c", "a", "b"):
        registry.register(name)(1)
    assert list(registry) == ["a", "b", "c"]
    assert len(registry) == 3


def test_a_name_is_given_once() -> None:
    registry: Registry[int] = Registry("op kernel")
    registry.register("Add")(1)
    with pytest.raises(InternalError, match="op kernel 'Add' is registered twice"):
        registry.register("Add")(2)
    assert registry.get("Add") == 1


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of two public modules, a private one and one below."""
    folder = tmp_path / "registry_test_package"
    (folder / "below").mkdir(parents=True)
    for name in ("__init__", "second", "first", "_private", "below/__init__"):
        (folder / f"{name}.py").write_text("LOADED = True\n")
    (folder / "notes.txt").write_text("no module")
    monkeypatch.syspath_prepend(tmp_path)
    return folder.name


def test_public_modules_are_listed_unimported(package: str) -> None:
    assert module_names(package) == ["below", "first", "second"]
    assert f"{package}.first" not in sys.modules
