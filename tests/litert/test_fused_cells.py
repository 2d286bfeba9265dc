"""Loops over LSTM and RNN cells become one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.bodies import Body, function_of
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.litert.affine import AffineForms
from mobileprep.litert.convert import Mode, converted
from mobileprep.litert.prepare import CutInput
from mobileprep.ops.shape_inference import infer_shapes
from tests.litert.graphs import codes, const, expected, feed, op
from tests.litert.one_op import check_graph, numbers

FLOAT, INT, BOOL = DType.FLOAT, DType.INT32, DType.BOOL
TIMES, BATCH, INPUTS, UNITS = 5, 2, 3, 4
X = numbers(TIMES, BATCH, INPUTS, seed=1)
LSTM, RNN = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"
W = const("W", numbers(INPUTS, 4 * UNITS, seed=2))
U = const("U", numbers(UNITS, 4 * UNITS, seed=3))
B = const("B", numbers(4 * UNITS, seed=4))


def f(name: str, kind: str, inputs: str, **attrs: Any) -> Node:
    """A node on floats; "Const" inputs come from other nodes."""
    return op(name, kind, inputs.split(), T=FLOAT, **attrs)


def split(count: int = 4) -> list[Node]:
    return [const("one", np.int32(1)), f("parts", "Split", "one sum", num_split=count)]


def product(name: str, inputs: str) -> Node:
    return f(name, "MatMul", inputs, transpose_a=False, transpose_b=False)


def joined(name: str, inputs: str) -> Node:
    return f(name, "ConcatV2", inputs, N=2, Tidx=INT)


SUM = [
    *(W, U, B, product("xW", "x_t W"), product("hU", "h U")),
    *(f("both", "AddV2", "xW hU"), f("sum", "BiasAdd", "both B"), *split()),
]
JOINED = [
    const("WU", np.concatenate([numbers(INPUTS, 4 * UNITS), numbers(UNITS, 4 * UNITS)])),
    *(B, *split(), joined("xh", "x_t h one"), product("both", "xh WU")),
    f("sum", "BiasAdd", "both B"),
]


def cell(
    i: str = "parts", f_: str = "parts:1", g: str = "parts:2", o: str = "parts:3", act: str = "Tanh"
) -> list[Node]:
    """The equations of an LSTM; ``c_out`` and ``h_out`` are the new state and output."""
    return [
        *(f("i", "Sigmoid", i), f("f", "Sigmoid", f_), f("g", act, g), f("o", "Sigmoid", o)),
        *(f("fc", "Mul", "f c"), f("ig", "Mul", "i g"), f("c_out", "AddV2", "fc ig")),
        *(f("ca", act, "c_out"), f("h_out", "Mul", "o ca")),
    ]


def function(name: str, args: Mapping[str, DType], nodes: Sequence[Node], rets: str) -> Function:
    kinds = list(args.values()) if name == "body" else [BOOL]
    outputs = tuple(ArgDef(f"ret_{i}", kind) for i, kind in enumerate(kinds))
    inputs = tuple(ArgDef(arg, kind) for arg, kind in args.items())
    body = Body(tuple(map(parse_ref, args)), tuple(nodes), tuple(map(parse_ref, rets.split())))
    return function_of(body, Function(OpDef(name, inputs, outputs)), Library())


def network(
    step: Sequence[Node],
    *,
    states: Mapping[str, Array] | None = None,
    row: str = "h_out",
    limit: int | str = TIMES,
    first: int = 0,
    batch: int = BATCH,
    outputs: Sequence[str] = ("loop:1",),
    fixed: Mapping[str, DType] | None = None,
    outside: Sequence[Node] = (),
    width: int = 0,
) -> Graph:
    """A loop with the arguments t, rows, x, the states, and fixed tensors from outside.

    It has one output for each given one.
    """
    fixed = fixed or {}
    states = (
        {"h": numbers(BATCH, UNITS, seed=5), "c": numbers(BATCH, UNITS, seed=6)}
        if (states is None)
        else states
    )
    args = {"t": INT, "rows": FLOAT, "x": FLOAT, **dict.fromkeys(states, FLOAT)}
    args |= {f"{name}_in": kind for name, kind in fixed.items()}
    width = width or next(iter(states.values())).shape[1]
    cond = function(
        "cond",
        args,
        [
            *([] if isinstance(limit, str) else [const("limit", np.int32(limit))]),
            op("less", "Less", ["t", limit if isinstance(limit, str) else "limit"], T=INT),
        ],
        "less",
    )
    kinds = dict.fromkeys(("Tindices", "Taxis"), INT)
    nodes = [
        *(const("axis", np.int32(0)), const("step", np.int32(1)), *step),
        op("x_t", "GatherV2", ["x", "t", "axis"], Tparams=FLOAT, batch_dims=0, **kinds),
        op("next", "AddV2", ["t", "step"], T=INT),
        op("place", "Reshape", ["t", "ones"], T=INT, Tshape=INT),
        const("ones", np.array([1, 1], np.int32)),
        op("wide", "ExpandDims", [row, "axis"], T=FLOAT, Tdim=INT),
        op("write", "TensorScatterUpdate", ["rows", "place", "wide"], T=FLOAT, Tindices=INT),
    ]
    body = function(
        "body",
        args,
        nodes,
        " ".join(
            ["next", "write", "x", *(f"{s}_out" for s in states), *(f"{s}_in" for s in fixed)]
        ),
    )
    loop = op(
        "loop",
        "StatelessWhile",
        ["start", "blank", "x", *(f"{s}0" for s in states), *fixed],
        T=AttrValue("list(type)", tuple(args.values())),
        cond=AttrValue("func", FuncRef("cond")),
        body=AttrValue("func", FuncRef("body")),
        output_shapes=AttrValue("list", ()),
    )
    ends = [f(f"y{i}", "Neg", source) for i, source in enumerate(outputs)]
    graph = [
        *(feed("x", (TIMES, batch, INPUTS)), const("start", np.int32(first))),
        const("blank", np.zeros((TIMES, BATCH, width), np.float32)),
        *(const(f"{name}0", value) for name, value in states.items()),
        *(*outside, loop, *ends),
    ]
    return Graph(graph, Library({"cond": cond, "body": body}))


def operators(graph: Graph, outputs: Sequence[str] = ("y0",)) -> list[str]:
    """The operators of the file, whose results match those of the loop."""
    return codes(check_graph(graph, {"x": X}, list(outputs), 1e-5))


@pytest.mark.parametrize("outputs", [["loop:1"], ["loop:3"], ["loop:4"], ["loop:1", "loop:4"]])
@pytest.mark.parametrize("gates", [SUM, JOINED], ids=["sum", "joined"])
def test_lstm(gates: list[Node], outputs: list[str]) -> None:
    graph = network([*gates, *cell()], outputs=outputs)
    found = operators(graph, [f"y{i}" for i in range(len(outputs))])
    assert found.count(LSTM) == 1
    assert "WHILE" not in found


def test_gates_in_any_order() -> None:
    graph = network([*SUM, *cell(i="parts:3", f_="parts:2", g="parts", o="parts:1")])
    assert LSTM in operators(graph)


def test_forget_bias_and_relu() -> None:
    more = [const("bias", np.float32(0.5)), f("biased", "AddV2", "parts:1 bias")]
    graph = network([*SUM, *more, *cell(f_="biased", act="Relu")])
    assert LSTM in operators(graph)


def test_peepholes_and_clipping() -> None:
    more = [
        *(const(f"p{k}", numbers(UNITS, seed=20 + k)) for k in range(3)),
        *(f("pi", "Mul", "c p0"), f("pf", "Mul", "p1 c"), f("po", "Mul", "c_out p2")),
        f("zi", "AddV2", "parts pi"),
        f("zf", "AddV2", "pf parts:1"),
        f("zo", "AddV2", "parts:3 po"),
        *(const("high", np.float32(0.3)), const("low", np.float32(-0.3))),
        f("below", "Minimum", "c_sum high"),
        f("c_out", "Maximum", "below low"),
    ]
    own = [
        f("c_sum", n.op, "fc ig") if n.name == "c_out" else n for n in cell(i="zi", f_="zf", o="zo")
    ]
    assert LSTM in operators(network([*SUM, *more, *own]))


def test_projection() -> None:
    step = [
        *(W, const("U", numbers(2, 4 * UNITS, seed=3)), B),
        *SUM[3:],
        *(f("m", "Mul", "o ca") if n.name == "h_out" else n for n in cell()),
        const("P", numbers(UNITS, 2, seed=9)),
        product("h_out", "m P"),
    ]
    states = {"h": numbers(BATCH, 2, seed=5), "c": numbers(BATCH, UNITS, seed=6)}
    assert LSTM in operators(network(step, states=states))


def test_two_cells_of_which_one_reads_the_other() -> None:
    second = [
        *(const("W2", numbers(UNITS, UNITS, seed=30)), const("U2", numbers(UNITS, UNITS, seed=31))),
        *(product("hW", "h_out W2"), product("kU", "k U2")),
        *(f("k_sum", "AddV2", "hW kU"), f("k_out", "Tanh", "k_sum")),
    ]
    states = {name: numbers(BATCH, UNITS, seed=k) for k, name in enumerate(("h", "c", "k"))}
    graph = network(
        [*SUM, *cell(), *second], states=states, row="k_out", outputs=["loop:1", "loop:4"]
    )
    found = operators(graph, ["y0", "y1"])
    assert (found.count(LSTM), found.count(RNN)) == (1, 1)


def test_rnn_from_zeros() -> None:
    step = [
        *(const("W", numbers(INPUTS, UNITS, seed=2)), const("U", numbers(UNITS, UNITS, seed=3))),
        *SUM[3:6],
        f("h_out", "Relu", "both"),
    ]
    states = {"h": np.zeros((BATCH, UNITS), np.float32)}
    found = operators(network(step, states=states, outputs=["loop:1", "loop:3"]), ["y0", "y1"])
    assert RNN in found
    assert found.count("ZEROS_LIKE") == 1


def with_open_batch(graph: Graph, units: int) -> Graph:
    """The loop from zeros, for any number of sequences."""
    sizes = {"blank": [TIMES, None, units], "h0": [None, units], "c0": [None, units]}
    kinds = dict.fromkeys(("Tparams", "Tindices", "Taxis"), INT)
    nodes = [
        feed("x", (TIMES, -1, INPUTS)),
        op("sizes", "Shape", ["x"], T=FLOAT, out_type=INT),
        *(const(f"n{n}", np.int32(n)) for n in (0, 1, TIMES, units)),
        op("batch", "GatherV2", ["sizes", "n1", "n0"], batch_dims=0, **kinds),
        const("nothing", np.float32(0)),
    ]
    for name, parts in sizes.items():
        inputs = ["batch" if part is None else f"n{part}" for part in parts]
        nodes.append(op(f"{name}_sizes", "Pack", inputs, N=len(parts), T=INT, axis=0))
        fill = op(name, "Fill", [f"{name}_sizes", "nothing"], T=FLOAT, index_type=INT)
        nodes.append(fill)
    rest = [n for n in graph if n.name not in ("x", *sizes)]
    return Graph([*nodes, *rest], graph.library)


@pytest.mark.parametrize("mode", ["float", "float16"])
def test_open_batch(mode: Mode) -> None:
    """Runtimes lose decompressed weights when the size of a variable changes."""
    units = 40
    step = [
        const("W", 0.3 * numbers(INPUTS, 4 * units, seed=2)),
        const("U", 0.1 * numbers(units, 4 * units, seed=3)),
        *(const("B", numbers(4 * units, seed=4)), *SUM[3:], *cell()),
    ]
    states = dict.fromkeys("hc", np.zeros((BATCH, units), np.float32))
    graph = with_open_batch(network(step, states=states), units)
    record = converted(graph, [CutInput("x")], ["y0"], mode=mode)
    operator, other = (LSTM, "WHILE") if mode == "float" else ("WHILE", LSTM)
    assert operator in codes(record)
    assert other not in codes(record)
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    runner = interpreter(model_content=bytes(model_bytes(record)))
    (index,) = (entry["index"] for entry in runner.get_input_details())
    for batch in (1, 4, 3):
        x = numbers(TIMES, batch, INPUTS, seed=batch)
        runner.resize_tensor_input(index, x.shape)
        runner.allocate_tensors()
        runner.set_tensor(index, x)
        runner.invoke()
        (found,) = (runner.get_tensor(entry["index"]) for entry in runner.get_output_details())
        (wanted,) = expected(graph, {"x": x}, ["y0"])
        np.testing.assert_allclose(found, wanted, atol=1e-5 if mode == "float" else 5e-3)


def test_open_batch_beside_an_open_size() -> None:
    """A delegate may move a Fill of computed size, which is after the LSTM, before it."""
    states = dict.fromkeys("hc", np.zeros((BATCH, UNITS), np.float32))
    graph = with_open_batch(network([*SUM, *cell()], states=states), UNITS)
    more = [
        *(op("pair", "Pack", ["batch"], N=1, T=INT, axis=0), const("seven", np.int32(7))),
        op("more", "Fill", ["pair", "seven"], T=INT, index_type=INT),
    ]
    assert LSTM in codes(converted(graph, [CutInput("x")], ["y0"]))
    wider = Graph([*graph, *more], graph.library)
    assert "WHILE" in codes(converted(wider, [CutInput("x")], ["y0", "more"]))


@pytest.mark.parametrize(
    "graph",
    [
        network([*SUM, *cell(act="Softsign")]),
        network([*SUM, *cell()], limit=TIMES - 1),
        network([*SUM, *cell()], first=1),
        network([*SUM, *cell()], row="ca"),
        network([*SUM, *cell(o="ca")]),
        network([*SUM, *cell(f_="g")]),
    ],
    ids=["activation", "fewer turns", "later start", "other rows", "output gate", "forget gate"],
)
def test_other_loops_stay(graph: Graph) -> None:
    assert "WHILE" in operators(graph)


def unrolled(steps: int, outputs: Sequence[str]) -> Graph:
    """The cells of all steps one after another, each with its own nodes."""
    nodes = [
        feed("x", (BATCH, steps, INPUTS)),
        op("rows", "Unpack", ["x"], T=FLOAT, num=steps, axis=1),
    ]
    nodes += [W, U, B, const("one", np.int32(1))]
    shared = {"W", "U", "B", "one"}
    nodes += [const(f"{n}0", numbers(BATCH, UNITS, seed=5 + k)) for k, n in enumerate("hc")]
    for t in range(1, steps + 1):
        names = {"x_t": f"rows:{t - 1}", "h": f"h{t - 1}", "c": f"c{t - 1}"}
        names |= {"h_out": f"h{t}", "c_out": f"c{t}"}
        for n in (*SUM, *cell()):
            if n.op != "Const":
                refs = [str(r).removesuffix(":0") for r in n.inputs]
                moved = [r if r in shared else names.get(r, f"s{t}_{r}") for r in refs]
                name = names.get(n.name, f"s{t}_{n.name}")
                nodes.append(Node(name, n.op, tuple(map(parse_ref, moved)), "", n.attrs))
    return Graph([*nodes, *(f(f"y{i}", "Neg", source) for i, source in enumerate(outputs))])


@pytest.mark.parametrize("outputs", [["h6"], ["h6", "c6"], ["h2", "h5"]], ids=str)
def test_unrolled_lstm(outputs: list[str]) -> None:
    x = {"x": numbers(BATCH, 6, INPUTS, seed=1)}
    ends = [f"y{i}" for i in range(len(outputs))]
    found = codes(check_graph(unrolled(6, outputs), x, ends, 1e-5))
    assert found.count(LSTM) == 1
    # The first step gives the sequence its state.
    assert found.count("FULLY_CONNECTED") == 1


def test_read_state_of_an_inner_step_keeps_the_cells() -> None:
    x = {"x": numbers(BATCH, 6, INPUTS, seed=1)}
    assert LSTM not in codes(check_graph(unrolled(6, ["h6", "c3"]), x, ["y0", "y1"], 1e-5))


def test_affine_form_of_a_sum_of_products() -> None:
    nodes = [
        *(feed("x", (2, 3)), feed("h", (2, 2))),
        *(const("W", np.arange(6, dtype=np.float32).reshape(3, 2)), const("s", np.float32(2))),
        *(
            const("b", np.array([1, -1], np.float32)),
            product("xW", "x W"),
            f("twice", "Mul", "xW s"),
        ),
        *(f("less", "Sub", "twice h"), f("y", "BiasAdd", "less b")),
    ]
    graph = Graph(nodes)
    form = AffineForms(graph, infer_shapes(graph)).of(parse_ref("y"))
    assert form is not None
    np.testing.assert_array_equal(form.bias, [1, -1])
    np.testing.assert_array_equal(form.matrix(("x", 0)), [[0, 2], [4, 6], [8, 10]])
    np.testing.assert_array_equal(form.matrix(("h", 0)), [[-1, 0], [0, -1]])


def test_constant_that_waits_for_a_fused_loop() -> None:
    size = op("size", "Shape", ["loop:1"], T=FLOAT, out_type=INT)
    graph = network([*SUM, *cell()])
    assert LSTM in operators(graph.with_nodes([*graph, size]), ["y0", "size"])
