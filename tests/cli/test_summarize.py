"""``mobileprep summarize``: the original's lines, and what it does not tell."""

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
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
def test_the_original_s_name_prints_the_original_s_lines(command: list[str], run: Run) -> None:
    told = run(*command)
    assert (told.code, told.out.splitlines(), told.err) == (0, LINES, "")


def test_the_structure_is_in_the_order_of_the_original(run: Run) -> None:
    told = run("summarize_graph", "--in_graph=g.pb", "--print_structure=true")
    assert told.out.splitlines()[len(LINES) :] == [
        "start (NoOp): []",
        "layer/b (Const): [], value=Tensor<type: float shape: [2] values: 1.5 -2>",
        f"layer/w (Const): [], value=Tensor<type: float shape: [3,3,1,2] values: {ONES}>",
        "x (Placeholder): []",
        "layer/conv (Conv2D): [x, layer/w]",
        "layer/bias (BiasAdd): [layer/conv, layer/b]",
        "out (Relu): [layer/bias, ^start]",
    ]


def test_details_follow(run: Run) -> None:
    told = run("summarize", "--in_graph=g.pb")
    lines = told.out.splitlines()
    assert lines[: len(LINES)] == LINES
    assert "  x (float32 [-1, 4, 4, 1])" in lines
    assert "  out (float32 [-1, 4, 4, 2])" in lines
    # 16 places of 2 channels: 2 * 9 for a convolution, 1 for a bias, 1 for a ReLU.
    flops = 32 * (2 * 9 + 1 + 1)
    assert f"One run, unknown sizes of inputs as 1: {flops} FLOPs, 20 parameters of 80 bytes" in (
        told.out
    )
    assert "A default build of TensorFlow 1.15 for android lacks nothing" in lines


def test_json_has_shares_by_op_and_by_scope(run: Run) -> None:
    told = json.loads(run("summarize", "--in_graph=g.pb", "--batch=2", "--json").out)
    costs = told["costs"]
    assert costs["flops"] == 2 * 640
    assert costs["by_op"][0] == {
        "name": "Conv2D", "nodes": 1, "parameters": 18, "bytes": 72, "flops": 1152, "share": 0.9,
    }  # fmt: skip
    assert [(s["name"], s["flops"]) for s in costs["by_scope"]] == [("layer", 1216), ("", 64)]
    assert told["outputs"][0]["name"] == "out"
    assert told["reasons"]


def test_variables_are_counted_as_the_original_and_as_they_are(run: Run) -> None:
    Path("saved").mkdir()
    write_saved_model(Path("saved"))
    told = run("summarize", "--in_graph=saved")
    assert ", 0 (0) variable parameters" in told.out
    assert "Variables of all kinds: " in told.out
    found = json.loads(run("summarize", "--in_graph=saved", "--json").out)
    assert found["variables"]["parameters"] > 0
    assert found["notes"] == []
    assert found["costs"]["parameters"] > 0


def test_inputs_that_are_not_there_are_listed_and_an_error(run: Run) -> None:
    write_graph(Path("broken.pb"), Graph([node("a", "Relu", "gone"), node("b", "Relu", "^lost")]))
    told = run("summarize", "--in_graph=broken.pb")
    assert told.code == 5
    assert told.out.splitlines()[-2:] == [
        "Invalid input gone for node a",
        "Invalid input lost for node b",
    ]


def test_devices_stand_before_the_ops_on_one_line_as_in_the_original(run: Run) -> None:
    asked = [Node(f"n{i}", "NoOp", device="/cpu:0") for i in range(2)]
    write_graph(Path("d.pb"), Graph([*asked, Node("m", "NoOp", device="/cpu:1")]))
    line = run("summarize_graph", "--in_graph=d.pb").out.splitlines()[4]
    assert line == (
        "2 nodes assigned to device '/cpu:0'1 nodes assigned to device '/cpu:1'"
        "Op types used: 3 NoOp"
    )


def test_a_memory_mapped_model_shows_its_constants(run: Run) -> None:
    made = run("memmap", "--in_graph=g.pb", "--out_graph=g.mmap", "--min_conversion_tensor_size=1")
    assert made.code == 0
    told = run("summarize_graph", "--in_graph=g.mmap")
    assert told.out.replace("g.mmap", "g.pb").splitlines() == LINES
    assert IMMUTABLE not in told.out


HOSTILE = ["<script>alert(1)</script>", 'a"b', "a\nb", "\x1b[2J", "\u202egnp", "n" * 10_000]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda n: ascii(n)[:20])
def test_names_do_nothing_to_the_terminal(name: str, run: Run) -> None:
    x = placeholder(name, DType.FLOAT).with_attrs(shape=attr.shape((1, 2)))
    out = Node("out", "Relu", (parse_ref(name),), attrs={"T": attr.dtype(DType.FLOAT)})
    write_graph(Path("h.pb"), Graph([x, out]))
    told = run("summarize", "--in_graph=h.pb", "--print_structure", "--scope_depth=3")
    assert told.code == 0, told.err
    shown = told.out + told.err
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert told.out.startswith("Found 1 possible inputs: (name=")


def test_a_name_of_another_script_is_shown_as_it_is(run: Run) -> None:
    write_graph(Path("g.pb"), Graph([Node("größe", "NoOp")]))
    assert "größe (NoOp): []" in run("summarize", "--in_graph=g.pb", "--print_structure").out


