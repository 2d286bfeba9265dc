"""Models that ``run`` and ``benchmark`` freeze automatically."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.graph.files import write_graph
from tests.cli.conftest import Run
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.saved import MODEL, W, meta, write_meta, write_saved_model

FED = "--feed=x=[10, 20, 30]"
SUM = "y: float32[3] [10.0, 21.0, 32.0]\n"


@pytest.mark.parametrize("name", ["", "saved_model.pb"])
def test_saved_model_runs_by_its_signature(run: Run, tmp_path: Path, name: str) -> None:
    model = write_saved_model(tmp_path) / name
    result = run("run", "--graph", model, "--feed=in=[10, 20, 30]")
    assert (result.code, result.out) == (0, SUM.replace("y", "y:0"))
    result = run("run", "--graph", model, "--signature=serving_default", FED, "--fetch=out")
    assert result.out == SUM.replace("y", "y:0")
    assert run("run", "--graph", model, FED, "--fetch=y").out == SUM


def test_meta_graph_runs_with_its_default_or_another_checkpoint(run: Run, tmp_path: Path) -> None:
    path = write_meta(tmp_path)
    write_bundle(tmp_path / "other", {"w": W + 1})
    result = run("run", "--graph", path, FED, f"--checkpoint={tmp_path / 'other'}", "--fetch=y")
    assert result.out == "y: float32[3] [11.0, 22.0, 33.0]\n"
    write_bundle(tmp_path / "model", {"w": W})
    assert run("run", "--graph", path, FED, "--fetch=y").out == SUM


def test_graph_with_variables_runs_with_its_checkpoint(run: Run, tmp_path: Path) -> None:
    write_graph(tmp_path / "g.pb", MODEL.graph)
    write_bundle(tmp_path / "ckpt", {"w": W})
    command = ("run", "--graph", tmp_path / "g.pb", FED, "--fetch=y")
    assert run(*command).code == 6
    assert run(*command, "--checkpoint", tmp_path / "ckpt").out == SUM


def test_outputs_are_required_without_a_signature(run: Run, tmp_path: Path) -> None:
    meta_graph = meta()
    meta_graph.signature_def.clear()
    path = write_meta(tmp_path, meta_graph)
    write_bundle(tmp_path / "model", {"w": W})
    result = run("run", "--graph", path, FED)
    assert result.code == 2
    assert "no outputs are named" in result.err
    assert "likely outputs: y" in result.err


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--signature=a", "the signature 'a' is named, and a GraphDef has none"),
        ("--saved_model_tags=a", "the tags 'a' choose within a SavedModel"),
    ],
)
def test_flags_of_other_model_kinds_are_refused(
    run: Run, tmp_path: Path, flag: str, message: str
) -> None:
    write_graph(tmp_path / "g.pb", MODEL.graph)
    result = run("run", "--graph", tmp_path / "g.pb", FED, flag)
    assert (result.code, message in result.err) == (2, True)


def test_directory_without_a_model_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("run", "--graph", tmp_path, FED)
    assert result.code == 4
    assert "has no saved_model.pb" in result.err


def test_saved_model_is_benchmarked(run: Run, tmp_path: Path) -> None:
    result = run("benchmark", "--graph", write_saved_model(tmp_path), "--num_runs=2", "--json")
    assert result.code == 0
    assert [n["name"] for n in json.loads(result.out)["nodes"]] == ["y"]
