"""The size of a Fill follows from the tensor whose batch it has."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from tests.litert.graphs import codes, const, expected, feed, op
from tests.litert.one_op import numbers
from tests.litert.test_fused_cells import BATCH, INPUTS, LSTM, UNITS, f, unrolled

FLOAT, INT = DType.FLOAT, DType.INT32


def size(axis: int, kind: DType = FLOAT) -> list[Node]:
    """The size of an axis of x as a scalar."""
    return [
        op("sizes", "Shape", ["x"], T=kind, out_type=INT),
        *(const("from", np.int32([axis])), const("to", np.int32([axis + 1]))),
        const("by", np.int32([1])),
        op("batch", "StridedSlice", ["sizes", "from", "to", "by"], T=INT, Index=INT,
           shrink_axis_mask=1, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0),
    ]  # fmt: skip


def filled(name: str, value: float, width: int) -> list[Node]:
    return [
        *(const(f"{name}_width", np.int32(width)), const(f"{name}_value", np.float32(value))),
        op(f"{name}_sizes", "Pack", ["batch", f"{name}_width"], N=2, T=INT, axis=0),
        op(name, "Fill", [f"{name}_sizes", f"{name}_value"], T=FLOAT, index_type=INT),
    ]


@pytest.mark.parametrize("value", [0.0, -1.5])
@pytest.mark.parametrize(
    ("axis", "shape", "kind"),
    [(0, (-1, 3), FLOAT), (1, (2, -1, 3), FLOAT), (0, (-1, 4), INT)],
    ids=["rows", "second axis", "integers"],
)
def test_fill_of_an_open_size(value: float, axis: int, shape: tuple[int, ...], kind: DType) -> None:
    graph = Graph([feed("x", shape, kind), *size(axis, kind), *filled("y", value, 5)])
    record = converted(graph, [CutInput("x")], ["y"])
    assert "FILL" not in codes(record)
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    runner = interpreter(model_content=bytes(model_bytes(record)))
    (index,) = (entry["index"] for entry in runner.get_input_details())
    for batch in (3, 1):
        x = np.full([batch if n < 0 else n for n in shape], 7, kind.numpy)
        if kind is FLOAT:
            x[:] = np.nan
        runner.resize_tensor_input(index, x.shape)
        runner.allocate_tensors()
        runner.set_tensor(index, x)
        runner.invoke()
        (result,) = (runner.get_tensor(entry["index"]) for entry in runner.get_output_details())
        np.testing.assert_array_equal(result, np.full((batch, 5), value, np.float32))


def test_fill_of_a_computed_size_stays() -> None:
    nodes = [
        *(feed("x", (-1, 3)), *size(0), const("two", np.int32(2))),
        op("twice", "Mul", ["batch", "two"], T=INT),
    ]
    sizes = op("y_sizes", "Pack", ["twice", "y_width"], N=2, T=INT, axis=0)
    more = [sizes if n.name == "y_sizes" else n for n in filled("y", 1.0, 5)]
    assert "FILL" in codes(converted(Graph([*nodes, *more]), [CutInput("x")], ["y"]))


@pytest.mark.parametrize("is_shared", [False, True], ids=["two states", "one tensor"])
def test_unrolled_lstm_from_zeros_with_an_open_batch(is_shared: bool) -> None:
    graph = unrolled(6, ["h6"])
    states = {f"{name}0" for name in "hc"}
    nodes = [feed("x", (-1, 6, INPUTS)), *size(0), *filled("h0", 0, UNITS), *filled("c0", 0, UNITS)]
    if is_shared:
        nodes[-1] = f("c0", "Identity", "h0")
    graph = Graph([*nodes, *(n for n in graph if n.name != "x" and n.name not in states)])
    record = converted(graph, [CutInput("x")], ["y0"])
    # All steps, also the first, are in the operator.
    assert LSTM in codes(record)
    assert "FULLY_CONNECTED" not in codes(record)
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    runner = interpreter(model_content=bytes(model_bytes(record)))
    (index,) = (entry["index"] for entry in runner.get_input_details())
    for batch in (BATCH, 1, 5):
        x = numbers(batch, 6, INPUTS, seed=batch)
        runner.resize_tensor_input(index, x.shape)
        runner.allocate_tensors()
        for _ in range(2):
            runner.set_tensor(index, x)
            runner.invoke()
            (result,) = (runner.get_tensor(e["index"]) for e in runner.get_output_details())
            (wanted,) = expected(graph, {"x": x}, ["y0"])
            np.testing.assert_allclose(result, wanted, atol=1e-5)
