"""Costs of graphs."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.accounting.costs import (
    Executed,
    GraphCosts,
    Recorder,
    TensorLayout,
    executed_costs,
    inferred_costs,
    peak_bytes,
    run_costs,
    sample_costs,
)
from mobileprep.runtime.functions.inline import inline_calls
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.runtime.functions.texts import T, body, function, model
from tests.transforms.graphs import const, conv, node, normal, placeholder

SHAPE = (1, 8, 8, 3)


def network() -> Graph:
    """A convolution with 8 x 8 x 4 outputs, a view, an activation, and a sum of both."""
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 3, 4)),
            conv("conv", "x w"),
            node("same", "Identity", "conv"),
            node("relu", "Relu", "same"),
            node("out", "AddV2", "conv relu"),
            const("unused", normal(100)),
        ]
    )


def observed_costs(graph: Graph, x: np.ndarray, fetch: str = "out") -> GraphCosts:
    recorder = Recorder()
    Interpreter(graph, combine=False, observer=recorder).run([fetch], {"x": x})
    return executed_costs(graph, recorder.ran, {("x", 0): TensorLayout.of(x)}, [(fetch, 0)])


@pytest.fixture(params=["inferred", "observed"])
def costs(request: pytest.FixtureRequest) -> GraphCosts:
    if request.param == "inferred":
        return inferred_costs(network(), ["out"], {"x": SHAPE})
    return observed_costs(network(), normal(*SHAPE))


def test_flops_by_op(costs: GraphCosts) -> None:
    # Equal counts are sorted by name.
    assert list(costs.flops_by_op.items()) == [
        ("Conv2D", 2 * 256 * 27),
        ("AddV2", 256),
        ("Relu", 256),
    ]
    assert costs.flops == 2 * 256 * 27 + 512
    assert costs.uncounted == ()


def test_unused_parameters_are_not_counted(costs: GraphCosts) -> None:
    assert (costs.parameters, costs.parameter_bytes) == (108, 432)


def test_memory_traffic(costs: GraphCosts) -> None:
    traffic = {n.name: (n.read, n.written) for n in costs.nodes}
    assert traffic == {
        "conv": (192 * 4 + 432, 1024),
        "same": (0, 0),
        "relu": (1024, 1024),
        "out": (2048, 1024),
    }
    assert costs.moved == 1200 + 1024 + 2048 + 3072


def test_peak_memory(costs: GraphCosts) -> None:
    # The sum needs the convolution, its activation, and itself.
    assert costs.peak_bytes == 3 * 1024


def test_gather_reads_only_its_rows() -> None:
    graph = Graph(
        [
            placeholder(),
            const("rows", [0, 2], np.int32),
            const("axis", 0, np.int32),
            node("out", "GatherV2", "x rows axis", Tindices=None),
        ]
    )
    [cost] = observed_costs(graph, normal(1000, 4)).nodes
    assert (cost.read, cost.written) == (32 + 8 + 4, 32)


def test_loop_executions_add_up() -> None:
    recorder = Recorder()
    relu = node("relu", "Relu", "x")
    for _ in range(3):
        recorder([relu], 0.0, 0.0, [normal(4)])
    graph = Graph([placeholder(), relu])
    [cost] = executed_costs(graph, recorder.ran, {("x", 0): TensorLayout((4,), 4)}, []).nodes
    assert (cost.calls, cost.flops, cost.moved) == (3, 12, 96)


@pytest.mark.parametrize(("fetch", "feed"), [("none", "x"), ("out", "none")])
def test_missing_tensors_are_refused(fetch: str, feed: str) -> None:
    with pytest.raises(UsageError, match="'none' is not in the graph"):
        inferred_costs(network(), [fetch], {feed: SHAPE})


def test_ops_with_unknown_shapes_are_uncounted() -> None:
    costs = inferred_costs(network(), ["out"], {"x": (-1, 8, 8, 3)})
    assert costs.flops == 0
    assert costs.uncounted == ("AddV2", "Conv2D", "Relu")


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


def executed(name: str, op: str, inputs: str, nbytes: int) -> Executed:
    return Executed(node(name, op, inputs), (TensorLayout((nbytes,), 1),))


CHAIN = [
    executed("a", "Relu", "x", 10),
    executed("b", "Relu", "a", 10),
    executed("c", "Relu", "b", 10),
]
FED = {("x", 0): TensorLayout((10,), 1)}


def test_chain_needs_two_tensors() -> None:
    assert peak_bytes(CHAIN, FED, [("c", 0)]) == 20


def test_tensor_is_held_until_its_last_use() -> None:
    late = [*CHAIN, executed("d", "AddV2", "c a", 1)]
    assert peak_bytes(late, FED, [("d", 0)]) == 30


def test_fetched_tensors_are_held() -> None:
    assert peak_bytes(CHAIN, FED, [("a", 0), ("c", 0)]) == 30


def test_views_share_memory() -> None:
    viewed = [
        executed("a", "Relu", "x", 10),
        executed("v", "Reshape", "a s", 10),
        executed("b", "Relu", "v", 10),
    ]
    assert peak_bytes(viewed, FED, [("b", 0)]) == 20


def test_views_of_constants_are_free() -> None:
    assert peak_bytes([executed("v", "Identity", "weights", 1000)], {}, [("v", 0)]) == 0


def test_next_iteration_frees_the_previous() -> None:
    twice = [executed("a", "Relu", "x", 10), executed("a", "Relu", "x", 10)]
    assert peak_bytes(twice, FED, []) == 20


def test_unknown_sizes_are_zero() -> None:
    assert TensorLayout(None, 4).nbytes == 0
    assert TensorLayout((-1, 3), 4).nbytes == 0
    assert TensorLayout((), 4).nbytes == 4


def test_view_without_inputs_has_its_own_memory() -> None:
    assert peak_bytes([executed("v", "Identity", "", 10)], {}, [("v", 0)]) == 10


def test_fed_tensors_are_held_until_their_last_use() -> None:
    fed = {("x", 0): TensorLayout((10,), 1), ("z", 0): TensorLayout((5,), 1)}
    steps = [executed("a", "Relu", "x", 10), executed("b", "AddV2", "a z", 1)]
    assert peak_bytes(steps, fed, []) == 25
    assert peak_bytes([], fed, []) == 15


def test_every_output_is_counted() -> None:
    two = Executed(node("s", "Split", "axis x"), (TensorLayout((3,), 4), TensorLayout((2,), 4)))
    assert peak_bytes([two], FED, []) == 30
    later = executed("b", "Relu", "s:1", 1)
    # The first output has no reader and is freed before the second is read.
    assert peak_bytes([two, later], {}, [("b", 0)]) == 20
    assert peak_bytes([two, executed("b", "Relu", "s:1", 20)], {}, [("b", 0)]) == 28
