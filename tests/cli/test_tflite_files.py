"""Verbs that take .tflite files: summarize, run, compare, benchmark."""

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


def test_summarize_counts_its_operators_and_constants(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summarize", f"--in_graph={file}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "LiteRT.CONV_2D" in json.dumps(told)
    assert told["gaps"] == []
    assert [(s["name"], s["dtype"]) for s in told["inputs"]] == [("image", "float32")]
    (output,) = told["outputs"]
    assert (output["name"], output["dtype"]) == ("probabilities", "float32")
    assert output["shape"] == [-1, 5]
    assert told["tensorflow"] == ""
    assert main(["summarize", f"--in_graph={file}"]) == 0
    assert "A default build of TensorFlow" not in capsys.readouterr().out


def outputs(path: Path, tmp_path: Path, *flags: str) -> dict[str, np.ndarray]:
    out = tmp_path / "out.npz"
    feed = "--feed=image=random:2,8,8,3"
    assert main(["run", f"--graph={path}", feed, f"--out={out}", *flags]) == 0
    with np.load(out) as found:
        return dict(found)


def test_run_answers_as_the_graph_does_for_any_tensor(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    graph = tmp_path / "frozen.pb"
    write_graph(graph, network())
    fetches = "--fetch=relu1,probabilities"
    wanted = outputs(graph, tmp_path, fetches)
    found = outputs(file, tmp_path, fetches, "--engine=litert")
    for name in ("relu1", "probabilities"):
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5)


def test_benchmark_times_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    assert main(["benchmark", f"--graph={file}", "--max_num_runs=2"]) == 0
    assert "litert does not measure the times of nodes" in capsys.readouterr().err


def test_compare_finds_nothing_in_two_that_are_one(file: Path) -> None:
    assert main(["compare", str(file), str(file)]) == 0


@pytest.mark.parametrize("verb", ["summarize --in_graph", "run --graph"])
def test_a_damaged_file_is_refused(
    verb: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray(file.read_bytes())
    content[0] = 0xFE
    file.write_bytes(content)
    name, flag = verb.split()
    assert main([name, f"{flag}={file}"]) == 4
    assert "leads out of the file" in capsys.readouterr().err


def test_engines_of_graphs_refuse_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", f"--graph={file}", "--feed=image=random:1,8,8,3", "--engine=openvino"]
    assert main(arguments) == 6
    assert "runs no .tflite files" in capsys.readouterr().err


def test_verbs_that_write_graphs_refuse_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"--in_graph={file}", "--out_graph=g.pb", "--transforms=remove_device"]
    assert main(["transform", *arguments]) == 6
    assert "is a LiteRT model (.tflite)" in capsys.readouterr().err
