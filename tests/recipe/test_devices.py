"""Devices and latency budgets of targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError, RecipeError, UsageError
from mobileprep.recipe.data import device_named
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe

HEAD = "version: 1\nname: r\nsource: {frozen: m.pb}\n"
PROFILE = "title: our gate\ngflops: 2\nsource: measured by us\nbasis: MobileNet V1 on it\n"


def loaded(folder: Path, text: str) -> Recipe:
    (folder / "r.yaml").write_text(HEAD + text)
    return load_recipe(folder / "r.yaml", environ={})


def test_device_is_a_known_name_or_a_profile_file(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/gate.yaml").write_text(PROFILE)
    recipe = loaded(
        tmp_path,
        "device: smartphone\n"
        "targets:\n"
        "  a: {budget: {latency_ms: 50}}\n"
        "  b: {device: devices/gate.yaml, budget: {latency_ms: 2.5}}\n"
        "  c: {device: null}\n",
    )
    a, b, c = recipe.targets
    assert a.device is not None and a.device.gflops == 10 and a.device_file is None
    assert b.device is not None and b.device.title == "our gate" and b.device.gflops == 2.0
    assert b.device.name == "gate" and b.device.basis == "MobileNet V1 on it"
    assert b.device_file is not None and b.device_file.path == tmp_path / "devices/gate.yaml"
    assert (a.budget.latency_ms, b.budget.latency_ms) == (50.0, 2.5)
    assert c.device is None


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("title: t\ngflops: fast\nsource: s\n", "gate.yaml:2:9: gflops: expected a number"),
        ("title: t\ngflops: 0\nsource: s\n", "gate.yaml:2:9: gflops: must be at least"),
        ("title: t\ngflops: .inf\nsource: s\n", "gate.yaml:2:9: gflops: expected a number"),
        ("title: t\ngflops: 2\n", "the key 'source' is missing"),
        (PROFILE + "cores: 8\n", "gate.yaml:5:1: cores: unknown key 'cores'"),
        ("- a\n", "mapping of keys to values"),
        (PROFILE + "x" * (1 << 20), "at most 1,048,576 bytes"),
    ],
)
def test_invalid_profile_is_reported(tmp_path: Path, profile: str, message: str) -> None:
    (tmp_path / "gate.yaml").write_text(profile)
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, "targets: {a: {device: gate.yaml}}\n")
    assert message in caught.value.message


def test_missing_device_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, "targets: {a: {device: gate.yaml}, b: {device: smartfone}}\n")
    assert "r.yaml:4:23" in caught.value.message and "gate.yaml" in caught.value.message
    assert "unknown device 'smartfone'; did you mean 'smartphone'?" in caught.value.message
    with pytest.raises(UsageError, match="unknown device 'smartfone'"):
        device_named("smartfone")
    with pytest.raises(CorruptFileError):
        device_named(str(tmp_path / "gate.yaml"))


def test_latency_needs_a_device(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="a latency needs the device") as caught:
        loaded(tmp_path, "targets: {a: {budget: {latency_ms: 5}}}\n")
    assert "device: smartphone" in caught.value.message


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ("{}", "gate.yaml:5:1: rates: needs at least"),
        ("{gpu: {gflops: 1}}", "gate.yaml:5:9: rates.gpu: unknown key 'gpu'"),
        ("{other: {gflops: 0}}", "gate.yaml:5:25: rates.other.gflops: must be at least"),
        ("{other: {gbytes: .inf}}", "gate.yaml:5:25: rates.other.gbytes: expected a number"),
        ("{other: {overhead_us: -1}}", "gate.yaml:5:30: rates.other.overhead_us: must be at least"),
        ("[other]", "gate.yaml:5:1: rates: expected a mapping"),
    ],
)
def test_invalid_rates_are_reported(tmp_path: Path, rates: str, message: str) -> None:
    (tmp_path / "gate.yaml").write_text(f"{PROFILE}rates: {rates}\n")
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, "targets: {a: {device: gate.yaml}}\n")
    assert message in caught.value.message
