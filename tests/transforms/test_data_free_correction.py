"""Correction without data: by the statistics that batch normalizations tell."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import mobileprep
from mobileprep.errors import TransformError
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.statistics import (
    ChannelStatistics,
    changed_statistics,
    statistics_of,
    with_statistics,
    without_statistics,
)
from mobileprep.transforms.correct_bias import channel_means, clipped_means
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run

BETA, GAMMA = np.array([5.0, -1.0, 0.0]), np.array([1.0, -2.0, 0.5])
INNER = 1 / math.sqrt(2 * math.pi)
# Values of the normal distribution as tables have them: P(0.5), P(1), p(0.5), p(1).
P_HALF, P_ONE, D_HALF, D_ONE = 0.6914625, 0.8413447, 0.3520653, 0.2419707


def statistics(means, deviations) -> ChannelStatistics:
    return ChannelStatistics(np.asarray(means, np.float64), np.asarray(deviations, np.float64))


def network(activation: str = "Relu", norm: str = "FusedBatchNorm", w2=None) -> Graph:
    """Two 1x1 convolutions with a normalization between; 3 channels between them."""
    vectors = {"gamma": GAMMA, "beta": BETA, "mean": [0.5, -1, 2], "variance": [1, 4, 2]}
    return Graph(
        [
            placeholder(),
            const("w", normal(1, 1, 4, 3, seed=1)),
            conv("layer", "x w"),
            *(const(name, values) for name, values in vectors.items()),
            node(
                "norm", norm, "layer gamma beta mean variance",
                is_training=False, epsilon=0.0, data_format="NHWC",
            ),
            node("act", activation, "norm"),
            const("w2", normal(1, 1, 3, 2, seed=2) if w2 is None else w2),
            conv("out", "act w2"),
        ]
    )  # fmt: skip


def fused(graph: Graph) -> Graph:
    return apply("fuse_batch_norms", graph, keep_statistics=True).graph


def test_mean_of_a_clipped_normal_distribution():
    found = clipped_means(statistics([0, 1, 3, 7, -2, 2], [1, 2, 1, 0, 0, 0]), 0.0, 6.0)
    # By hand: a half's density; of 1 and 2, cut at -0.5 and at 2.5 deviations; as much cut at
    # either end; and what does not vary.
    above = 0.0062097  # 1 - P(2.5)
    second = 6 * above + (P_HALF - above) + 2 * (D_HALF - 0.0175283)
    assert found == pytest.approx([INNER, second, 3, 6, 0, 2], abs=1e-6)


def test_without_ends_the_mean_stays():
    found = clipped_means(statistics([1, -4], [2, 0.1]), -math.inf, math.inf)
    assert found == pytest.approx([1, -4])


def test_clipped_means_are_those_of_many_numbers():
    given = statistics([0.3, -2, 5.5], [1.5, 1, 3])
    drawn = np.random.default_rng(3).normal(given.means, given.deviations, (400_000, 3))
    expected = drawn.clip(0, [6, 1, 4]).mean(axis=0)
    # A mean of as many numbers varies by a 630th of their deviation, which is 2 here.
    assert clipped_means(given, 0.0, np.array([6, 1, 4])) == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("norm", ["FusedBatchNorm", "FusedBatchNormV3"])
def test_a_fused_normalization_leaves_beta_and_gamma(norm):
    found = statistics_of(fused(network(norm=norm))["norm"], 3)
    assert found is not None
    np.testing.assert_array_equal(found.means, BETA)
    np.testing.assert_array_equal(found.deviations, np.abs(GAMMA))


def test_nothing_is_kept_by_default():
    plain = apply("fuse_batch_norms", network()).graph
    assert not any(name.startswith("_") for n in plain for name in n.attrs)
    assert list(without_statistics(fused(network()))) == list(plain)
    assert without_statistics(plain) is plain


def test_equalizing_scales_them_along():
    graph = fused(network(w2=normal(1, 1, 3, 2, seed=2) * [[[[9], [0.1], [1]]]]))
    scaled = apply("equalize_ranges", graph).graph
    names = [g["norm"].inputs[1].node for g in (graph, scaled)]
    biases = [
        g[n].attr_tensor("value").array() for g, n in zip((graph, scaled), names, strict=True)
    ]
    factors = biases[1] / biases[0]
    assert np.abs(np.log2(factors)).max() > 0.5
    found = statistics_of(scaled["norm"], 3)
    assert found is not None
    # Both were rounded to float32.
    np.testing.assert_allclose(found.means, BETA * factors, rtol=1e-6)
    np.testing.assert_allclose(found.deviations, np.abs(GAMMA) * factors, rtol=1e-6)


@pytest.mark.parametrize("activation", ["Relu", "Relu6"])
def test_three_deviations_below_the_mean_are_absorbed(activation):
    graph = fused(network(activation))
    result = apply("absorb_high_biases", graph)
    assert result.matched == 1
    before, after = (
        g[g["norm"].inputs[1].node].attr_tensor("value").array() for g in (graph, result.graph)
    )
    # 5 - 3 * 1, -1 - 3 * 2 and 0 - 3 * 0.5, of which only the first is above zero.
    np.testing.assert_allclose(before - after, [2, 0, 0], atol=1e-6)
    found = statistics_of(result.graph["norm"], 3)
    assert found is not None
    np.testing.assert_array_equal(found.means, [3, -1, 0])
    np.testing.assert_array_equal(found.deviations, np.abs(GAMMA))


# On 256 steps from -0.9 to 1, few are exact.
WEIGHTS = np.array([[[[1.0, 0.3], [-0.9, 0.7], [0.5, -0.2]]]], np.float32)


def test_biases_take_back_errors_times_means():
    graph = fused(network(w2=WEIGHTS))
    result = apply("correct_bias", graph, minimum_size=6)
    assert (result.matched, sum(result.skipped.values())) == (1, 1)  # nothing tells the mean of x
    stored = apply("quantize_weights", graph, minimum_size=6).graph
    rounded = run(stored, np.zeros((1, 1, 1, 4), np.float32), stored["out"].inputs[1].node).reshape(
        3, 2
    )
    # The means of what a Relu leaves of N(5, 1), N(-1, 2) and N(0, 0.5).
    means = [5.0, -1 * (1 - P_HALF) + 2 * D_HALF, INNER / 2]
    expected = (WEIGHTS.reshape(3, 2) - rounded).T @ means
    assert np.abs(expected).max() > 1e-3
    (bias,) = (n for n in result.graph if n.op == "BiasAdd" and n.name == "out")
    shift = result.graph[bias.inputs[1].node].attr_tensor("value").array()
    np.testing.assert_allclose(shift, expected, atol=2e-6)
    assert without_statistics(result.graph) is result.graph


def test_data_free_correction_matches_calibrated_correction():
    """Inputs for which each channel is normally distributed, as the normalization says."""
    graph = fused(network("Relu6", w2=normal(1, 1, 3, 64, seed=4)))
    weights = graph["w"].attr_tensor("value").array().reshape(4, 3).astype(np.float64)
    bias = graph[graph["norm"].inputs[1].node].attr_tensor("value").array()
    drawn = np.random.default_rng(5).normal(BETA, np.abs(GAMMA), (100_000, 3))
    x = ((drawn - bias) @ np.linalg.pinv(weights)).reshape(1, 1, -1, 4).astype(np.float32)
    exact = run(graph, x).mean(axis=(0, 1, 2), dtype=np.float64)

    def off(prepared: Graph) -> float:
        stored = apply("quantize_weights", prepared, minimum_size=100).graph
        return float(np.abs(run(stored, x).mean(axis=(0, 1, 2), dtype=np.float64) - exact).max())

    corrected = apply("correct_bias", graph, minimum_size=100).graph
    assert off(corrected) < 0.05 * off(graph)


AFTER = {
    "Identity": (node("y", "Identity", "act"), 1),
    "a sum": (node("y", "AddV2", "act act"), 2),
    "AvgPool": (
        node("y", "AvgPool", "act", ksize=(1, 2, 2, 1), strides=(1, 1, 1, 1), padding="SAME"),
        1,
    ),
    "Mean": (node("y", "Mean", "act axes", keep_dims=False), 1),
    "Reshape": (node("y", "Reshape", "act flat"), 1),
    "Minimum of infinity": (node("y", "Minimum", "act far"), 1),
}
CONSTANTS = [
    const("axes", [1, 2], np.int32),
    const("flat", [-1, 3], np.int32),
    const("far", [99, 99, 99]),
    const("odd", [-1, 2], np.int32),
    const("channels", [3], np.int32),
]


@pytest.mark.parametrize("case", AFTER)
def test_means_pass_ops_that_keep_channels(case):
    last, times = AFTER[case]
    found = channel_means(Graph([*fused(network()), *CONSTANTS, last]))
    np.testing.assert_allclose(found["y"], times * found["act"], rtol=1e-9)


@pytest.mark.parametrize(
    "last",
    [
        node("y", "Tanh", "act"),
        node("y", "MaxPool", "act", ksize=(1, 2, 2, 1), strides=(1, 1, 1, 1), padding="SAME"),
        node("y", "Reshape", "act odd"),
        node("y", "Mean", "act channels", keep_dims=False),
        node("y", "Minimum", "act x"),
        node("y", "AddV2", "act x"),
    ],
    ids=lambda n: n.op,
)
def test_means_end_where_nothing_is_known(last):
    assert "y" not in channel_means(Graph([*fused(network()), *CONSTANTS, last]))


@pytest.mark.parametrize("name", ["absorb_high_biases", "correct_bias"])
def test_without_data_and_statistics_it_is_refused(name):
    graph = apply("fuse_batch_norms", network()).graph
    options = {"minimum_size": 1} if name == "correct_bias" else {}
    with pytest.raises(TransformError, match="no statistics of batch normalizations") as e:
        apply(name, graph, **options)
    assert "keep_statistics" in e.value.hint


@pytest.mark.parametrize(
    "given",
    [
        statistics([1, 2], [1, 1]),
        statistics([1, math.nan, 2], [1, 1, 1]),
        statistics([1, 2, 3], [1, -1, 1]),
        statistics([[1, 2, 3]], [[1, 1, 1]]),
    ],
)
def test_statistics_that_cannot_be_are_none(given):
    made = with_statistics(node("y", "BiasAdd", "x b"), given)
    assert statistics_of(made, 3) is None


def test_statistics_of_another_length_are_skipped():
    broken = with_statistics(node("y", "BiasAdd", "x b"), statistics([math.nan], [1]))
    assert changed_statistics(broken, 2.0, 0.0) is broken


def test_shipped_graph_has_no_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    model = Path(__file__).resolve().parents[2] / "recipes" / "digits" / "model"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "version: 1\nname: kept\n"
        f"source: {{graph: {model}/graph.pbtxt, checkpoint: {model}/model.ckpt-1000}}\n"
        "inputs: {image: {dtype: float32, shape: [-1, 8, 8, 1]}}\noutputs: [probabilities]\n"
        "transforms:\n  - strip_unused_nodes\n  - remove_no_ops\n  - fold_constants\n"
        "  - fuse_batch_norms: {keep_statistics: true}\ntargets: {phone: {}}\n"
    )
    mobileprep.build(recipe, out=tmp_path / "out")
    (shipped,) = (tmp_path / "out").rglob("*.pb")
    graph = read_graph(shipped)
    assert without_statistics(graph) is graph
