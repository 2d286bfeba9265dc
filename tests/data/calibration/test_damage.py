"""Quantization error of each tensor."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.data.calibration.damage import (
    Counterpart,
    TensorDamage,
    counterparts,
    tensor_damage,
)
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.numerics.differences import HEALTHY_RMSE
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder


def _network() -> Graph:
    """Two convolutions with their biases, the first with an activation."""
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 32)),
            conv("conv", "x w"),
            const("b", normal(32, seed=1)),
            node("biased", "BiasAdd", "conv b"),
            node("relu", "Relu6", "biased"),
            # Converters write constants with control inputs.
            const("w2", normal(1, 1, 32, 40, seed=2), inputs="^x"),
            conv("out", "relu w2"),
        ]
    )


def _feeds(count: int = 2) -> list[dict[str, np.ndarray]]:
    return [{"x": normal(1, 6, 6, 4, seed=10 + i)} for i in range(count)]


def _by_name(tensors: tuple[TensorDamage, ...]) -> dict[str, TensorDamage]:
    return {tensor.tensor: tensor for tensor in tensors}


def test_identical_graphs_have_no_damage() -> None:
    tensors = tensor_damage(_network(), _network(), _feeds())
    assert [t.tensor for t in tensors] == ["conv", "biased", "relu", "out"]
    assert all(t.damage.sqnr == 200 and t.damage.cosine == pytest.approx(1) for t in tensors)
    # Two runs of 6 by 6 positions and 32 channels.
    assert tensors[0].damage.elements == 2 * 6 * 6 * 32


def test_no_feeds_give_no_result() -> None:
    assert tensor_damage(_network(), _network(), []) == ()


def test_weight_quantization_only_rounds_weights() -> None:
    quantized = apply("quantize_weights", _network()).graph
    damage = tensor_damage(_network(), quantized, _feeds())
    tensors = _by_name(damage)
    weights = [t for t in damage if t.is_weights]
    assert {(t.tensor, t.op) for t in weights} == {("w", "Const"), ("w2", "Const")}
    sizes = {"w": 3 * 3 * 4 * 32, "w2": 32 * 40}
    for tensor in weights:
        assert tensor.is_eightbit
        assert tensor.damage.elements == sizes[tensor.tensor]  # once for all runs
        assert tensor.damage.clipped == 0
        # With at least 1,152 weights, the standard error of the mean square is below 3 %.
        assert tensor.damage.rmse_over_scale == pytest.approx(HEALTHY_RMSE, rel=0.06)
    # Activations are still floats; the error of the weights propagates to them.
    assert not tensors["out"].is_eightbit
    assert tensors["out"].damage.clipped is None
    assert tensors["out"].damage.sqnr < tensors["conv"].damage.sqnr


def test_int8_activations_are_compared_and_sorted_by_damage() -> None:
    quantized = apply("quantize_nodes", _network()).graph
    damage = tensor_damage(_network(), quantized, _feeds())
    tensors = _by_name(damage)
    assert list(tensors)[-1] == "x"  # only rounded once
    assert {t.tensor for t in damage if t.is_eightbit} >= {"x", "conv", "biased", "relu", "out"}
    assert tensors["x"].damage.rmse_over_scale == pytest.approx(HEALTHY_RMSE, rel=0.15)
    order = [t.damage.sqnr for t in damage]
    assert order == sorted(order)
    assert 10 < tensors["out"].damage.sqnr < 40


def _with_range(low: float, high: float) -> Graph:
    """The network with an 8-bit range in place of the activation."""
    first = _network()
    return Graph(
        [
            *(n for n in first if n.name not in ("relu", "out", "w2")),
            const("biased_eightbit/min", low),
            const("biased_eightbit/max", high),
            node(
                "biased_eightbit/quantize",
                "QuantizeV2",
                "biased biased_eightbit/min biased_eightbit/max",
                T=DType.QUINT8,
                mode="MIN_FIRST",
            ),
            node(
                "out",
                "Dequantize",
                "biased_eightbit/quantize biased_eightbit/quantize:1 biased_eightbit/quantize:2",
                T=DType.QUINT8,
                mode="MIN_FIRST",
            ),
        ]
    )


def test_range_in_place_of_an_activation_is_its_counterpart() -> None:
    graph = Graph([n for n in _network() if n.name not in ("w2", "out")])
    graph = graph.with_nodes([*graph, node("out", "Identity", "relu")])
    damage = _by_name(tensor_damage(graph, _with_range(0, 6), _feeds()))
    assert "biased" in damage  # still a float
    assert not damage["biased"].is_eightbit
    assert damage["relu"].is_eightbit
    assert damage["relu"].damage.clipped == 0
    assert damage["relu"].damage.rmse_over_scale < HEALTHY_RMSE  # zeros and sixes are exact
    clipped = _by_name(tensor_damage(graph, _with_range(0, 3), _feeds()))["relu"].damage
    relu = np.maximum(_biased(graph), 0)
    assert clipped.clipped == pytest.approx(np.mean(np.minimum(relu, 6) > 3 + 1.5 / 255))


def _biased(graph: Graph) -> np.ndarray:
    return np.stack([Interpreter(graph).run(["biased"], feed)[0] for feed in _feeds()])


@pytest.mark.parametrize("transposed", [False, True])
def test_weights_with_per_channel_scales(transposed: bool) -> None:
    values = normal(20, 30) * np.linspace(0.1, 10, 30, dtype=np.float32)
    scales = np.abs(values).max(axis=0) / 127
    integers = (np.round(values / scales) + 128).astype(np.uint8)
    if transposed:
        values, integers = values.T, integers.T
    graph = Graph(
        [
            placeholder(),
            const("w", values),
            node("out", "MatMul", "x w", transpose_b=transposed, transpose_a=False),
        ]
    )
    stored = [
        constant("w_eightbit/values", Tensor.packed(np.ascontiguousarray(integers), DType.QUINT8)),
        const("w_eightbit/min", -128.0),
        const("w_eightbit/max", 127.0),
        const("w_eightbit/scales", scales),
    ]
    quantized = graph.with_nodes([*graph, *stored])
    weights = _by_name(tensor_damage(graph, quantized, [{"x": normal(2, 20)}]))["w"]
    assert weights.is_weights
    assert weights.damage.clipped == 0
    assert weights.damage.rmse_over_scale == pytest.approx(HEALTHY_RMSE, rel=0.1)


def test_conditional_and_constant_nodes_have_no_counterparts() -> None:
    graph = Graph(
        [
            placeholder(),
            const("yes", True, bool),
            const("c", [1.0]),
            node("fixed", "Neg", "c"),
            node("switch", "Switch", "x yes"),
            node("branch", "Neg", "switch:1"),
            node("out", "Neg", "x"),
        ]
    )
    assert counterparts(graph, graph, ("x",)) == [Counterpart(("out", 0), Ref("out"))]


def test_tensors_of_different_shapes_are_not_compared() -> None:
    graph = Graph([placeholder(), const("w", normal(4, 8)), node("out", "MatMul", "x w")])
    other = graph.with_nodes([graph["x"], const("w", normal(4, 9)), graph["out"]])
    assert tensor_damage(graph, other, [{"x": normal(1, 4)}]) == ()
