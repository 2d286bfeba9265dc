"""What an installation has, and what is wrong with it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

from mobileprep.building.doctor import doctor

Installed = Callable[[dict[str, str]], None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Installed:
    """Has packages of those versions installed, of which two are needed."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.delenv("MOBILEPREP_REMOTE_CACHE", raising=False)
    needed = ["numpy>=1.24.3", "doit", 'pytest>=7; extra == "test"']

    def install(versions: dict[str, str]) -> None:
        def version(name: str) -> str:
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "requires", lambda _name: needed)
        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setattr("mobileprep.building.doctor.engine_version", lambda _name: "")

    return install


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("1.24.3", False), ("1.24.10", False), ("2.0", False), ("1.24.2", True), ("1.9", True)],
)
def test_versions_are_compared_by_their_numbers(
    installed: Installed, version: str, is_old: bool
) -> None:
    installed({"numpy": version, "doit": "0.1rc1"})
    found = doctor()
    told = (f"numpy {version} is too old: pip install 'numpy>=1.24.3'",) if is_old else ()
    assert found.problems == told
    assert [(p.name, p.version, p.oldest) for p in found.required] == [
        ("doit", "0.1rc1", ""),
        ("numpy", version, "1.24.3"),
    ]


def test_missing_package_is_a_problem_with_a_hint(installed: Installed) -> None:
    installed({"doit": "1"})
    assert doctor().problems == ("numpy is missing: pip install 'numpy>=1.24.3'",)


def test_the_store_is_measured_and_nothing_is_written(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed({"numpy": "2", "doit": "1"})
    facts = doctor().store
    assert (facts.bytes, facts.writable, facts.remote) == (0, True, None)
    assert not (tmp_path / "store").exists()
    (tmp_path / "store" / "deep").mkdir(parents=True)
    (tmp_path / "store" / "a").write_bytes(b"abc")
    (tmp_path / "store" / "deep" / "b").write_bytes(b"de")
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", "https://me:secret@host:8/x?token=secret")
    facts = doctor().store
    assert (facts.folder, facts.bytes) == (str(tmp_path / "store"), 5)
    assert facts.remote == "https://host:8/x"


def test_a_file_in_the_place_of_the_store_is_a_problem(
    installed: Installed, tmp_path: Path
) -> None:
    installed({"numpy": "2", "doit": "1"})
    (tmp_path / "store").write_text("")
    found = doctor()
    assert found.problems == (
        f"{tmp_path / 'store'} is not a directory: set MOBILEPREP_CACHE to another",
    )
    assert not found.store.writable
