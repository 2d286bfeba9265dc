"""The verb ``lock``, and builds with ``--locked``."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import pytest

import mobileprep
from mobileprep.building.plan import engines
from mobileprep.core.files import sha256_file
from tests.cli.conftest import Run

LOCK = Path("digits/mobileprep.lock")

PLUGIN = '''
from mobileprep.plugin import Context, Graph, Result, Transform, transform
@transform("nothing")
class Nothing(Transform, frozen=True):
    """Does nothing."""

    summary = "Does nothing."

    def apply(self, graph: Graph, context: Context) -> Result:
        return Result(graph)
'''


@pytest.fixture
def locked(built: Path, run: Run) -> Path:
    """The digits recipe, built and locked."""
    result = run("lock", built)
    assert (result.code, result.out) == (0, "")
    assert result.err == f"{built.parent / 'mobileprep.lock'}: written\n"
    return built


def test_lock_pins_all_files(locked: Path, run: Run) -> None:
    text = LOCK.read_text()
    for name in ("data/test.npz", "model/graph.pbtxt", "model/model.ckpt-1000.index"):
        assert f'      "{name}": "{sha256_file(locked.parent / name)}"\n' in text
    assert str(locked.parent) not in text
    assert f'mobileprep: "{mobileprep.__version__}"' in text
    assert run("build", locked, "--locked").code == 0
    assert run("build", locked, "--locked", "--dry-run", "--target", "phone").code == 0
    assert run("lock", locked).err.endswith("mobileprep.lock: up to date\n")
    assert LOCK.read_text() == text


def test_changed_source_is_refused_or_causes_a_warning(locked: Path, run: Run) -> None:
    graph = locked.parent / "model" / "graph.pbtxt"
    pinned = sha256_file(graph)
    graph.write_bytes(graph.read_bytes() + b"\n")
    line = next(n for n, t in enumerate(LOCK.read_text().splitlines(), 1) if "graph.pbtxt" in t)
    result = run("build", locked, "--locked")
    assert result.code == 4
    assert f"mobileprep.lock:{line}:" in result.err
    assert f"'model/graph.pbtxt' has the sha256 {sha256_file(graph)}" in result.err
    assert f"and {pinned} is pinned" in result.err
    assert f"help: restore the pinned input, or run 'mobileprep lock {locked}'" in result.err
    result = run("build", locked, "--dry-run")
    assert result.code == 0
    assert "warning: mobileprep.lock does not fit: " in result.err
    assert run("lock", locked).err.endswith("written\n")
    result = run("build", locked, "--locked", "--dry-run")
    assert result.code == 0
    assert "warning" not in result.err


def test_all_differences_are_reported(locked: Path, run: Run) -> None:
    text = LOCK.read_text()
    text = text.replace(f'"{mobileprep.__version__}"', '"0.0.9"')
    text = text.replace("engines: {}", 'engines:\n      "openvino": "2025.1"')
    text = text.replace('"data/test.npz"', '"data/other.npz"')
    LOCK.write_text(text)
    result = run("build", locked, "--locked")
    assert result.code == 4
    assert f"this is mobileprep {mobileprep.__version__}, and '0.0.9' is pinned" in result.err
    assert "'openvino' is pinned, and not used" in result.err
    assert "'data/other.npz' is pinned, and not used" in result.err
    assert "'data/test.npz' is not pinned, and has the sha256 " in result.err
    assert "and 3 more" in run("build", locked, "--dry-run").err
    # Other targets may use pinned inputs.
    result = run("build", locked, "--locked", "--target", "phone")
    assert "not used" not in result.err


def test_other_library_version_is_refused(locked: Path, run: Run) -> None:
    text = LOCK.read_text()
    assert f'"numpy": "{metadata.version("numpy")}"' in text
    LOCK.write_text(
        text.replace(f'"protobuf": "{metadata.version("protobuf")}"', '"protobuf": "1"')
    )
    result = run("build", locked, "--locked", "--dry-run")
    assert result.code == 4
    assert (
        f"'protobuf' has the version {metadata.version('protobuf')}, and 1 is pinned" in result.err
    )
    # Older lock files have no libraries section.
    begin, end = text.index("    libraries:"), text.index("    engines:")
    LOCK.write_text(text[:begin] + text[end:])
    assert run("build", locked, "--locked", "--dry-run").code == 0


def test_other_engine_version_is_refused(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "engine_version", lambda name: "1" if name == "openvino" else "")
    digits.write_text(digits.read_text() + "engine: openvino\n")
    assert run("lock", digits).code == 0
    assert '"openvino": "1"' in LOCK.read_text()
    monkeypatch.setattr(engines, "engine_version", lambda name: "2" if name == "openvino" else "")
    result = run("build", digits, "--locked", "--dry-run")
    assert result.code == 4
    assert "'openvino' has the version 2, and 1 is pinned" in result.err


def test_transform_code_is_pinned(digits: Path, run: Run) -> None:
    plugin = digits.parent / "nothing.py"
    plugin.write_text(PLUGIN)
    plugin.with_suffix(".json").write_text(
        '{"type": "object", "additionalProperties": false, "properties": {}}'
    )
    text = digits.read_text().replace("transforms:\n", "transforms:\n  - nothing\n", 1)
    digits.write_text(f"plugins: [nothing.py]\n{text}")
    result = run("lock", digits)
    assert result.code == 0, result.err
    assert run("build", digits, "--locked", "--dry-run").code == 0
    plugin.write_text(PLUGIN + "# edited\n")
    result = run("build", digits, "--locked", "--dry-run")
    assert result.code == 4
    assert "'nothing.py' has the sha256 " in result.err


def test_missing_lock_file_fails_only_locked_builds(built: Path, run: Run) -> None:
    result = run("build", built, "--locked")
    assert result.code == 4
    assert f"{built.parent / 'mobileprep.lock'} does not exist" in result.err
    assert f"'mobileprep lock {built}'" in result.err
    assert "warning" not in run("build", built).err


def test_recipes_in_one_directory_have_separate_sections(locked: Path, run: Run) -> None:
    other = locked.with_name("other.yaml")
    other.write_text(locked.read_text().replace("name: digits", "name: other"))
    result = run("build", other, "--locked", "--dry-run")
    assert result.code == 4
    assert "'other.yaml' is not pinned" in result.err
    alone = LOCK.read_text()
    assert run("lock", other).code == 0
    assert LOCK.read_text().startswith(alone.rpartition('  "recipe.yaml"')[0])
    assert run("build", locked, other, "--locked", "--dry-run").code == 0
    other.unlink()
    assert run("lock", locked).code == 0
    assert LOCK.read_text() == alone


def test_paths_with_variables_are_pinned_without_prefix(
    digits: Path, run: Run, tmp_path: Path
) -> None:
    for name in ("here", "there"):
        shutil.copytree(digits.parent / "model", tmp_path / name)
    text = digits.read_text()
    text = text.replace("model/graph.pbtxt", "${MODELS}/graph.pbtxt")
    digits.write_text(text.replace("model/model.ckpt-1000", "${MODELS}/model.ckpt-1000"))
    assert run("lock", digits, "--set", f"MODELS={tmp_path / 'here'}").code == 0
    assert str(tmp_path) not in LOCK.read_text()
    assert '"*/graph.pbtxt"' in LOCK.read_text()
    flags = ("--locked", "--dry-run", "--set", f"MODELS={tmp_path / 'there'}")
    assert run("build", digits, *flags).code == 0
    (tmp_path / "there" / "graph.pbtxt").write_text("")
    assert run("build", digits, *flags).code == 4


@pytest.mark.parametrize("name", ["/", ".", "..", "", "data/test.npz", "a\\0b", "n" * 300])
def test_section_without_a_recipe_file_is_removed(locked: Path, run: Run, name: str) -> None:
    whole = LOCK.read_text()
    section = whole.partition("recipes:\n")[2].replace('"recipe.yaml"', f'"{name}"')
    LOCK.write_text(whole + section)
    result = run("lock", locked)
    assert (result.code, result.err.rpartition(": ")[2]) == (0, "written\n")
    assert LOCK.read_text() == whole


def test_invalid_lock_file_is_reported_with_its_location(locked: Path, run: Run) -> None:
    LOCK.write_text("<<<<<<< HEAD\nversion: 1\n")
    for command in (["build", locked], ["build", locked, "--locked"], ["lock", locked]):
        result = run(*command)
        assert result.code == 3
        assert "mobileprep.lock:2:8: not YAML" in result.err
    assert "help: remove it to have a new one written" in result.err


def test_locked_build_from_python(locked: Path) -> None:
    assert mobileprep.build(locked, locked=True).ran == ()
    LOCK.unlink()
    with pytest.raises(mobileprep.CorruptFileError, match="does not exist"):
        mobileprep.build(locked, locked=True)
