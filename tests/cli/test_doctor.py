"""``mobileprep doctor``."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import re
from pathlib import Path

import pytest

from mobileprep import __version__
from tests.cli.conftest import Run

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
REQUIRES = ["numpy>=1.24", "doit>=0.36", 'pytest>=7; extra == "test"']


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "none" / "store"))
    monkeypatch.setattr(importlib.metadata, "requires", lambda _name: REQUIRES)
    return tmp_path


def test_healthy_machine_has_no_problems(run: Run, store: Path) -> None:
    result = run("doctor")
    assert result.code == 0
    assert f"mobileprep         {__version__}" in result.out
    assert f"numpy              {importlib.metadata.version('numpy')}" in result.out
    assert str(store / "none" / "store") in result.out
    assert "problem" not in result.out
    assert "\npytest " not in result.out
    assert not (store / "none").exists(), "looking leaves nothing behind"


def test_optional_engines_are_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mobileprep.building.doctor.engine_version",
        lambda name: "9.1" if name == "openvino" else "",
    )
    result = run("doctor")
    assert result.code == 0
    assert "engine openvino    9.1" in result.out
    assert "engine tensorflow  not installed" in result.out


@pytest.mark.parametrize("version", ["11.3", None])
def test_optional_packages_are_listed_with_their_use(
    run: Run, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    real_version = importlib.metadata.version

    def versions(name: str) -> str:
        if name != "pillow":
            return real_version(name)
        if version is None:
            raise importlib.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(importlib.metadata, "version", versions)
    result = run("doctor")
    assert result.code == 0
    use = "for images as inputs, and ops that decode them"
    if version is None:
        expected = f"pillow             not installed  ({use}; pip install 'mobileprep[image]')"
    else:
        expected = f"pillow             11.3  ({use})"
    assert f"\n{expected}\n" in result.out
    facts = json.loads(run("doctor", "--json").out)
    features = {feature["package"]: feature for feature in facts["features"]}
    assert features["pillow"]["version"] == version
    assert features["pillow"]["install"] == "pip install 'mobileprep[image]'"
    extras = PROJECT.read_text().partition("[project.optional-dependencies]")[2].partition("test =")
    added = set(re.findall(r'"([\w-]+)>=', extras[0]))
    # fsspec and the package of the engine litert are not separate features.
    assert {"pillow"} <= added - {"fsspec", "ai-edge-litert"}
    assert added - {"fsspec", "ai-edge-litert"} <= {n.removeprefix("engine ") for n in features}
    assert features["engine litert"]["install"] == "pip install 'mobileprep[litert]'"


def test_json_lists_packages_and_cache(run: Run) -> None:
    result = run("doctor", "--json")
    facts = json.loads(result.out)
    assert (facts["mobileprep"], facts["problems"]) == (__version__, [])
    assert facts["store"]["free_bytes"] > 0
    assert {p["name"]: p["version"] for p in facts["required"]} == {
        name: importlib.metadata.version(name) for name in ("numpy", "doit")
    }


def test_cache_size_and_remote_are_printed(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = store / "none" / "store" / "cas" / "ab"
    entries.mkdir(parents=True)
    (entries / "abc").write_bytes(b"1234567")
    remote = "https://me:secret@cache.example.com:8080/builds?token=secret"
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", remote)
    result = run("doctor")
    assert "store size         7 bytes, " in result.out
    assert "remote store       https://cache.example.com:8080/builds\n" in result.out
    facts = json.loads(run("doctor", "--json").out)["store"]
    assert (facts["bytes"], facts["writable"]) == (7, True)
    assert "secret" not in json.dumps(facts)


def test_missing_package_is_a_problem(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [*REQUIRES, "no-such-package>=1.5"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _name: listed)
    result = run("doctor")
    assert result.code == 9
    assert "no-such-package    missing" in result.out
    assert "problem: no-such-package is missing: pip install 'no-such-package>=1.5'" in result.out


def test_outdated_package_is_a_problem(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _name: ["numpy>=99.10"])
    result = run("doctor")
    assert result.code == 9
    assert "is too old: pip install 'numpy>=99.10'" in result.out


def test_checkout_without_metadata_has_no_requirements(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "requires", refuse)
    assert run("doctor").code == 0


def test_file_in_place_of_the_cache_is_a_problem(run: Run, store: Path) -> None:
    (store / "none").write_text("in the way")
    result = run("doctor")
    assert result.code == 9
    assert "is not a directory: set MOBILEPREP_CACHE to another" in result.out


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MOBILEPREP_CACHE_MAX", "bogus"),
        ("MOBILEPREP_REMOTE_CACHE", "bogus://x"),
        ("MOBILEPREP_REMOTE_CACHE", "https://[x"),
        ("MOBILEPREP_REMOTE_CACHE_MODE", "often"),
    ],
)
def test_invalid_environment_variable_is_a_problem(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    result = run("doctor")
    assert result.code == 9
    assert f"problem: {variable}: " in result.out


def test_remote_cache_without_its_package_is_a_problem(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mobileprep.building.pipeline.remote.guarded.find_spec", lambda _name: None)
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", "s3://bucket/prefix")
    result = run("doctor")
    assert result.code == 9
    assert "pip install 'mobileprep[s3]'" in result.out.partition("problem: ")[2]


@pytest.mark.parametrize("exists", [True, False])
def test_read_only_cache_is_a_problem(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    folder = store / "none" / "store"
    if exists:
        folder.mkdir(parents=True)

    def refuse(path: object, *_arguments: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    result = run("doctor")
    assert result.code == 9
    assert "cannot be written (Read-only file system): set MOBILEPREP_CACHE to" in result.out


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
def test_cache_in_proc_is_a_problem(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", "/proc/nope")
    result = run("doctor")
    assert result.code == 9
    assert "problem: /proc cannot be written (" in result.out


@pytest.mark.parametrize("way", ["none", "none/store", "none/store/v2"])
def test_dangling_symlink_in_place_of_the_cache_is_a_problem(
    run: Run, store: Path, way: str
) -> None:
    (store / way).parent.mkdir(parents=True, exist_ok=True)
    (store / way).symlink_to("nowhere")
    result = run("doctor")
    assert result.code == 9
    assert f"problem: {store / way} is not a directory: " in result.out


def test_existing_cache_is_not_changed(run: Run, store: Path) -> None:
    folder = store / "none" / "store" / "v2"
    folder.mkdir(parents=True)
    assert run("doctor").code == 0
    assert sorted(store.rglob("*")) == [store / "none", store / "none" / "store", folder]


def test_relative_cache_path_is_accepted(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store)
    monkeypatch.setenv("MOBILEPREP_CACHE", "deep/er/store")
    assert run("doctor").code == 0
