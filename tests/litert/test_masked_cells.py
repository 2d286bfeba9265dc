"""Cells whose states are one tensor, whose gates are coupled, or that skip steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from tests.litert.graphs import codes, const, feed, op
from tests.litert.one_op import check_graph, numbers
from tests.litert.test_fused_cells import (
    BATCH,
    BOOL,
    FLOAT,
    INPUTS,
    INT,
    LSTM,
    RNN,
    SUM,
    TIMES,
    UNITS,
    X,
    cell,
    f,
    network,
    operators,
    product,
)

STATES = {"h": numbers(BATCH, UNITS, seed=5), "c": numbers(BATCH, UNITS, seed=6)}
BLANK = np.zeros((BATCH, UNITS), np.float32)
MASKED = ("h", "c", "last")


def joined(name: str, *parts: str) -> Node:
    return op(name, "ConcatV2", [*parts, "one"], T=FLOAT, N=len(parts), Tidx=INT)


def columns(name: str, source: str, start: int, count: int) -> list[Node]:
    return [
        *(const(f"{name}_0", np.int32([0, start])), const(f"{name}_n", np.int32([-1, count]))),
        op(name, "Slice", [source, f"{name}_0", f"{name}_n"], T=FLOAT, Index=INT),
    ]


def test_state_in_one_tensor() -> None:
    step = [*columns("c", "s", 0, UNITS), *columns("h", "s", UNITS, UNITS), *SUM, *cell()]
    states = {"s": numbers(BATCH, 2 * UNITS, seed=5)}
    graph = network(
        [*step, joined("s_out", "c_out", "h_out")],
        states=states,
        outputs=["loop:1", "loop:3"],
        width=UNITS,
    )
    found = operators(graph, ["y0", "y1"])
    assert LSTM in found
    assert "WHILE" not in found


def test_states_of_two_cells_in_one_tensor() -> None:
    """As in MultiRNNCell without tuples: each cell splits its own part."""
    second = [
        *(const("W2", numbers(UNITS, UNITS, seed=7)), const("U2", numbers(UNITS, UNITS, seed=8))),
        *(product("hW", "h_out W2"), product("kU", "k U2"), f("k_sum", "AddV2", "hW kU")),
        f("k_out", "Relu", "k_sum"),
    ]
    step = [
        *(*columns("first", "s", 0, 2 * UNITS), *columns("k", "s", 2 * UNITS, UNITS)),
        f("ch", "Split", "one first", num_split=2),
        *(f("c", "Identity", "ch"), f("h", "Identity", "ch:1")),
        *(*SUM, *cell(), *second),
        *(joined("first_out", "c_out", "h_out"), joined("s_out", "first_out", "k_out")),
    ]
    states = {"s": numbers(BATCH, 3 * UNITS, seed=5)}
    graph = network(step, states=states, row="k_out", outputs=["loop:1", "loop:3"], width=UNITS)
    found = operators(graph, ["y0", "y1"])
    assert (found.count(LSTM), found.count(RNN), found.count("WHILE")) == (1, 1, 0)


@pytest.mark.parametrize(
    "more",
    [
        [*columns("c", "s", 1, UNITS), *columns("h", "s", UNITS, UNITS)],
        [*columns("c", "s", 0, UNITS), *columns("h", "s", UNITS, UNITS), f("all", "Neg", "s")],
    ],
    ids=["other columns", "whole state"],
)
def test_other_joined_states_stay(more: list[Node]) -> None:
    row = "h_out"
    if any(n.name == "all" for n in more):
        more = [*more, *columns("part", "all", 0, UNITS), f("row", "Mul", "h_out part")]
        row = "row"
    states = {"s": numbers(BATCH, 2 * UNITS, seed=5)}
    step = [*more, *SUM, *cell(), joined("s_out", "c_out", "h_out")]
    assert "WHILE" in operators(network(step, states=states, row=row, width=UNITS))


@pytest.mark.parametrize("coupled", ["input", "forget"])
def test_coupled_input_and_forget_gates(coupled: str) -> None:
    whole, other = ("f", "i") if coupled == "input" else ("i", "f")
    nodes = [n for n in cell() if n.name != other]
    more = [const("unit", np.float32(1)), f(other, "Sub", f"unit {whole}")]
    assert LSTM in operators(network([*SUM, *nodes, *more]))


def test_gate_of_another_difference_stays() -> None:
    nodes = [n for n in cell() if n.name != "i"]
    more = [const("half", np.float32(0.5)), f("i", "Sub", "half f")]
    assert "WHILE" in operators(network([*SUM, *nodes, *more]))


def by_length(length: str = "lengths_in", *, blank: str = "blank_row") -> list[Node]:
    """The cell of ``dynamic_rnn`` with ``sequence_length``."""
    new = [
        Node(n.name + ("_new" if n.name.endswith("_out") else ""), n.op, n.inputs, "", n.attrs)
        for n in cell()
    ]
    new = [f("ca", "Tanh", "c_out_new") if n.name == "ca" else n for n in new]
    return [
        *(*SUM, *new, const("blank_row", BLANK)),
        op("ended", "GreaterEqual", ["t", length], T=INT),
        op("c_out", "Select", ["ended", "c", "c_out_new"], T=FLOAT),
        op("h_out", "Select", ["ended", "h", "h_out_new"], T=FLOAT),
        op("row", "Select", ["ended", blank, "h_out_new"], T=FLOAT),
    ]


def lengths_network(outputs: list[str], **options: Any) -> Graph:
    kinds = {"lengths": INT}
    outside = [feed("lengths", (BATCH,), INT)]
    return network(by_length(), row="row", outputs=outputs, fixed=kinds, outside=outside, **options)


@pytest.mark.parametrize("outputs", [["loop:1"], ["loop:3"], ["loop:1", "loop:3"]], ids=str)
@pytest.mark.parametrize("lengths", [[3, 5], [0, 1], [9, 4]], ids=str)
def test_lengths_of_sequences(outputs: list[str], lengths: list[int]) -> None:
    feeds = {"x": X, "lengths": np.int32(lengths)}
    graph = lengths_network(outputs)
    found = codes(check_graph(graph, feeds, [f"y{i}" for i in range(len(outputs))], 1e-5))
    assert LSTM in found
    assert "WHILE" not in found


def test_loop_until_the_longest_sequence() -> None:
    outside = [
        *(feed("lengths", (BATCH,), INT), const("zero", np.int32(0)), const("unit", np.int32(1))),
        op("longest", "Max", ["lengths", "zero"], T=INT, Tidx=INT, keep_dims=False),
        op("some", "Maximum", ["unit", "longest"], T=INT),
        *(const("steps", np.int32(TIMES)), op("most", "Minimum", ["steps", "some"], T=INT)),
    ]
    graph = network(
        by_length(), row="row", limit="most_in", fixed={"lengths": INT, "most": INT},
        outside=outside, outputs=["loop:1", "loop:3"],
    )  # fmt: skip
    for lengths in ([2, 3], [0, 0], [1, 7]):
        feeds = {"x": X, "lengths": np.int32(lengths)}
        assert LSTM in codes(check_graph(graph, feeds, ["y0", "y1"], 1e-5))


@pytest.mark.parametrize("limit", [3, 2])
def test_constant_lengths(limit: int) -> None:
    """The loop may end after the longest sequence, and not before."""
    step = [const("lengths", np.int32([3, 1])), *by_length("lengths")]
    found = operators(network(step, row="row", limit=limit))
    assert ("WHILE" in found) == (limit == 2)


@pytest.mark.parametrize(
    ("outputs", "options"),
    [(["loop:4"], {}), (["loop:1"], {"limit": TIMES - 1})],
    ids=["cell state", "fewer turns"],
)
def test_other_lengths_stay(outputs: list[str], options: dict[str, Any]) -> None:
    feeds = {"x": X, "lengths": np.int32([3, 5])}
    graph = lengths_network(outputs, **options)
    assert "WHILE" in codes(check_graph(graph, feeds, ["y0"], 1e-5))


def by_mask(kind: str) -> list[Node]:
    """A cell of Keras with a mask."""
    kinds = {"Tparams": BOOL, "Tindices": INT, "Taxis": INT}
    if kind == LSTM:
        new = {"h": "h_new", "c": "c_new"}
        nodes = [
            f({"h_out": "h_new", "c_out": "c_new"}.get(n.name, n.name), n.op,
              " ".join(str(r).removesuffix(":0").replace("c_out", "c_new") for r in n.inputs))
            for n in cell()
        ]  # fmt: skip
        step = [*SUM, *nodes]
    else:
        new = {"h": "h_new"}
        step = [
            *(
                const("W", numbers(INPUTS, UNITS, seed=2)),
                const("U", numbers(UNITS, UNITS, seed=3)),
            ),
            *(*SUM[3:6], f("h_new", "Tanh", "both")),
        ]
    return [
        *step,
        op("m", "GatherV2", ["mask_in", "t", "axis"], batch_dims=0, **kinds),
        *(op(f"{k}_out", "SelectV2", ["m", v, k], T=FLOAT) for k, v in new.items()),
        op("last_out", "SelectV2", ["m", "h_new", "last"], T=FLOAT),
        *(const("blank_row", BLANK), op("row", "SelectV2", ["m", "h_new", "blank_row"], T=FLOAT)),
    ]


def random_mask(seed: int) -> Array:
    return np.random.default_rng(seed).random((TIMES, BATCH, 1)) < 0.6


@pytest.mark.parametrize("row", ["last_out", "row"], ids=["previous output", "zero"])
@pytest.mark.parametrize("kind", [LSTM, RNN])
def test_mask(kind: str, row: str) -> None:
    first = {"last": BLANK} if row == "row" else {"last": numbers(BATCH, UNITS, seed=7)}
    states = {"h": STATES["h"], **({"c": STATES["c"]} if kind == LSTM else {}), **first}
    outputs = ["loop:1", "loop:3", f"loop:{2 + len(states)}"]
    graph = network(
        by_mask(kind), states=states, row=row, outputs=outputs, fixed={"mask": BOOL},
        outside=[feed("mask", (TIMES, BATCH, 1), BOOL)],
    )  # fmt: skip
    masks = [random_mask(seed) for seed in range(3)]
    for mask in (*masks, np.zeros_like(masks[0]), np.ones_like(masks[0])):
        found = codes(check_graph(graph, {"x": X, "mask": mask}, ["y0", "y1", "y2"], 1e-5))
        assert kind in found
        assert "WHILE" not in found


@pytest.mark.parametrize("shape", [(TIMES + 2, BATCH, 1), (TIMES, 1, 1)], ids=["longer", "one row"])
def test_masks_of_other_sizes_stay(shape: tuple[int, ...]) -> None:
    states = {**STATES, "last": BLANK}
    graph = network(
        by_mask(LSTM), states=states, row="last_out", outputs=["loop:1", "loop:3"],
        fixed={"mask": BOOL}, outside=[feed("mask", shape, BOOL)],
    )  # fmt: skip
    mask = np.random.default_rng(1).random(shape) < 0.6
    assert "WHILE" in codes(check_graph(graph, {"x": X, "mask": mask}, ["y0", "y1"], 1e-5))


def test_held_rows_after_the_longest_sequence_stay() -> None:
    """The loop leaves the rows blank that it does not reach."""
    step = [*by_length(), op("last_out", "Select", ["ended", "last", "h_out_new"], T=FLOAT)]
    outside = [
        *(feed("lengths", (BATCH,), INT), const("zero", np.int32(0))),
        op("most", "Max", ["lengths", "zero"], T=INT, Tidx=INT, keep_dims=False),
    ]
    graph = network(
        step, states={**STATES, "last": numbers(BATCH, UNITS, seed=7)}, row="last_out",
        limit="most_in", fixed={"lengths": INT, "most": INT}, outside=outside,
    )  # fmt: skip
    feeds = {"x": X, "lengths": np.int32([2, 3])}
    assert "WHILE" in codes(check_graph(graph, feeds, ["y0"], 1e-5))
