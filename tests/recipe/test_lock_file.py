"""Reading and writing lock files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mobileprep.errors import CorruptFileError, RecipeError
from mobileprep.recipe.files import MAX_BYTES
from mobileprep.recipe.lock_file import LockFile, Pins, lock_path, lock_text, read_lock

DIGEST = "12e4" + "0" * 60
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PINS = st.builds(
    Pins,
    STRINGS,
    st.dictionaries(STRINGS, STRINGS, max_size=3),
    st.dictionaries(STRINGS, st.just(DIGEST), max_size=3),
)


def test_lock_text(tmp_path: Path) -> None:
    pins = Pins("0.1.0", {"openvino": "2025.1"}, {"model/g.pb": DIGEST, "data/b.npz": DIGEST})
    lock = LockFile(tmp_path / "mobileprep.lock", {"b.yaml": pins, "a.yaml": Pins("1", {}, {})})
    assert lock_text(lock) == (
        "# Pinned inputs of the recipes in this directory. Written by 'mobileprep lock'; "
        "check it in.\n"
        "version: 1\n"
        "recipes:\n"
        '  "a.yaml":\n'
        '    mobileprep: "1"\n'
        "    engines: {}\n"
        "    files: {}\n"
        '  "b.yaml":\n'
        '    mobileprep: "0.1.0"\n'
        "    engines:\n"
        '      "openvino": "2025.1"\n'
        "    files:\n"
        f'      "data/b.npz": "{DIGEST}"\n'
        f'      "model/g.pb": "{DIGEST}"\n'
    )


@settings(deadline=None)
@given(st.dictionaries(STRINGS, PINS, max_size=3))
def test_lock_survives_a_round_trip(recipes: dict[str, Pins]) -> None:
    lock = LockFile(Path("mobileprep.lock"), recipes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mobileprep.lock")
        path.write_bytes(lock_text(lock).encode())
        read = read_lock(path)
    assert read is not None
    assert read.recipes == recipes
    # Line numbers are not compared.
    assert read == LockFile(path, recipes)


def test_missing_and_unreadable_locks(tmp_path: Path) -> None:
    path = lock_path(tmp_path / "recipe.yaml")
    assert path == tmp_path / "mobileprep.lock"
    assert read_lock(path) is None
    path.symlink_to("nowhere")
    with pytest.raises(CorruptFileError, match="cannot be read"):
        read_lock(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: "),
        ("version: 1\n", "1:1: the key 'recipes' is missing"),
        ("version: 2\nrecipes: {}\n", "1:10: version: expected 1"),
        ("version: 1\nrecipes: {}\nmore: 1\n", "3:1: "),
        ("<<<<<<< HEAD\nversion: 1\n", "2:8: not YAML"),
        ("a: &a [*a]", "1:8: "),
        ("version: 1\nrecipes: {a: {}}\n", "the key 'engines' is missing"),
        ("version: 1\nrecipes: {a: {mobileprep: 1, engines: {}, files: {}}}", "expected text"),
        (
            'version: 1\nrecipes: {a: {mobileprep: "1", engines: {}, files: {b: "0"}}}',
            "a sha256 has 64 hexadecimal digits",
        ),
        ('version: 1\nrecipes: {a: {}, "a": {}}', "is given twice"),
    ],
)
def test_invalid_lock_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mobileprep.lock"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_lock(path)
    assert f"{path}:" in str(caught.value)
    assert message in str(caught.value)


def test_too_long_lock_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mobileprep.lock"
    path.write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(RecipeError, match="at most"):
        read_lock(path)


def test_unreadable_lock_is_not_written() -> None:
    many = {f"{number}.bin": DIGEST for number in range(6000)}
    with pytest.raises(RecipeError, match="more than"):
        lock_text(LockFile(Path("mobileprep.lock"), {"r.yaml": Pins("1", {}, many)}))
    with pytest.raises(RecipeError, match="escape code"):
        lock_text(LockFile(Path("mobileprep.lock"), {"\udc80.yaml": Pins("1", {}, {})}))
