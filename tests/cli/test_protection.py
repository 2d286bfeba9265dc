"""Recipes with ``protect``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mobileprep.core.keys import Key
from mobileprep.formats.memmapped import HEADER_BYTES, MAGIC
from mobileprep.graph.files import read_graph
from mobileprep.targets.memmapped import decrypt
from tests.cli.conftest import Run, replace_text
from tests.docs.pages import DOCS

pytest.importorskip("cryptography")

KEY = Key(bytes(range(7, 39)))
PROTECT = "    protect: {obfuscate: true, encrypt: {key: env:DIGITS_KEY}}\n"


@pytest.fixture
def protected(digits: Path) -> Path:
    """The recipe with an encrypted model for the target phone."""
    text = digits.read_text()
    assert "    quantize: weights\n" in text
    digits.write_text(text.replace("    quantize: weights\n", f"    quantize: weights\n{PROTECT}"))
    return digits


def build(run: Run, recipe: Path) -> None:
    done = run("build", recipe, "--target", "phone")
    assert done.code == 0, done.err
    assert KEY.secret.hex() not in done.out + done.err


def test_key_is_not_in_files_or_output(
    run: Run, protected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIGITS_KEY", KEY.secret.hex())
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "key-store"))
    build(run, protected)
    forms = [KEY.secret, KEY.secret.hex().encode(), KEY.secret.hex().upper().encode()]
    folders = [Path("out"), tmp_path / "key-store"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if any(form in path.read_bytes() for form in forms)]
    assert not Path("out/digits/phone/digits.pb").exists()
    data = Path("out/digits/phone/digits.pb.enc").read_bytes()
    Path("plain.pb").write_bytes(decrypt(data, KEY, "digits.pb.enc"))
    assert not any("BatchNorm" in node.name for node in read_graph(Path("plain.pb")))


def test_encryption_depends_only_on_the_key(
    run: Run, protected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Path("out/digits/phone/digits.pb.enc")
    monkeypatch.setenv("DIGITS_KEY", KEY.secret.hex())
    build(run, protected)
    first = shipped.read_bytes()
    monkeypatch.setenv("DIGITS_KEY", KEY.secret[::-1].hex())
    build(run, protected)
    assert shipped.read_bytes() != first
    monkeypatch.setenv("DIGITS_KEY", KEY.secret.hex())
    build(run, protected)
    assert shipped.read_bytes() == first


def test_missing_key_variable_is_reported(
    run: Run, protected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DIGITS_KEY", raising=False)
    done = run("build", protected)
    assert done.code == 3
    assert "the variable DIGITS_KEY, which has the key, is not set" in done.err


@pytest.mark.parametrize("written", [KEY.secret.hex(), f"'{KEY.secret.hex()}'", "env:1", "1" * 64])
def test_key_in_the_recipe_is_refused_and_not_printed(
    run: Run, protected: Path, written: str
) -> None:
    replace_text(protected, "env:DIGITS_KEY", written)
    done = run("build", protected)
    assert done.code == 3
    assert "a recipe cannot contain the key itself" in done.err
    assert written.strip("'") not in done.err.replace("env:NAME", "")


def test_encrypted_model_cannot_be_memory_mapped(run: Run, protected: Path) -> None:
    text = protected.read_text()
    protected.write_text(text.replace(PROTECT, f"    artifact: memmapped\n{PROTECT}"))
    done = run("validate", protected)
    assert done.code == 3
    assert "an encrypted model cannot be mapped into memory" in done.err


def test_encrypted_model_is_reported_by_other_verbs(
    run: Run, protected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIGITS_KEY", KEY.secret.hex())
    build(run, protected)
    done = run("compare", "out/digits/phone/digits.pb.enc", "out/digits/phone/digits.pb.enc")
    assert done.code == 4
    assert "is an encrypted model" in done.err


def test_documented_format_and_recipes_are_valid(run: Run, digits: Path) -> None:
    page = (DOCS / "how-to/protect-a-model.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d+) \| (\d+|as at 16) \|", page, re.MULTILINE)
    assert int(table[-1][0]) == HEADER_BYTES
    assert [int(at) + int(size) for at, size in table[:-1]] == [int(at) for at, _ in table[1:]]
    assert f"`{MAGIC.hex(' ').upper()}`" in page
    sections = re.findall(r"```yaml\ntargets:\n(.*?)```", page, re.DOTALL)
    assert len(sections) == 2
    text = digits.read_text()
    for section in sections:
        digits.write_text(text[: text.index("  # Packaged with the app")] + section)
        assert run("validate", digits).code == 0


def test_documented_tflite_target_builds(
    run: Run, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    monkeypatch.setenv("DIGITS_KEY", KEY.secret.hex())
    page = (DOCS / "how-to/protect-a-model.md").read_text(encoding="utf-8")
    _, section = re.findall(r"```yaml\ntargets:\n(.*?)```", page, re.DOTALL)
    text = digits.read_text()
    plain = "  plain: {platform: android, artifact: tflite}\n"
    digits.write_text(text[: text.index("  # Packaged with the app")] + section + plain)
    built = run("build", digits)
    assert built.code == 0, built.err
    assert "measured on digits.tflite.enc, decrypted (litert " in built.out
    phone = Path("out/digits/phone")
    shipped = (phone / "digits.tflite.enc").read_bytes()
    content = Path("out/digits/plain/digits.tflite").read_bytes()
    assert decrypt(shipped, KEY, "digits.tflite.enc") == content
    assert not (phone / "digits.tflite").exists()
    assert "include 'digits.tflite.enc'" in (phone / "app.gradle").read_text()
    table = re.search(r"\| language \| decrypts with .*?\n\n", page, re.DOTALL)
    assert table is not None
    written = {path.name for path in (phone / "integration").rglob("EncryptedModel.*")}
    assert written - {"EncryptedModel.h"} == set(re.findall(r"`(EncryptedModel\.\w+)`", table[0]))
