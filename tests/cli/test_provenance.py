"""``build --provenance`` writes statements about the built files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mobileprep.core.files import sha256_file
from tests.cli.conftest import Run

STATEMENT = Path("out/digits/phone.provenance.json")


def test_statement_covers_all_files_and_is_reproducible(built: Path, run: Run) -> None:
    assert run("build", built, "--provenance").code == 0
    first = STATEMENT.read_bytes()
    statement = json.loads(first)
    folder = Path("out/digits/phone")
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert {s["name"] for s in statement["subject"]} == files
    for subject in statement["subject"]:
        assert subject["digest"]["sha256"] == sha256_file(folder / subject["name"])
    for source in statement["predicate"]["buildDefinition"]["resolvedDependencies"]:
        assert source["digest"]["sha256"] == sha256_file(built.parent / source["name"])
    assert str(built.parent) not in first.decode()
    shutil.rmtree("out")
    shutil.rmtree("store")
    assert run("build", built, "--provenance").code == 0
    assert STATEMENT.read_bytes() == first
    assert run("verify", "out").code == 0


def test_builder_comes_from_flag_or_environment(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def builder() -> str:
        statement = json.loads(STATEMENT.read_text())
        return str(statement["predicate"]["runDetails"]["builder"]["id"])

    monkeypatch.setenv("MOBILEPREP_BUILDER_ID", "https://ci.example.com/a")
    run("build", built, "--provenance")
    assert builder() == "https://ci.example.com/a"
    run("build", built, "--provenance", "--builder-id", "https://ci.example.com/b")
    assert builder() == "https://ci.example.com/b"
    for wrong in ("ci", ""):
        assert run("build", built, "--provenance", "--builder-id", wrong).code == 2
    assert run("build", built, "--builder-id", "https://ci.example.com/c").code == 0
    assert builder() == "https://ci.example.com/b"


def test_outdated_statement_is_removed(built: Path, run: Run) -> None:
    run("build", built, "--provenance")
    other = STATEMENT.with_name("download.provenance.json").read_bytes()
    text = built.read_text()
    assert "    quantize: weights\n" in text
    built.write_text(text.replace("    quantize: weights\n", ""))
    assert run("build", built).code == 0
    assert not STATEMENT.exists()
    assert STATEMENT.with_name("download.provenance.json").read_bytes() == other
    assert run("clean", built).code == 0
    assert not Path("out/digits").exists()
