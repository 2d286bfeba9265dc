"""Verbs that read .tflite files: summarize, run, compare, and benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mobileprep.cli.main import main
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.files import write_graph
from tests.litert.graphs import model
from tests.litert.test_convert import network


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.tflite"
    path.write_bytes(model_bytes(model(network(), ["image"], ["probabilities"])))
    return path


def test_summarize_counts_operators_and_constants(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summarize", f"--in_graph={file}", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert "LiteRT.CONV_2D" in json.dumps(out)
    assert out["gaps"] == []
    assert [(s["name"], s["dtype"]) for s in out["inputs"]] == [("image", "float32")]
    (output,) = out["outputs"]
    assert (output["name"], output["dtype"]) == ("probabilities", "float32")
    assert output["shape"] == [-1, 5]
    assert out["tensorflow"] == ""
    assert main(["summarize", f"--in_graph={file}"]) == 0
    assert "A default build of TensorFlow" not in capsys.readouterr().out


def outputs(path: Path, tmp_path: Path, *flags: str) -> dict[str, np.ndarray]:
    out = tmp_path / "out.npz"
    feed = "--feed=image=random:2,8,8,3"
    assert main(["run", f"--graph={path}", feed, f"--out={out}", *flags]) == 0
    with np.load(out) as arrays:
        return dict(arrays)


def test_run_matches_the_graph_for_all_fetches(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    graph = tmp_path / "frozen.pb"
    write_graph(graph, network())
    fetches = "--fetch=relu1,probabilities"
    expected = outputs(graph, tmp_path, fetches)
    results = outputs(file, tmp_path, fetches, "--engine=litert")
    for name in ("relu1", "probabilities"):
        np.testing.assert_allclose(results[name], expected[name], atol=1e-5)


def test_benchmark_measures_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    assert main(["benchmark", f"--graph={file}", "--max_num_runs=2"]) == 0
    assert "litert does not measure the times of nodes" in capsys.readouterr().err


def test_compare_of_equal_files_finds_no_differences(file: Path) -> None:
    assert main(["compare", str(file), str(file)]) == 0


@pytest.mark.parametrize("verb", ["summarize --in_graph", "run --graph"])
def test_damaged_file_is_refused(verb: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(file.read_bytes())
    content[0] = 0xFE
    file.write_bytes(content)
    name, flag = verb.split()
    assert main([name, f"{flag}={file}"]) == 4
    assert "leads out of the file" in capsys.readouterr().err


def test_engines_without_tflite_support_refuse_the_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", f"--graph={file}", "--feed=image=random:1,8,8,3", "--engine=openvino"]
    assert main(arguments) == 6
    assert "runs no .tflite files" in capsys.readouterr().err


def test_verbs_that_write_graphs_refuse_the_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"--in_graph={file}", "--out_graph=g.pb", "--transforms=remove_device"]
    assert main(["transform", *arguments]) == 6
    assert "is a LiteRT model (.tflite)" in capsys.readouterr().err
