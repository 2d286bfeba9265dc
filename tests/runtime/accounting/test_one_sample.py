"""Cost of one sample for graphs with function calls and loops."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.accounting.costs import run_costs, sample_costs
from mobileprep.runtime.functions.inline import inline_calls
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.runtime.functions.texts import T, body, function, model

TURNS = 3
X = FedTensor("x", DType.FLOAT, (4,))


def _constant(name: str, *values: float) -> str:
    shape = f"dim {{ size: {len(values)} }}" if len(values) > 1 else ""
    content = np.asarray(values, np.float32).tobytes()
    escaped = "".join(f"\\{byte:03o}" for byte in content)
    return f"""node_def {{ name: "{name}" op: "Const"
        attr {{ key: "dtype" value {{ type: DT_FLOAT }} }}
        attr {{ key: "value" value {{ tensor {{ dtype: DT_FLOAT tensor_shape {{ {shape} }}
            tensor_content: "{escaped}" }} }} }} }}"""


def _loop(step: str = "n Mul a w:output:0", out: str = "n:z:0") -> Graph:
    """x times four weights, three times, in a functional loop with known shapes."""
    condition = f"{_constant('most', TURNS)} {body('less Less i most:output:0')}"
    test = function("c", "i a", condition, go="less:z:0").replace(
        'name: "go" type: DT_FLOAT', 'name: "go" type: DT_BOOL'
    )
    constants = f"{_constant('w', 1, 2, 3, 4)} {_constant('one', 1)}"
    turn = function(
        "b", "i a", f"{constants} {body('next Add i one:output:0', step)}", more="next:z:0", out=out
    )
    nodes = f"""node {{ name: "x" op: "Placeholder"
            attr {{ key: "dtype" value {{ type: DT_FLOAT }} }}
            attr {{ key: "shape" value {{ shape {{ dim {{ size: 4 }} }} }} }} }}
        {_constant("zero", 0).replace("node_def", "node")}
        node {{ name: "w" op: "StatelessWhile" input: "zero" input: "x"
            attr {{ key: "T" value {{ list {{ type: DT_FLOAT type: DT_FLOAT }} }} }}
            attr {{ key: "cond" value {{ func {{ name: "c" }} }} }}
            attr {{ key: "body" value {{ func {{ name: "b" }} }} }}
            attr {{ key: "output_shapes" value {{ list {{
                shape {{ }} shape {{ dim {{ size: 4 }} }} }} }} }} }}
        node {{ name: "y" op: "Neg" input: "w:1" {T} }}"""
    return model(nodes, test, turn)


def _lowered_loop() -> Graph:
    return inline_calls(_loop(), ["y"], "", lower_control_flow=True)


# Four products and a counter increment per iteration, one more comparison, and the negation.
FLOPS = TURNS * (4 + 1) + TURNS + 1 + 4


@pytest.mark.parametrize("graph", [_loop(), _lowered_loop()], ids=["functions", "switches"])
def test_loop_is_counted_per_iteration(graph: Graph) -> None:
    costs = sample_costs(graph, [X], ["y"])
    assert (costs.flops, costs.uncounted) == (FLOPS, ())


@pytest.mark.parametrize("graph", [_loop(), _lowered_loop()], ids=["functions", "switches"])
def test_function_constants_are_parameters(graph: Graph) -> None:
    costs = run_costs(graph, {"x": np.zeros(4, np.float32)}, ["y"])
    # The weights, one, zero, and the number of iterations.
    assert (costs.parameters, costs.parameter_bytes) == (7, 28)
    [product] = [n for n in costs.nodes if n.op == "Mul"]
    assert product.read == TURNS * 2 * 16


def test_loop_that_cannot_run_is_uncounted() -> None:
    costs = sample_costs(_loop("n BesselI0e a", "n:y:0"), [X], ["y"])
    assert (costs.flops, costs.uncounted) == (4, ("StatelessWhile",))


def test_fed_loop_is_not_counted() -> None:
    costs = sample_costs(_loop(), [FedTensor("w:1", DType.FLOAT, (4,))], ["y"])
    assert costs.flops == 4
