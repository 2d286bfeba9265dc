"""Networks over whole sequences run a few time steps at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.streaming import STREAMING, Streaming, decode_streaming
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from tests.litert.graphs import codes, const, expected, feed, model, op
from tests.litert.one_op import compare, numbers
from tests.litert.test_fused_cells import BATCH, INPUTS, SUM, TIMES, UNITS, cell, f, network

pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")

X = numbers(3 * TIMES, BATCH, INPUTS, seed=9)
ZEROS = {"h": np.zeros((BATCH, UNITS), np.float32), "c": np.zeros((BATCH, UNITS), np.float32)}
LSTM = [*SUM, *cell()]
# tanh(x W + h U) * sigmoid(h) is no cell that LiteRT has.
LOOP = [
    const("W", numbers(INPUTS, UNITS, seed=2)),
    op("xW", "MatMul", ["x_t", "W"], T=DType.FLOAT, transpose_a=False, transpose_b=False),
    *(f("sum", "AddV2", "xW h"), f("tanh", "Tanh", "sum"), f("s", "Sigmoid", "h")),
    f("h_out", "Mul", "tanh s"),
]


def whole(step: Sequence[Node], states: Mapping[str, Array], **options: Any) -> Graph:
    """A network over all steps of X."""
    graph = network(step, states=states, limit=len(X), **options)
    blank = const("blank", np.zeros((len(X), BATCH, UNITS), np.float32))
    others = {"x": feed("x", X.shape), "blank": blank}
    return graph.with_nodes(others.get(node.name, node) for node in graph)


def with_nodes(graph: Graph, *nodes: Node) -> Graph:
    return graph.with_nodes([*graph, *nodes])


def stream(
    graph: Graph, outputs: Sequence[str], steps: int, feeds: Mapping[str, Array] | None = None
) -> tuple[Streaming, list[str]]:
    """Compare a file for some steps at a time with the whole network, twice in a row."""
    feeds = feeds or {"x": X}
    record = model(graph, list(feeds), outputs, streaming=steps)
    engine = LiteRtModel(Path("m.tflite"), bytes(model_bytes(record)))
    for _ in range(2):
        compare(engine.run(outputs, feeds), expected(graph, feeds, outputs), 1e-5)
    return decode_streaming(bytes(dict(record.metadata)[STREAMING]), "m"), codes(record)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("states", [ZEROS, None], ids=["zeros", "other first states"])
def test_lstm(steps: int, states: Mapping[str, Array] | None) -> None:
    first = states or {name: numbers(BATCH, UNITS, seed=5) for name in ZEROS}
    graph = whole(LSTM, first, outputs=("loop:1", "loop:4"))
    streaming, operators = stream(graph, ["y0", "y1"], steps)
    assert operators.count("UNIDIRECTIONAL_SEQUENCE_LSTM") == 1
    assert (streaming.steps, streaming.inputs, streaming.outputs) == (steps, {"x": 0}, {"y0": 0})
    assert [(s.input, s.output) for s in streaming.states] == [
        ("state_0", "state_0_next"),
        ("state_1", "state_1_next"),
    ]


@pytest.mark.parametrize("steps", [1, 5])
def test_other_loop(steps: int) -> None:
    streaming, operators = stream(whole(LOOP, {"h": ZEROS["h"]}), ["y0"], steps)
    assert operators.count("WHILE") == (steps > 1)
    assert len(streaming.states) == 1


def test_open_length() -> None:
    weights = {
        "w": numbers(INPUTS + UNITS, 4 * UNITS),
        **{name: numbers(UNITS, seed=2) for name in ("wci", "wcf", "wco")},
        "b": numbers(4 * UNITS, seed=3),
    }
    graph = Graph(
        [
            *(feed("x", (-1, BATCH, INPUTS)), const("longest", np.array(1 << 20))),
            *(const(name, value) for name, value in {**ZEROS, **weights}.items()),
            op("cell", "BlockLSTM", ["longest", "x", "c", "h", *weights], T=DType.FLOAT,
               use_peephole=True, cell_clip=-1.0, forget_bias=1.0),
            op("y0", "Neg", ["cell:6"], T=DType.FLOAT),
        ]
    )  # fmt: skip
    streaming, _ = stream(graph, ["y0"], 3)
    assert len(streaming.states) == 2


def test_layers_of_each_step() -> None:
    graph = whole(LSTM, ZEROS)
    product = {"T": DType.FLOAT, "transpose_a": False, "transpose_b": False}
    kinds = {"T": DType.FLOAT, "Tshape": DType.INT32}
    dense = [
        const("flat", np.array([-1, UNITS], np.int32)),
        op("rows", "Reshape", ["y0", "flat"], **kinds),
        *(const("V", numbers(UNITS, 2)), op("xV", "MatMul", ["rows", "V"], **product)),
        const("back", np.array([len(X), BATCH, 2], np.int32)),
        op("steps", "Reshape", ["xV", "back"], **kinds),
        const("order", np.array([1, 0, 2], np.int32)),
        op("turned", "Transpose", ["steps", "order"], T=DType.FLOAT, Tperm=DType.INT32),
        op("scores", "Softmax", ["turned"], T=DType.FLOAT),
        *(const("begin", np.array([0, -1, 0], np.int32)), const("end", np.zeros(3, np.int32))),
        const("strides", np.ones(3, np.int32)),
        op("last", "StridedSlice", ["scores", "begin", "end", "strides"], T=DType.FLOAT,
           Index=DType.INT32, begin_mask=5, end_mask=5, shrink_axis_mask=2),
        const("same", np.ones((BATCH, len(X), 2), np.float32)),
        op("more", "AddV2", ["scores", "same"], T=DType.FLOAT),
    ]  # fmt: skip
    streaming, _ = stream(with_nodes(graph, *dense), ["more", "last"], 5)
    assert streaming.outputs == {"more": 1}


def reversed_steps(name: str, source: str) -> list[Node]:
    return [
        const("axes", np.array([0], np.int32)),
        op(name, "ReverseV2", [source, "axes"], T=DType.FLOAT, Tidx=DType.INT32),
    ]


def reduced(name: str, source: str, op_: str = "Mean") -> list[Node]:
    return [
        const("axes", np.array([0], np.int32)),
        op(name, op_, [source, "axes"], T=DType.FLOAT, Tidx=DType.INT32, keep_dims=False),
    ]


POSITIONS = [
    const("positions", numbers(len(X), 1, 1)),
    op("end", "AddV2", ["y0", "positions"], T=DType.FLOAT),
]
ATTENTION = [
    const("order", np.array([1, 0, 2], np.int32)),
    op("turned", "Transpose", ["y0", "order"], T=DType.FLOAT, Tperm=DType.INT32),
    op("end", "BatchMatMulV2", ["turned", "turned"], T=DType.FLOAT, adj_x=False, adj_y=True),
]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (reversed_steps("end", "y0"), "ReverseV2 'end': it reverses the time steps"),
        (reduced("end", "y0"), "Mean 'end': it reduces all time steps to one value"),
        (POSITIONS, "AddV2 'end': its operand positions differs from time step to time step"),
        (ATTENTION, "BatchMatMulV2 'end': it compares time steps with one another"),
    ],
    ids=["reverse", "mean", "positions", "attention"],
)
def test_mixed_time_steps(nodes: Sequence[Node], message: str) -> None:
    graph = with_nodes(whole(LSTM, ZEROS), *nodes)
    with pytest.raises(UnsupportedError, match=message.replace("(", r"\(")):
        model(graph, ["x"], ["end"], streaming=1)


def test_loop_that_counts() -> None:
    step = [
        *(*LOOP[:-1], op("number", "Cast", ["t"], SrcT=DType.INT32, DstT=DType.FLOAT)),
        *(f("both", "Mul", "tanh s"), f("h_out", "Mul", "both number")),
    ]
    with pytest.raises(UnsupportedError, match="uses the number of the time step, in 'number'"):
        model(whole(step, {"h": ZEROS["h"]}), ["x"], ["y0"], streaming=1)


def test_network_without_a_loop() -> None:
    graph = Graph([feed("x", (1, 4, 3)), op("y", "Tanh", ["x"], T=DType.FLOAT)])
    with pytest.raises(UsageError, match="needs a network with a loop over the time steps"):
        model(graph, ["x"], ["y"], streaming=1)


def test_open_batch() -> None:
    graph = whole(LSTM, ZEROS)
    changed = [n if n.name != "x" else feed("x", (-1, -1, INPUTS)) for n in graph]
    with pytest.raises(UsageError, match="streaming needs the batch size of 'x'"):
        model(graph.with_nodes(changed), ["x"], ["y0"], streaming=1)


def test_sequence_that_is_no_multiple_of_the_steps() -> None:
    graph = whole(LSTM, ZEROS, outputs=("loop:1", "loop:3"))
    stream(graph, ["y0"], 4)
    content = bytes(model_bytes(model(graph, ["x"], ["y0", "y1"], streaming=4)))
    with pytest.raises(UnsupportedError, match=r"a sequence of 15 time steps, .* 4 at a time"):
        LiteRtModel(Path("m.tflite"), content).run(["y0", "y1"], {"x": X})


def test_fed_states_run_one_call() -> None:
    graph = whole(LSTM, ZEROS)
    content = bytes(model_bytes(model(graph, ["x"], ["y0"], streaming=1)))
    engine = LiteRtModel(Path("m.tflite"), content)
    states = {"state_0": ZEROS["h"], "state_1": ZEROS["c"]}
    first, *after = engine.run(["y0", "state_0_next", "state_1_next"], {"x": X[:1], **states})
    second, *_ = engine.run(["y0"], {"x": X[1:2], "state_0": after[0], "state_1": after[1]})
    (rows,) = expected(graph, {"x": X}, ["y0"])
    compare([first, second], [rows[:1], rows[1:2]], 1e-5)


SLICES = {
    "all": ([0, 0, 0], [0, 0, 0], [1, 1, 1], 7, 7, 0),
    "all, by its size": ([0, 0, 0], [len(X), 0, 0], [1, 1, 1], 6, 6, 0),
    "last row": ([-1, 0, 0], [0, 0, 0], [1, 1, 1], 6, 7, 1),
    "last row, by its number": ([len(X) - 1, 0, 0], [0, 0, 0], [1, 1, 1], 6, 7, 0),
    "reversed": ([-1, 0, 0], [-4, 0, 0], [-1, 1, 1], 6, 6, 0),
    "all but the last": ([0, 0, 0], [-1, 0, 0], [1, 1, 1], 6, 6, 0),
    "first row": ([0, 0, 0], [1, 0, 0], [1, 1, 1], 6, 6, 1),
    "every other": ([0, 0, 0], [0, 0, 0], [2, 1, 1], 7, 7, 0),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_of_time_steps(name: str) -> None:
    begin, end, strides, begin_mask, end_mask, shrink = SLICES[name]
    bounds = {"begin": begin, "end": end, "strides": strides}
    cut = op("y", "StridedSlice", ["y0", *bounds], T=DType.FLOAT, Index=DType.INT32,
             begin_mask=begin_mask, end_mask=end_mask, shrink_axis_mask=shrink)  # fmt: skip
    constants = [const(key, np.array(values, np.int32)) for key, values in bounds.items()]
    graph = with_nodes(whole(LSTM, ZEROS), *constants, cut)
    if name.startswith(("all", "last")) and name != "all but the last":
        streaming, _ = stream(graph, ["y"], 5)
        assert ("y" in streaming.outputs) is name.startswith("all")
        return
    with pytest.raises(UnsupportedError, match="StridedSlice 'y': it takes some of the time steps"):
        model(graph, ["x"], ["y"], streaming=5)


def test_loop_that_does_not_read_an_input() -> None:
    graph = whole(LSTM, ZEROS)
    fixed = [const("x", X) if node.name == "x" else node for node in graph]
    other = [feed("z", X.shape), op("y", "AddV2", ["z", "z"], T=DType.FLOAT)]
    with pytest.raises(UsageError, match="needs a network with a loop over the time steps"):
        model(graph.with_nodes([*fixed, *other]), ["z"], ["y", "y0"], streaming=1)
