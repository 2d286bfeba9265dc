"""Recipes with ``download``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Array, Tensor
from tests.building.stages.jobs import op, placeholder
from tests.cli.conftest import CommandResult, Run, replace_text

bsdiff4 = pytest.importorskip("bsdiff4")

RECIPE = """\
version: 1
name: net
source: {frozen: model.pb}
inputs: {x: {dtype: float32, shape: [-1, 64]}}
outputs: [y]
targets:
  a:
    quantize: weights
"""
DOWNLOAD = "    download: {previous: installed}\n"
FILE = "out/net/a/net.pb"


def write_model(weights: Array) -> None:
    nodes = [placeholder((-1, 64)), constant("w", Tensor.of(weights)), op("y", "MatMul", "x", "w")]
    write_graph(Path("model.pb"), Graph(nodes))


def weights(change: float = 0.0) -> Array:
    """Weights, each of which changed by up to ``change`` quantization steps."""
    old = np.random.default_rng(1).uniform(-1, 1, (64, 512))
    changes = np.random.default_rng(2).uniform(-1, 1, (64, 512)) * change * 2 / 255
    return (old + changes).astype(np.float32)


def install(run: Run, recipe: str = RECIPE, name: str = FILE) -> bytes:
    """Build the first version, and write its model to ``installed``."""
    write_model(weights())
    Path("recipe.yaml").write_text(recipe)
    result = run("build", "recipe.yaml")
    assert result.code == 0, result.err
    data = Path(name).read_bytes()
    Path("installed").write_bytes(data)
    return data


def update(run: Run, change: float = 1.0, download: str = DOWNLOAD) -> CommandResult:
    """Build a version with changed weights."""
    write_model(weights(change))
    Path("recipe.yaml").write_text(Path("recipe.yaml").read_text() + download)
    return run("build", "recipe.yaml")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ("", "net.pb"),
        ("    artifact: memmapped\n", "net.pb"),
        ("    artifact: text\n", "net.pbtxt"),
        ("    artifact: tflite\n", "net.tflite"),
    ],
)
def test_delta_makes_the_new_model_of_the_installed_one(
    workdir: Path, run: Run, settings: str, name: str
) -> None:
    old = install(run, RECIPE + settings, f"out/net/a/{name}")
    result = update(run)
    assert result.code == 0, result.err
    new = Path("out/net/a", name).read_bytes()
    delta = Path("out/net/a/download", f"{name}.delta").read_bytes()
    assert new != old
    assert bsdiff4.patch(old, delta) == new
    assert f"download {len(delta):,} bytes as a delta of {len(old):,}\n" in result.out
    report = json.loads(Path("out/net/a/report.json").read_text())
    record = {"file": f"download/{name}.delta", "bytes": len(delta), "previous_bytes": len(old)}
    assert report["download"] == record
    assert run("verify", "out", "--recipe", "recipe.yaml").code == 0


def test_alignment_makes_the_delta_smaller(workdir: Path, run: Run) -> None:
    old = install(run)
    sizes = {}
    for tolerance in ("0", "0.5", "1"):
        download = f"    download: {{previous: installed, tolerance: {tolerance}}}\n"
        Path("recipe.yaml").write_text(RECIPE)
        assert update(run, 0.6, download).code == 0
        report = json.loads(Path("out/net/a/report.json").read_text())
        sizes[tolerance] = report["download"]["bytes"]
    assert sizes["1"] < sizes["0.5"] < sizes["0"] < len(old)


def test_another_installed_model_gives_another_delta(workdir: Path, run: Run) -> None:
    install(run)
    assert update(run).code == 0
    first = Path("out/net/a/download/net.pb.delta").read_bytes()
    Path("installed").write_bytes(Path(FILE).read_bytes())
    assert run("build", "recipe.yaml").code == 0
    second = Path("out/net/a/download/net.pb.delta").read_bytes()
    assert len(second) < 200 < len(first)
    assert bsdiff4.patch(Path("installed").read_bytes(), second) == Path(FILE).read_bytes()


def test_recipes_without_it_have_no_key_in_the_report(workdir: Path, run: Run) -> None:
    install(run)
    report = json.loads(Path("out/net/a/report.json").read_text())
    assert "download" not in report
    assert "download_bytes" not in report["settings"]["budget"]
    assert not Path("out/net/a/download").exists()


def test_budget_limits_the_delta(workdir: Path, run: Run) -> None:
    install(run)
    budget = "    budget: {download_bytes: 100 KB}\n"
    result = update(run, download=DOWNLOAD + budget)
    assert result.code == 0, result.err
    assert "budget   download_bytes: " in result.out
    replace_text(Path("recipe.yaml"), "100 KB", "100 B")
    result = run("build", "recipe.yaml")
    assert result.code == 8, result.err
    assert "the download is " in result.err and "over the budget of 100" in result.err


@pytest.mark.parametrize("content", ["text", "tflite"])
def test_installed_model_of_another_kind_is_an_error(workdir: Path, run: Run, content: str) -> None:
    name = {"text": "net.pbtxt", "tflite": "net.tflite"}[content]
    install(run, f"{RECIPE}    artifact: {content}\n", f"out/net/a/{name}")
    Path("recipe.yaml").write_text(RECIPE)
    result = update(run)
    assert result.code == 4
    message = f"recipe.yaml:9:5: the installed model 'installed' is of the kind '{content}', and "
    assert f"{message}the target ships 'artifact: frozen'" in result.err


def test_missing_installed_model_is_an_error(workdir: Path, run: Run) -> None:
    write_model(weights())
    Path("recipe.yaml").write_text(RECIPE + DOWNLOAD)
    result = run("build", "recipe.yaml")
    assert (result.code, "installed does not exist" in result.err) == (4, True)


def test_missing_package_is_an_error(
    workdir: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(run)
    monkeypatch.setitem(sys.modules, "bsdiff4", None)
    result = update(run)
    assert (result.code, "pip install 'mobileprep[download]'" in result.err) == (6, True)
