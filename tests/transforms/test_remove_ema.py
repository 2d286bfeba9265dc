"""remove_ema: fake quantization with the range that training left."""

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, placeholder, shown


def _graph(op="AssignSub", average=None):
    return Graph(
        [
            placeholder(),
            average or const("min", -1.0),
            const("max", 1.0),
            const("decay", 0.01),
            node("least", "Min", "x axes", Tidx=DType.INT32),
            const("axes", [0], "int32"),
            node("gap", "Sub", "min least"),
            node("step", "Mul", "gap decay"),
            node("update", op, "min step"),
            node("passed", "Identity", "update"),
            node("out", "FakeQuantWithMinMaxVars", "x passed max", T=None, num_bits=8),
        ]
    )


@pytest.mark.parametrize("op", ["Assign", "AssignSub", "AssignAdd"])
def test_golden(op):
    result = apply("remove_ema", _graph(op))
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "min = Const() value=float32[]:-1\n"
        "max = Const() value=float32[]:1\n"
        "out = FakeQuantWithMinMaxVars(x, min, max) num_bits=8"
    )


def test_a_variable_is_read_as_it_is():
    variable = node("min", "VariableV2", T=None, dtype=DType.FLOAT)
    after = apply("remove_ema", _graph(average=variable)).graph
    assert [str(r) for r in after["out"].inputs] == ["x", "min", "max"]


def test_a_range_that_is_computed_stays():
    graph = _graph("Sub")
    assert apply("remove_ema", graph).graph is graph


def test_other_ops_keep_their_inputs():
    graph = Graph([*_graph().nodes[:-1], node("out", "Relu", "passed")])
    assert apply("remove_ema", graph).graph is graph


def test_an_update_that_is_fetched_stays():
    after = apply("remove_ema", _graph(), outputs=("out", "update")).graph
    assert {"update", "step", "gap", "least", "decay"} <= {n.name for n in after}
    assert "passed" not in after