def write_training() -> None:
    """A MetaGraph and its checkpoint, and a folder of versions with a SavedModel."""
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
def test_what_leads_to_a_model_is_followed(named: str, read: str, run: Run) -> None:
    write_training()
    told = run("summarize", f"--in_graph={named}")
    assert told.code == 0, told.err
    assert "Variables of all kinds: 1, with 3 parameters, 12 bytes" in told.out
    assert "  y:0 (float32 [3])" in told.out
    notes = [line for line in told.out.splitlines() if line.startswith("Note: the following")]
    # The drop-in command that is printed names the file that was read.
    shown = read if read.endswith(".meta") else f"{read}/saved_model.pb"
    assert f"--graph={shown if read else named} " in told.out
    assert notes == ([f"Note: the following is of {read}"] if read else [])


def test_a_checkpoint_alone_and_what_is_no_model_are_refused(run: Run) -> None:
    write_bundle(Path("values"), {"w": W})
    told = run("summarize", "--in_graph=values")
    assert (told.code, told.out) == (2, "")
    assert "no graph next to it matches" in told.err
    np.savez("x.npz", x=W)
    told = run("summarize", "--in_graph=x.npz")
    assert (told.code, told.out) == (6, "")
    assert "a NumPy archive" in told.err


def test_shapes_of_a_frozen_graph_are_inferred_twice(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []

    def counted(graph: Graph, *args: Any, **kwargs: Any) -> Mapping[str, Shapes]:
        passes.append(len(graph))
        return infer_shapes(graph, *args, **kwargs)

    for module in (guess, costs):
        monkeypatch.setattr(module, "infer_shapes", counted)
    assert "  out (float32 [-1, 4, 4, 2])" in run("summarize", "--in_graph=g.pb").out
    # Once to guess the outputs, whose sizes may be unknown, and once with the batch of the costs.
    assert sum(size > 1 for size in passes) == 2


def test_another_release_is_compared(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "g.pb"
    write_graph(path, Graph([placeholder(), node("y", "Xlog1py", "x x")]))
    assert (
        "TensorFlow 1.15 does not have the op `Xlog1py`" in run("summarize", "--in_graph", path).out
    )
    told = run("summarize", "--in_graph", path, "--tensorflow=2.21").out
    assert "A default build of TensorFlow 2.21 for android lacks nothing" in told


def test_the_model_is_a_plain_argument_too(run: Run) -> None:
    assert run("summarize", "g.pb").out == run("summarize", "--in_graph=g.pb").out
    for wrong in ([], ["g.pb", "--in_graph=g.pb"]):
        told = run("summarize", *wrong)
        assert told.code == 2
        assert "name one: mobileprep summarize MODEL" in told.err


def test_costs_are_those_of_the_part_between_inputs_and_outputs(run: Run) -> None:
    cut = ["--inputs=layer/conv", "--outputs=layer/bias", "--input_shapes=3,4,4,2"]
    found = json.loads(run("summarize", "g.pb", *cut, "--json").out)
    assert [tensor["name"] for tensor in found["inputs"]] == ["layer/conv"]
    assert found["inputs"][0]["shape"] == [3, 4, 4, 2]
    assert [tensor["name"] for tensor in found["outputs"]] == ["layer/bias"]
    assert (found["costs"]["flops"], found["costs"]["parameters"]) == (3 * 32, 2)


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
def test_wrong_names_and_shapes_are_refused(
    flags: list[str], code: int, message: str, run: Run
) -> None:
    told = run("summarize", "g.pb", *flags)
    assert told.code == code
    assert message in told.err


def test_a_device_gives_the_least_time_of_a_run(run: Run) -> None:
    Path("board.yaml").write_text("title: a board\ngflops: 0.001\nsource: us\n")
    assert (
        "At best 0.64 ms on a board (0.001 GFLOP/s, "
        in run("summarize", "g.pb", "--device=board.yaml").out
    )
    device = json.loads(run("summarize", "g.pb", "--device=board.yaml", "--json").out)["device"]
    assert (device["flops"], device["latency_ms"]) == (640, 0.64)


@pytest.mark.parametrize("kind", ["VariableV2", "VarHandleOp"])
def test_variables_without_values_count_by_their_shapes(kind: str, run: Run) -> None:
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
    found = json.loads(run("summarize", "v.pb", "--json").out)
    assert (found["costs"]["parameters"], found["costs"]["flops"]) == (400, 2 * 4 * 100)
    assert found["costs"]["uncounted"] == []
    assert found["costs"]["by_op"][0]["parameters"] == 400
    assert found["costs"]["by_op"][0]["name"] == "MatMul"
    assert "as it cannot be frozen" in found["notes"][0]


def test_loops_are_listed_with_their_iterations(run: Run) -> None:
    test = [node("less", "Less", "count enter_bound")]
    write_graph(Path("l.pb"), counted(test=test))
    assert "  loop 'loop': counted for 3 iterations" in run("summarize", "l.pb").out
    test = [node("less", "Less", "count enter_limit")]
    write_graph(Path("l.pb"), counted(test=test))
    assert "  loop 'loop': counted for 1 iteration, as constants" in run("summarize", "l.pb").out
