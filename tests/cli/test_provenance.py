"""``build --provenance``: statements that fit what was built, and none that does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mobileprep.core.files import sha256_file
from tests.cli.conftest import Run

STATEMENT = Path("out/digits/phone.provenance.json")


def test_a_statement_covers_every_file_and_is_the_same_again(built: Path, run: Run) -> None:
    assert run("build", built, "--provenance").code == 0
    first = STATEMENT.read_bytes()
    said = json.loads(first)
    folder = Path("out/digits/phone")
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert {s["name"] for s in said["subject"]} == files
    for subject in said["subject"]:
        assert subject["digest"]["sha256"] == sha256_file(folder / subject["name"])
    for source in said["predicate"]["buildDefinition"]["resolvedDependencies"]:
        assert source["digest"]["sha256"] == sha256_file(built.parent / source["name"])
    assert str(built.parent) not in first.decode()
    shutil.rmtree("out")
    shutil.rmtree("store")
    assert run("build", built, "--provenance").code == 0
    assert STATEMENT.read_bytes() == first
    assert run("verify", "out").code == 0


def test_the_builder_is_named_by_flag_or_environment(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def builder() -> str:
        said = json.loads(STATEMENT.read_text())
        return str(said["predicate"]["runDetails"]["builder"]["id"])

    monkeypatch.setenv("MOBILEPREP_BUILDER_ID", "https://ci.example.com/a")
    run("build", built, "--provenance")
    assert builder() == "https://ci.example.com/a"
    run("build", built, "--provenance", "--builder-id", "https://ci.example.com/b")
    assert builder() == "https://ci.example.com/b"
    for wrong in ("ci", ""):
        assert run("build", built, "--provenance", "--builder-id", wrong).code == 2
    assert run("build", built, "--builder-id", "https://ci.example.com/c").code == 0
    assert builder() == "https://ci.example.com/b"


def test_a_statement_on_what_was_there_before_goes(built: Path, run: Run) -> None:
    run("build", built, "--provenance")
    kept = STATEMENT.with_name("download.provenance.json").read_bytes()
    text = built.read_text()
    assert "    quantize: weights\n" in text
    built.write_text(text.replace("    quantize: weights\n", ""))
    assert run("build", built).code == 0
    assert not STATEMENT.exists()
    assert STATEMENT.with_name("download.provenance.json").read_bytes() == kept
    assert run("clean", built).code == 0
    assert not Path("out/digits").exists()
