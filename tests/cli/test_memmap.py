"""The verb ``memmap``, and verbs that read memory-mapped models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.cli import memmap
from mobileprep.cli.main import main
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph, read_shipped_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.targets.memmapped import MINIMUM_SIZE
from tests.building.stages.jobs import classifier, op


def graph_file(folder: Path, *more: object) -> Path:
    path = folder / "frozen.pb"
    write_graph(path, classifier().with_nodes([*classifier(), *more]))  # type: ignore[list-item]
    return path


def mapped(path: Path) -> list[str]:
    return [n.name for n in read_shipped_graph(path) if n.op == "ImmutableConst"]


def test_default_size_matches_the_original() -> None:
    assert memmap._MINIMUM_SIZE == MINIMUM_SIZE == 10_000


@pytest.mark.parametrize("name", ["memmap", "convert_graphdef_memmapped_format"])
@pytest.mark.parametrize(
    "flag",
    [
        "--min_conversion_size_in_bytes=30",
        "--min-conversion-size-in-bytes=30",
        "--min_conversion_tensor_size=30",
    ],
)
def test_original_flags_accept_hyphens(
    name: str, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = graph_file(tmp_path), tmp_path / "m.pb"
    assert main([name, f"--in_graph={source}", "--out-graph", str(target), flag]) == 0
    assert mapped(target) == ["w"]
    assert read_graph(target).nodes == read_graph(source).nodes
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"{target}: 1 constants mapped, 36 bytes\n")


@pytest.mark.parametrize("size", ["0", "-1", "x", "1.5"])
def test_invalid_sizes_are_refused(size: str, tmp_path: Path) -> None:
    source = graph_file(tmp_path)
    code = main(
        [
            "memmap",
            f"--in_graph={source}",
            "--out_graph=m.pb",
            f"--min_conversion_tensor_size={size}",
        ]
    )
    assert code == 2


def test_quantized_and_overwritten_constants_cause_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eight = constant("q", Tensor.of(np.ones(40), DType.QUINT8))
    source = graph_file(tmp_path, eight, op("twice", "Add", "w", "w"))
    target = tmp_path / "m.pb"
    arguments = ["memmap", f"--in_graph={source}", f"--out_graph={target}"]
    arguments.append("--min_conversion_size_in_bytes=30")
    assert main(arguments) == 0
    err = capsys.readouterr().err
    assert "1 constants of quantized dtypes stay in the graph" in err
    assert "the node 'twice' may write its result to the memory of the constant 'w'" in err
    assert mapped(target) == ["w"]
    assert main([*arguments, "--quantized", "--safe"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert mapped(target) == ["q"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A memory-mapped classifier."""
    target = tmp_path / "m.pb"
    arguments = [f"--in_graph={graph_file(tmp_path)}", f"--out_graph={target}"]
    assert main(["memmap", *arguments, "--min_conversion_size_in_bytes=1"]) == 0
    return target


def test_other_verbs_read_memory_mapped_models(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(model), str(tmp_path / "frozen.pb")]) == 0
    out = tmp_path / "t.pb"
    chain = "--transforms=strip_unused_nodes"
    ends = ["--inputs=x", "--outputs=y", chain]
    assert main(["transform", f"--in_graph={model}", f"--out_graph={out}", *ends]) == 0
    assert "Const" in {n.op for n in read_graph(out)}
    capsys.readouterr()
    assert main(["header", f"--graphs={model}"]) == 0
    assert 'isequal(op, "ImmutableConst")' in capsys.readouterr().out
    np.save(tmp_path / "x.npy", np.eye(3, dtype=np.float32))
    ends = ["--output_layer=y", "--input_layer=x"]
    shape = ["--input_layer_shape=1,3", "--input_layer_type=float"]
    assert main(["benchmark", f"--graph={model}", *ends, *shape, "--max_num_runs=1"]) == 0


def test_damaged_model_is_reported(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(model.read_bytes())
    data[-8:] = (1 << 50).to_bytes(8, "little")
    model.write_bytes(data)
    capsys.readouterr()
    assert main(["compare", str(model), str(model)]) == 4
    err = capsys.readouterr().err
    assert str(model) in err
    assert "refer to byte 1125899906842624" in err


def test_graph_without_constants_is_converted(tmp_path: Path) -> None:
    write_graph(tmp_path / "g.pb", Graph([classifier()["x"]]))
    files = [f"--in_graph={tmp_path / 'g.pb'}", f"--out_graph={tmp_path / 'm.pb'}"]
    assert main(["memmap", *files]) == 0
    assert [n.name for n in read_graph(tmp_path / "m.pb")] == ["x"]
