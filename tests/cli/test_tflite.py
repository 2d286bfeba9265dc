"""The verb ``tflite``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mobileprep.cli import tflite
from mobileprep.cli.main import main
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.litert.convert import MODES
from mobileprep.litert.quantizing.kernels import END_TYPES
from tests.building.stages.jobs import classifier, op
from tests.litert.graphs import const, feed, model
from tests.litert.graphs import op as node
from tests.litert.one_op import numbers
from tests.litert.test_convert import network
from tests.ops.lookup.test_tables import from_file


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "frozen.pb"
    write_graph(path, classifier())
    return path


def test_modes_match_the_converter() -> None:
    assert tflite._MODES == MODES
    assert tflite._TYPES == END_TYPES


def test_file_is_written_and_summarized(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "m.tflite"
    assert main(["tflite", f"--in_graph={graph}", "--out-file", str(target)]) == 0
    assert target.read_bytes()[4:8] == b"TFL3"
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"{target}: ")
    assert "operators" in output.err


@pytest.mark.parametrize(
    ("shapes", "message"),
    [("1,2:3", "2 shapes for"), ("a", "not a shape"), ("-2,3", "below -1")],
)
def test_invalid_shapes_are_refused(
    shapes: str, message: str, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"--in_graph={graph}", "--out_file=m.tflite", "--inputs=x"]
    assert main(["tflite", *arguments, f"--input_shapes={shapes}"]) == 2
    assert message in capsys.readouterr().err


def test_flex_delegates_unsupported_ops_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [op("y", "Erfinv", "x") if n.name == "y" else n for n in classifier()]
    write_graph(tmp_path / "odd.pb", classifier().with_nodes(nodes))
    arguments = [f"--in_graph={tmp_path / 'odd.pb'}", f"--out_file={tmp_path / 'm.tflite'}"]
    assert main(["tflite", *arguments]) == 6
    assert main(["tflite", *arguments, "--flex"]) == 0
    assert "link the Flex delegate, for Erfinv" in capsys.readouterr().err


def test_min_runtime_refuses_later_operators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [feed("x", (2, 3), DType.BOOL), const("at", np.int32([[0]]))]
    write_graph(tmp_path / "m.pb", Graph([*nodes, node("y", "GatherNd", ["x", "at"])]))
    arguments = [f"--in_graph={tmp_path / 'm.pb'}", f"--out_file={tmp_path / 'm.tflite'}"]
    assert main(["tflite", *arguments, "--min_runtime=2.16"]) == 0
    assert main(["tflite", *arguments, "--min_runtime=2.14"]) == 6
    assert "GatherNd 'y': GATHER_ND of bool[2, 3], int32[1, 1] requires" in capsys.readouterr().err
    assert main(["tflite", *arguments, "--min_runtime=new"]) == 2
    assert "expected two or three numbers, such as 2.14" in capsys.readouterr().err


def test_hints_count_operators_of_xnnpack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    nodes = [*classifier(), op("z", "Log1p", "y"), op("end", "Floor", "z")]
    write_graph(tmp_path / "m.pb", classifier().with_nodes(nodes))
    files = [f"--in_graph={tmp_path / 'm.pb'}", f"--out_file={tmp_path / 'm.tflite'}"]
    assert (
        main(["tflite", *files, "--outputs=end", "--hints", "--input_shapes=2,3", "--inputs=x"])
        == 0
    )
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("XNNPACK runs ")
    assert "of 4 operators" in err


def test_lookup_tables_are_read_from_asset_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "words.txt").write_text("yes\nno\n")
    words = from_file(Path("words.txt"), key=DType.STRING, value=DType.INT64)
    write_graph(tmp_path / "words.pb", words)
    arguments = [f"--in_graph={tmp_path / 'words.pb'}", f"--out_file={tmp_path / 'm.tflite'}"]
    assert main(["tflite", *arguments]) == 0
    err = capsys.readouterr().err
    assert "5 operators" in err
    assert err.rstrip().endswith("words to find, size")
    (tmp_path / "assets" / "words.txt").unlink()
    assert main(["tflite", *arguments]) == 6
    assert "HashTableV2 'table'" in capsys.readouterr().err


def test_blocks_are_written_read_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    monkeypatch.chdir(tmp_path)
    nodes = [feed("x", (1, 64)), const("w", numbers(64, 40)), node("y", "MatMul", ["x", "w"])]
    write_graph(Path("frozen.pb"), Graph(nodes))
    convert = ["tflite", "--in_graph=frozen.pb", "--out_file=m.tflite"]
    assert main([*convert, "--mode=int4", "--block_size=32"]) == 0
    assert main(["summarize", "m.tflite"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # 2,560 weights, 80 scales, and 40 zeros of the bias.
    assert "Constants: 2,560 int4 in blocks of 32, 80 float16, 40 float32" in lines
    assert any("5,160 FLOPs, 2,600 parameters of 1,440 bytes" in line for line in lines)
    assert main(["run", "--graph=m.tflite", "--feed=x=1", "--out=out.npz"]) == 0
    with np.load("out.npz") as results:
        total = numbers(64, 40).sum(axis=0)
        # The largest weights of a block are about 2, so a step of 2/7 has a deviation of 0.08,
        # and 64 of them have one of 0.66.
        assert np.abs(results["y"] - total).max() < 5 * 0.66


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mode=weights", "--block_size=32"], "mode weights has no blocks of weights"),
        (["--mode=int4", "--block_size=48"], "48"),
    ],
)
def test_blocks_of_other_modes_and_sizes_are_refused(
    flags: list[str], message: str, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tflite", f"--in_graph={graph}", "--out_file=m.tflite", *flags]) == 2
    assert message in capsys.readouterr().err


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
