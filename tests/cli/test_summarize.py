"""``mobileprep summarize``: the original lines and additional details."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.freezing import guess
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import IMMUTABLE, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.ops.shape_inference import Shapes, infer_shapes
from mobileprep.runtime.accounting import costs
from tests.cli.conftest import Run
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.saved import W, write_meta, write_saved_model
from tests.inspection.test_loops import counted
from tests.transforms.graphs import const, conv, node, placeholder


def network() -> Graph:
    x = placeholder().with_attrs(shape=attr.shape((-1, 4, 4, 1)))
    return Graph(
        [
            x,
            const("layer/w", np.ones((3, 3, 1, 2))),
            conv("layer/conv", "x layer/w"),
            const("layer/b", [1.5, -2]),
            node("layer/bias", "BiasAdd", "layer/conv layer/b"),
            node("start", "NoOp", T=None),
            node("out", "Relu", "layer/bias ^start"),
        ]
    )


@pytest.fixture(autouse=True)
def _here(workdir: Path) -> None:
    write_graph(Path("g.pb"), network())


ONES = "[[[1 1]][[1...]]]..."
TOOL = "tensorflow/tools/benchmark:benchmark_model"
BAZEL = f"bazel run {TOOL} -- --graph=g.pb --show_flops --input_layer=x "
LINES = [
    "Found 1 possible inputs: (name=x, type=float(1), shape=[?,4,4,1]) ",
    "No variables spotted.",
    "Found 1 possible outputs: (name=out, op=Relu) ",
    "Found 20 (20) const parameters, 0 (0) variable parameters, and 1 control_edges",
    "Op types used: 2 Const, 1 BiasAdd, 1 Conv2D, 1 NoOp, 1 Placeholder, 1 Relu",
    "To use with tensorflow/tools/benchmark:benchmark_model try these arguments:",
    f"{BAZEL}--input_layer_type=float --input_layer_shape=-1,4,4,1 --output_layer=out",
]


@pytest.mark.parametrize(
    "command",
    [
        ["summarize_graph", "--in_graph=g.pb"],
        ["summarize_graph", "--in-graph", "g.pb"],
        ["summarize", "--in_graph=g.pb", "--nodetails"],
    ],
)
def test_original_name_prints_the_original_lines(command: list[str], run: Run) -> None:
    result = run(*command)
    assert (result.code, result.out.splitlines(), result.err) == (0, LINES, "")


def test_structure_is_in_the_original_order(run: Run) -> None:
    result = run("summarize_graph", "--in_graph=g.pb", "--print_structure=true")
    assert result.out.splitlines()[len(LINES) :] == [
        "start (NoOp): []",
        "layer/b (Const): [], value=Tensor<type: float shape: [2] values: 1.5 -2>",
        f"layer/w (Const): [], value=Tensor<type: float shape: [3,3,1,2] values: {ONES}>",
        "x (Placeholder): []",
        "layer/conv (Conv2D): [x, layer/w]",
        "layer/bias (BiasAdd): [layer/conv, layer/b]",
        "out (Relu): [layer/bias, ^start]",
    ]


def test_details_follow_the_original_lines(run: Run) -> None:
    result = run("summarize", "--in_graph=g.pb")
    lines = result.out.splitlines()
    assert lines[: len(LINES)] == LINES
    assert "  x (float32 [-1, 4, 4, 1])" in lines
    assert "  out (float32 [-1, 4, 4, 2])" in lines
    # 16 positions of 2 channels: 2 * 9 for a convolution, 1 for a bias, 1 for a ReLU.
    flops = 32 * (2 * 9 + 1 + 1)
    assert f"One run, unknown sizes of inputs as 1: {flops} FLOPs, 20 parameters of 80 bytes" in (
        result.out
    )
    assert "A default build of TensorFlow 1.15 for android lacks nothing" in lines


def test_json_has_costs_by_op_and_by_scope(run: Run) -> None:
    result = json.loads(run("summarize", "--in_graph=g.pb", "--batch=2", "--json").out)
    costs = result["costs"]
    assert costs["flops"] == 2 * 640
    assert costs["by_op"][0] == {
        "name": "Conv2D", "nodes": 1, "parameters": 18, "bytes": 72, "flops": 1152, "share": 0.9,
    }  # fmt: skip
    assert [(s["name"], s["flops"]) for s in costs["by_scope"]] == [("layer", 1216), ("", 64)]
    assert result["outputs"][0]["name"] == "out"
    assert result["reasons"]


def test_variables_are_counted_in_addition_to_the_original(run: Run) -> None:
    Path("saved").mkdir()
    write_saved_model(Path("saved"))
    result = run("summarize", "--in_graph=saved")
    assert ", 0 (0) variable parameters" in result.out
    assert "Variables of all kinds: " in result.out
    data = json.loads(run("summarize", "--in_graph=saved", "--json").out)
    assert data["variables"]["parameters"] > 0
    assert data["notes"] == []
    assert data["costs"]["parameters"] > 0


def test_missing_inputs_are_listed_as_errors(run: Run) -> None:
    write_graph(Path("broken.pb"), Graph([node("a", "Relu", "gone"), node("b", "Relu", "^lost")]))
    result = run("summarize", "--in_graph=broken.pb")
    assert result.code == 5
    assert result.out.splitlines()[-2:] == [
        "Invalid input gone for node a",
        "Invalid input lost for node b",
    ]


def test_devices_and_ops_share_a_line_as_in_the_original(run: Run) -> None:
    nodes = [Node(f"n{i}", "NoOp", device="/cpu:0") for i in range(2)]
    write_graph(Path("d.pb"), Graph([*nodes, Node("m", "NoOp", device="/cpu:1")]))
    line = run("summarize_graph", "--in_graph=d.pb").out.splitlines()[4]
    assert line == (
        "2 nodes assigned to device '/cpu:0'1 nodes assigned to device '/cpu:1'"
        "Op types used: 3 NoOp"
    )


def test_memory_mapped_constants_are_counted(run: Run) -> None:
    converted = run(
        "memmap", "--in_graph=g.pb", "--out_graph=g.mmap", "--min_conversion_tensor_size=1"
    )
    assert converted.code == 0
    result = run("summarize_graph", "--in_graph=g.mmap")
    assert result.out.replace("g.mmap", "g.pb").splitlines() == LINES
    assert IMMUTABLE not in result.out


HOSTILE = ["<script>alert(1)</script>", 'a"b', "a\nb", "\x1b[2J", "\u202egnp", "n" * 10_000]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda n: ascii(n)[:20])
def test_control_characters_in_names_are_escaped(name: str, run: Run) -> None:
    x = placeholder(name, DType.FLOAT).with_attrs(shape=attr.shape((1, 2)))
    out = Node("out", "Relu", (parse_ref(name),), attrs={"T": attr.dtype(DType.FLOAT)})
    write_graph(Path("h.pb"), Graph([x, out]))
    result = run("summarize", "--in_graph=h.pb", "--print_structure", "--scope_depth=3")
    assert result.code == 0, result.err
    shown = result.out + result.err
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert result.out.startswith("Found 1 possible inputs: (name=")


def test_non_ascii_names_are_not_escaped(run: Run) -> None:
    write_graph(Path("g.pb"), Graph([Node("größe", "NoOp")]))
    assert "größe (NoOp): []" in run("summarize", "--in_graph=g.pb", "--print_structure").out


def write_training() -> None:
    """Write a MetaGraph with its checkpoint, and a directory of SavedModel versions."""
    for folder in ("trained", "served/1"):
        Path(folder).mkdir(parents=True)
    write_meta(Path("trained"))
    write_bundle(Path("trained/model"), {"w": W})
    write_saved_model(Path("served/1"))


@pytest.mark.parametrize(
    ("named", "read"),
    [
        ("trained/model.meta", ""),
        ("trained/model", "trained/model.meta"),
        ("trained/model.index", "trained/model.meta"),
        ("trained", "trained/model.meta"),
        ("served/1", ""),
        ("served/1/saved_model.pb", ""),
        ("served/1/variables/variables", "served/1"),
        ("served", "served/1"),
    ],
)
def test_related_files_lead_to_the_model(named: str, read: str, run: Run) -> None:
    write_training()
    result = run("summarize", f"--in_graph={named}")
    assert result.code == 0, result.err
    assert "Variables of all kinds: 1, with 3 parameters, 12 bytes" in result.out
    assert "  y:0 (float32 [3])" in result.out
    notes = [line for line in result.out.splitlines() if line.startswith("Note: the following")]
    # The printed command names the file that was read.
    shown = read if read.endswith(".meta") else f"{read}/saved_model.pb"
    assert f"--graph={shown if read else named} " in result.out
    assert notes == ([f"Note: the following is of {read}"] if read else [])


def test_checkpoints_without_graph_and_other_files_are_refused(run: Run) -> None:
    write_bundle(Path("values"), {"w": W})
    result = run("summarize", "--in_graph=values")
    assert (result.code, result.out) == (2, "")
    assert "no graph next to it matches" in result.err
    np.savez("x.npz", x=W)
    result = run("summarize", "--in_graph=x.npz")
    assert (result.code, result.out) == (6, "")
    assert "a NumPy archive" in result.err


def test_shapes_are_inferred_three_times(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []

    def counted(graph: Graph, *args: Any, **kwargs: Any) -> Mapping[str, Shapes]:
        passes.append(len(graph))
        return infer_shapes(graph, *args, **kwargs)

    for module in (guess, costs):
        monkeypatch.setattr(module, "infer_shapes", counted)
    assert "  out (float32 [-1, 4, 4, 2])" in run("summarize", "--in_graph=g.pb").out
    # To guess the outputs, and for the costs and the memory with their batch size.
    assert sum(size > 1 for size in passes) == 3


def test_tensorflow_option_selects_the_release(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "g.pb"
    write_graph(path, Graph([placeholder(), node("y", "Xlog1py", "x x")]))
    assert (
        "TensorFlow 1.15 does not have the op `Xlog1py`" in run("summarize", "--in_graph", path).out
    )
    result = run("summarize", "--in_graph", path, "--tensorflow=2.21").out
    assert "A default build of TensorFlow 2.21 for android lacks nothing" in result


def test_model_is_a_positional_argument(run: Run) -> None:
    assert run("summarize", "g.pb").out == run("summarize", "--in_graph=g.pb").out
    for wrong in ([], ["g.pb", "--in_graph=g.pb"]):
        result = run("summarize", *wrong)
        assert result.code == 2
        assert "name one: mobileprep summarize MODEL" in result.err


def test_inputs_and_outputs_limit_the_costs(run: Run) -> None:
    cut = ["--inputs=layer/conv", "--outputs=layer/bias", "--input_shapes=3,4,4,2"]
    data = json.loads(run("summarize", "g.pb", *cut, "--json").out)
    assert [tensor["name"] for tensor in data["inputs"]] == ["layer/conv"]
    assert data["inputs"][0]["shape"] == [3, 4, 4, 2]
    assert [tensor["name"] for tensor in data["outputs"]] == ["layer/bias"]
    assert (data["costs"]["flops"], data["costs"]["parameters"]) == (3 * 32, 2)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--outputs=layer/bais"], 2, "the graph has no tensor 'layer/bais'"),
        (["--inputs=gone"], 2, "the graph has no tensor 'gone'"),
        (["--input_shapes=1,4:2"], 2, "2 shapes for 1 inputs: x"),
        (["--input_shapes=1,b"], 2, "--input_shapes: '1,b' is not a shape"),
        (["--device=raspberry-pie"], 2, "unknown device 'raspberry-pie'"),
    ],
)
def test_invalid_names_and_shapes_are_refused(
    flags: list[str], code: int, message: str, run: Run
) -> None:
    result = run("summarize", "g.pb", *flags)
    assert result.code == code
    assert message in result.err


def test_device_prints_the_best_possible_time(run: Run) -> None:
    Path("board.yaml").write_text("title: a board\ngflops: 0.001\nsource: us\n")
    assert (
        "At best 0.64 ms on a board (0.001 GFLOP/s, "
        in run("summarize", "g.pb", "--device=board.yaml").out
    )
    device = json.loads(run("summarize", "g.pb", "--device=board.yaml", "--json").out)["device"]
    assert (device["flops"], device["latency_ms"]) == (640, 0.64)


@pytest.mark.parametrize("kind", ["VariableV2", "VarHandleOp"])
def test_variables_without_values_are_counted_by_shape(kind: str, run: Run) -> None:
    declared = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((4, 100))}
    nodes = [
        placeholder().with_attrs(shape=attr.shape((-1, 4))),
        Node("w", kind, attrs=declared),
        node("read", "ReadVariableOp", "w", T=None, dtype=DType.FLOAT)
        if kind == "VarHandleOp"
        else node("read", "Identity", "w"),
        node("y", "MatMul", "x read"),
    ]
    write_graph(Path("v.pb"), Graph(nodes))
    data = json.loads(run("summarize", "v.pb", "--json").out)
    assert (data["costs"]["parameters"], data["costs"]["flops"]) == (400, 2 * 4 * 100)
    assert data["costs"]["uncounted"] == []
    assert data["costs"]["by_op"][0]["parameters"] == 400
    assert data["costs"]["by_op"][0]["name"] == "MatMul"
    assert "as it cannot be frozen" in data["notes"][0]


def test_loops_are_listed_with_their_iterations(run: Run) -> None:
    test = [node("less", "Less", "count enter_bound")]
    write_graph(Path("l.pb"), counted(test=test))
    assert "  loop 'loop': counted for 3 iterations" in run("summarize", "l.pb").out
    test = [node("less", "Less", "count enter_limit")]
    write_graph(Path("l.pb"), counted(test=test))
    assert "  loop 'loop': counted for 1 iteration, as constants" in run("summarize", "l.pb").out
