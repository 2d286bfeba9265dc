"""LSTM and RNN operators in integers, and with weights in integers or float16."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.litert.convert import Mode, converted, to_calibrate
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import Integers, Range
from mobileprep.litert.quantizing.sequences import state_steps
from mobileprep.runtime.interpreter import Interpreter
from tests.litert.graphs import answered, codes, const, expected
from tests.litert.one_op import numbers
from tests.litert.test_fused_cells import (
    BATCH,
    LSTM,
    RNN,
    SUM,
    UNITS,
    B,
    W,
    X,
    cell,
    f,
    network,
    product,
)

OUTPUTS = ["y0", "y1"]


def ranges(graph: Graph) -> dict[str, Range]:
    whole = to_calibrate(graph, [CutInput("x")], OUTPUTS)
    names = [f"{name}:{index}" for name, index in whole.tensors]
    values = Interpreter(whole.graph).run(names, {whole.inputs[0]: X})
    return {
        name.removesuffix(":0"): (float(value.min()), float(value.max()))
        for name, value in zip(names, values, strict=True)
    }


def record_of(graph: Graph, mode: Mode) -> ModelRecord:
    settings = Integers(DType.INT8, ranges(graph)) if mode == "int8" else None
    return converted(graph, [CutInput("x")], OUTPUTS, mode=mode, integers=settings)


def check_close(record: ModelRecord, graph: Graph, decibels: float) -> None:
    """Two runs, so that the state of the first would show in the second."""
    content = model_bytes(record)
    reference = expected(graph, {"x": X}, OUTPUTS)
    for _ in range(2):
        for found, wanted in zip(answered(content, [X]), reference, strict=True):
            error = np.square(found - wanted).sum()
            assert 10 * np.log10(np.square(wanted).sum() / error) > decibels


PEEPHOLES = [
    *(const(f"p{k}", numbers(UNITS, seed=20 + k)) for k in range(3)),
    *(f("pi", "Mul", "c p0"), f("pf", "Mul", "p1 c"), f("po", "Mul", "c_out p2")),
    *(f("zi", "AddV2", "parts pi"), f("zf", "AddV2", "pf parts:1"), f("zo", "AddV2", "parts:3 po")),
]
PROJECTION = [
    *(W, const("U", numbers(2, 4 * UNITS, seed=3)), B, *SUM[3:]),
    *(f("m", "Mul", "o ca") if n.name == "h_out" else n for n in cell()),
    *(const("P", numbers(UNITS, 2, seed=9)), product("h_out", "m P")),
]
CELLS = {
    "plain": network([*SUM, *cell()], outputs=["loop:1", "loop:4"]),
    "zeros": network(
        [*SUM, *cell()],
        states=dict.fromkeys("hc", np.zeros((BATCH, UNITS), np.float32)),
        outputs=["loop:1", "loop:3"],
    ),
    "peepholes": network(
        [*SUM, *PEEPHOLES, *cell(i="zi", f_="zf", o="zo")], outputs=["loop:1", "loop:4"]
    ),
    "projection": network(
        PROJECTION,
        states={"h": numbers(BATCH, 2, seed=5), "c": numbers(BATCH, UNITS, seed=6)},
        outputs=["loop:1", "loop:4"],
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_lstm_in_int8(name: str) -> None:
    record = record_of(CELLS[name], "int8")
    (operator,) = [o for o in record.subgraphs[0].operators if o.code.builtin == LSTM]
    tensors = record.subgraphs[0].tensors
    assert [tensors[i].type for i in operator.inputs[1:9]] == ["INT8"] * 8
    hidden, state = (tensors[i] for i in operator.inputs[18:20])
    assert (hidden.type, state.type) == ("INT8", "INT16")
    assert hidden.is_variable
    assert state.is_variable
    assert state.quantization is not None
    assert np.log2(state.quantization.scales[0]) % 1 == 0
    assert len(operator.intermediates) == 5
    check_close(record, CELLS[name], 28)


def test_lstm_with_relu_stays_float() -> None:
    graph = network([*SUM, *cell(act="Relu")], outputs=["loop:1", "loop:4"])
    notes: list[str] = []
    settings = Integers(DType.INT8, ranges(graph))
    converted(
        graph, [CutInput("x")], OUTPUTS, mode="int8", integers=settings, tell=notes.append
    )  # fmt: skip
    assert any("computes it in integers only with tanh" in note for note in notes)
    assert not any("ZEROS_LIKE" in note for note in notes)


@pytest.mark.parametrize(
    ("span", "scale"), [((-1.0, 0.5), 2.0**-15), ((-0.2, 3.0), 2.0**-13), ((0.0, 0.0), 2.0**-15)]
)
def test_scale_of_cell_states_is_a_power_of_two(span: Range, scale: float) -> None:
    assert state_steps(span).scale == scale


def wide(op: str) -> Graph:
    """A cell with enough weights to be compressed."""
    units = 40
    gates = 4 if op == LSTM else 1
    step = [
        const("W", 0.3 * numbers(3, gates * units, seed=2)),
        const("U", 0.1 * numbers(units, gates * units, seed=3)),
        *(const("B", numbers(gates * units, seed=4)), *SUM[3:7]),
    ]
    states = {"h": numbers(BATCH, units, seed=5), "c": numbers(BATCH, units, seed=6)}
    if op == RNN:
        del states["c"]
        return network(
            [*step, f("h_out", "Tanh", "sum")], states=states, outputs=["loop:1", "loop:3"]
        )
    return network([*step, *SUM[7:], *cell()], states=states, outputs=["loop:1", "loop:4"])


@pytest.mark.parametrize(("mode", "decibels"), [("weights", 30), ("float16", 60)])
@pytest.mark.parametrize("op", [LSTM, RNN])
def test_compressed_weights(op: str, mode: Mode, decibels: float) -> None:
    graph = wide(op)
    record = record_of(graph, mode)
    assert op in codes(record)
    kinds = {tensor.type for tensor in record.subgraphs[0].tensors}
    assert ("INT8" if mode == "weights" else "FLOAT16") in kinds
    check_close(record, graph, decibels)
