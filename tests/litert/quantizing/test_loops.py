"""Loops that stay loops compute in integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord, SubGraphRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import converted, to_calibrate
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import Integers
from mobileprep.runtime.interpreter import Interpreter
from tests.litert.graphs import answered, codes, const, expected, feed
from tests.litert.one_op import numbers
from tests.litert.test_fused_cells import (
    BATCH,
    INPUTS,
    INT,
    SUM,
    TIMES,
    UNITS,
    X,
    cell,
    f,
    joined,
    network,
    product,
    with_open_batch,
)

GRU = [
    const("W", numbers(INPUTS, 2 * UNITS, seed=2)),
    const("U", 0.5 * numbers(UNITS, 2 * UNITS, seed=3)),
    *(product("xW", "x_t W"), product("hU", "h U"), f("both", "AddV2", "xW hU")),
    *(const("one", np.int32(1)), f("parts", "Split", "one both", num_split=2)),
    *(f("r", "Sigmoid", "parts"), f("z", "Sigmoid", "parts:1"), f("rh", "Mul", "r h")),
    const("V", numbers(INPUTS + UNITS, UNITS, seed=4)),
    *(joined("xr", "x_t rh one"), product("xV", "xr V"), f("new", "Tanh", "xV")),
    *(const("unit", np.float32(1)), f("rest", "Sub", "unit z")),
    *(f("zh", "Mul", "z h"), f("rn", "Mul", "rest new"), f("h_out", "AddV2", "zh rn")),
]
FIRST = {"h": 0.3 * numbers(BATCH, UNITS, seed=5)}
LOOPS = {
    "gru": network(GRU, states=FIRST, outputs=["loop:1", "loop:3"]),
    "softsign": network([*SUM, *cell(act="Softsign")], outputs=["loop:1", "loop:3"]),
    "open batch": with_open_batch(
        network(GRU, states={"h": np.zeros((BATCH, UNITS), np.float32)}), UNITS
    ),
}


def in_int8(
    graph: Graph, feeds: Sequence[tuple[str, Array]], outputs: Sequence[str], notes: list[str]
) -> ModelRecord:
    names = [CutInput(name) for name, _ in feeds]
    whole = to_calibrate(graph, names, outputs)
    tensors = [f"{name}:{index}" for name, index in whole.tensors]
    values = Interpreter(whole.graph).run(
        tensors, dict(zip(whole.inputs, (value for _, value in feeds), strict=True))
    )
    ranges = {
        name.removesuffix(":0"): (float(value.min(initial=0)), float(value.max(initial=0)))
        for name, value in zip(tensors, values, strict=True)
    }
    settings = Integers(DType.INT8, ranges)
    return converted(graph, names, outputs, mode="int8", integers=settings, tell=notes.append)


def body_of(record: ModelRecord) -> SubGraphRecord:
    (body,) = [s for s in record.subgraphs[1:] if any("QUANTIZE" in c for c in operators(s))]
    return body


def operators(graph: SubGraphRecord) -> list[str]:
    return [operator.code.builtin for operator in graph.operators]


@pytest.mark.parametrize("name", LOOPS)
def test_body_in_integers(name: str) -> None:
    graph, notes = LOOPS[name], list[str]()
    outputs = ["y0"] if name == "open batch" else ["y0", "y1"]
    record = in_int8(graph, [("x", X)], outputs, notes)
    assert "WHILE" in codes(record)
    assert not any("WHILE" in note for note in notes)
    body = body_of(record)
    layers = [o for o in body.operators if o.code.builtin == "FULLY_CONNECTED"]
    assert layers
    for layer in layers:
        assert [body.tensors[i].type for i in layer.inputs[:2]] == ["INT8", "INT8"]
    # A step reads its row of the float sequence, and does not quantize the others.
    sources = {
        body.tensors[o.inputs[0]].name for o in body.operators if o.code.builtin == "QUANTIZE"
    }
    assert "x_t" in sources
    assert not sources & {"x", "rows"}
    for _ in range(2):
        results = answered(model_bytes(record), [X])
        for result, wanted in zip(results, expected(graph, {"x": X}, outputs), strict=True):
            error = np.square(result - wanted).sum()
            assert 10 * np.log10(np.square(wanted).sum() / error) > 28


def renamed(graph: Graph, suffix: str) -> list[Node]:
    """The nodes of a graph with other names and the same functions; the input is shared."""
    mapping = {n.name: n.name if n.name == "x" else n.name + suffix for n in graph}
    return [
        Node(
            mapping[n.name],
            n.op,
            tuple(r if r.node == "x" else r.renamed(mapping[r.node]) for r in n.inputs),
            n.device,
            n.attrs,
        )
        for n in graph
    ]


def test_two_loops_whose_bodies_have_the_same_names() -> None:
    graph = LOOPS["gru"]
    second = [n for n in renamed(graph, "_b") if n.name != "x"]
    # Larger initial states, and so another range of the same tensor of the body.
    second = [const("h0_b", 3 * FIRST["h"]) if n.name == "h0_b" else n for n in second]
    both = Graph([*graph, *second], graph.library)
    whole = to_calibrate(both, [CutInput("x")], ["y0", "y0_b"])
    names = {name for name, _ in whole.tensors}
    assert {"loop/h", "loop_b/h"} <= names
    record = in_int8(both, [("x", X)], ["y0", "y0_b"], [])
    results = answered(model_bytes(record), [X])
    for result, wanted in zip(results, expected(both, {"x": X}, ["y0", "y0_b"]), strict=True):
        error = np.square(result - wanted).sum()
        assert 10 * np.log10(np.square(wanted).sum() / error) > 28


def test_number_of_steps_that_a_run_determines() -> None:
    outside = [feed("count", (), INT)]
    graph = network(
        GRU, states=FIRST, limit="count_in", fixed={"count": INT}, outside=outside,
        outputs=["loop:3"],
    )  # fmt: skip
    feeds = [("x", X), ("count", np.int32(TIMES - 1))]
    record = in_int8(graph, feeds, ["y0"], [])
    for count in (TIMES - 1, 0):
        (result,) = answered(model_bytes(record), [X, np.int32(count)])
        (wanted,) = expected(graph, {"x": X, "count": np.int32(count)}, ["y0"])
        np.testing.assert_allclose(result, wanted, atol=0.05)


@pytest.mark.parametrize("kind", ["number", "longer in each step"])
def test_states_that_cannot_be_measured(kind: str) -> None:
    """The other tensors of the loop are measured."""
    if kind == "number":
        first = {"k": np.array(1, np.float32)}
        more = [const("half", np.float32(0.5)), f("k_out", "Mul", "k half")]
    else:
        first = {"k": np.zeros((BATCH, 1), np.float32)}
        more = [f("k1", "Tanh", "k"), joined("k_out", "k1 h_out one")]
    graph = network([*GRU, *more], states={**FIRST, **first}, outputs=["loop:3", "loop:4"])
    notes: list[str] = []
    record = in_int8(graph, [("x", X)], ["y0", "y1"], notes)
    assert body_of(record)
    results = answered(model_bytes(record), [X])
    for result, wanted in zip(results, expected(graph, {"x": X}, ["y0", "y1"]), strict=True):
        np.testing.assert_allclose(result, wanted, atol=0.05)


def test_loops_that_are_not_observed_stay_float() -> None:
    graph = LOOPS["gru"]
    whole = to_calibrate(graph, [CutInput("x")], ["y0"], observes_loops=False)
    assert not any(name.startswith("loop/") for name, _ in whole.tensors)
    assert not any(node.op.startswith("TensorList") for node in whole.graph)
    notes: list[str] = []
    settings = Integers(DType.INT8, {"x": (-3.0, 3.0)})
    converted(
        graph, [CutInput("x")], ["y0"], mode="int8", integers=settings, tell=notes.append
    )  # fmt: skip
    assert any("WHILE" in n and "the ranges of the tensors in it are not known" in n for n in notes)
