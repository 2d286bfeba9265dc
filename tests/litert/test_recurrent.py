"""Recurrent cells become matrix products and activations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from tests.litert.graphs import answered, attribute, codes, const, feed, model, op
from tests.litert.one_op import check, check_graph, compare, numbers

INPUTS, CELLS, BATCH = 3, 4, 2
WEIGHTS = [
    numbers(INPUTS + CELLS, 4 * CELLS, seed=1),
    *(numbers(CELLS, seed=seed) for seed in (2, 3, 4)),
    numbers(4 * CELLS, seed=5),
]
STATES = [3 * numbers(BATCH, CELLS, seed=6), numbers(BATCH, CELLS, seed=7)]
BLOCKS = ["BlockLSTM", "BlockLSTMV2"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"use_peephole": True},
    {"cell_clip": 0.25, "forget_bias": 0.0},
    {"cell_clip": -1.0, "forget_bias": 0.5, "use_peephole": True},
]


def sequence(steps: int) -> Array:
    return numbers(steps, BATCH, INPUTS, seed=8)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_lstm_block_cell(options: dict[str, Any]) -> None:
    arrays = [numbers(BATCH, INPUTS), *STATES, *WEIGHTS]
    operators = check(
        "LSTMBlockCell", arrays, constant=range(3, 8), outputs=7, T=DType.FLOAT, **options
    )
    assert operators.count("FULLY_CONNECTED") == 1


@pytest.mark.parametrize("is_open", [False, True])
def test_gru_block_cell(is_open: bool) -> None:
    arrays = [
        numbers(BATCH, INPUTS),
        STATES[1],
        *(numbers(INPUTS + CELLS, size, seed=size) for size in (2 * CELLS, CELLS)),
        *(numbers(size, seed=size) for size in (2 * CELLS, CELLS)),
    ]
    operators = check(
        "GRUBlockCell",
        arrays,
        constant=range(2, 6),
        outputs=4,
        open_sizes=int(is_open),
        T=DType.FLOAT,
    )
    assert operators.count("FULLY_CONNECTED") == 2


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("length", [0, 3, 5, 9])
def test_known_length(kind: str, length: int, options: dict[str, Any]) -> None:
    options = {k: v for k, v in options.items() if kind == "BlockLSTM" or k != "forget_bias"}
    arrays = [np.int64(length), sequence(5), *STATES, *WEIGHTS]
    constant = [0, *range(4, 9)]
    check(kind, arrays, constant=constant, outputs=7, T=DType.FLOAT, **options)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("length", [0, 3, 5, 9])
def test_computed_length(kind: str, length: int) -> None:
    arrays = [np.int64(length), sequence(5), *STATES, *WEIGHTS]
    operators = check(kind, arrays, constant=range(4, 9), outputs=7, T=DType.FLOAT)
    assert operators.count("WHILE") == 1


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("constant", [range(4, 9), range(5, 8)], ids=["constant", "fed"])
def test_open_length_becomes_a_loop(kind: str, constant: range) -> None:
    for steps, length in ((5, 5), (7, 3), (1, 0)):
        arrays = [np.int64(length), sequence(steps), *STATES, *WEIGHTS]
        operators = check(
            kind,
            arrays,
            constant=constant,
            open_sizes=2,
            outputs=7,
            T=DType.FLOAT,
            use_peephole=True,
            tolerance=1e-5,
        )
        assert operators.count("WHILE") == 1


def layer(kind: str, steps: int, output: int, dtype: DType = DType.FLOAT) -> Graph:
    """Build a layer as exporters write it: weights behind Identity, a cast length."""
    arrays = dict(zip(("w", "wci", "wcf", "wco", "b"), WEIGHTS, strict=True))
    arrays |= {"state": STATES[0], "hidden": STATES[1]}
    return Graph(
        [
            feed("x", (steps, BATCH, INPUTS), dtype),
            *(const(f"{n}/value", a.astype(dtype.numpy)) for n, a in arrays.items()),
            *(op(n, "Identity", [f"{n}/value"], T=dtype) for n in arrays),
            const("steps", np.int32(max(steps, 1))),
            op("length", "Cast", ["steps"], SrcT=DType.INT32, DstT=DType.INT64),
            op("lstm", kind, ["length", "x", "state", "hidden", *list(arrays)[:5]], T=dtype),
            op("y", "Tanh", [f"lstm:{output}"], T=dtype),
        ]
    )


@pytest.mark.parametrize("steps", [1, 5, 100])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_whole_sequence_becomes_one_operator(options: dict[str, Any], steps: int) -> None:
    nodes = [
        n.with_attrs(**{k: attribute(v) for k, v in options.items()}) if n.name == "lstm" else n
        for n in layer("BlockLSTM", steps, 6)
    ]
    record = check_graph(Graph(nodes), {"x": sequence(steps)}, tolerance=1e-5)
    assert codes(record).count("UNIDIRECTIONAL_SEQUENCE_LSTM") == 1


def test_cell_states_need_a_loop() -> None:
    record = check_graph(layer("BlockLSTM", 5, 1), {"x": sequence(5)}, tolerance=1e-5)
    assert codes(record).count("WHILE") == 1


def test_length_from_the_input_shape() -> None:
    kinds = dict.fromkeys(("Tparams", "Tindices", "Taxis"), DType.INT32)
    steps = [
        op("sizes", "Shape", ["x"], T=DType.FLOAT, out_type=DType.INT32),
        *(const(n, v) for n, v in (("first", 0), ("axis", 0))),
        op("steps", "GatherV2", ["sizes", "first", "axis"], batch_dims=0, **kinds),
    ]
    others = [n for n in layer("BlockLSTM", 5, 6) if n.name != "steps"]
    nodes = [feed("x", (5, -1, INPUTS)) if n.name == "x" else n for n in (*others, *steps)]
    record = check_graph(Graph(nodes), {"x": sequence(5)}, tolerance=1e-5)
    assert not {"SELECT", "SELECT_V2", "LESS"} & set(codes(record))


def test_layer_in_float16() -> None:
    feeds = {"x": sequence(5).astype(np.float16)}
    check_graph(layer("BlockLSTM", 5, 6, DType.HALF), feeds, tolerance=5e-3)


def test_two_cells_in_one_loop_body_have_unique_names() -> None:
    one = layer("BlockLSTM", -1, 6)
    weights = ["state", "hidden", "w", "wci", "wcf", "wco", "b"]
    again = op("lstm_body", "BlockLSTMV2", ["length", "x", *weights], T=DType.FLOAT)
    graph = Graph([*one, again, op("z", "AddV2", ["y", "lstm_body:1"], T=DType.FLOAT)])
    check_graph(graph, {"x": sequence(6)}, ["z"], 1e-5)


def test_results_match_tensorflow() -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    x = sequence(5)
    reference = tensorflow.raw_ops.BlockLSTM(
        **dict(zip(("cs_prev", "h_prev"), STATES, strict=True)),
        **dict(zip(("w", "wci", "wcf", "wco", "b"), WEIGHTS, strict=True)),
        x=x,
        seq_len_max=tensorflow.constant(5, tensorflow.int64),
    )
    for index, output in enumerate(reference):
        record = model(layer("BlockLSTM", 5, index), ["x"], ["y"])
        compare(answered(model_bytes(record), [x]), [np.tanh(output.numpy())], 1e-5)
    assert math.isfinite(float(reference[6].numpy().max()))
