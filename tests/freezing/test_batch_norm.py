"""Switching batch normalization from training mode to its moving averages."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.runtime.interpreter import Interpreter
from tests.freezing.graphs import (
    FLOAT,
    const,
    frozen,
    handle,
    listing,
    node,
    placeholder,
    reading,
    ref_variable,
    source,
)

C = 3
NONE = const("none", np.zeros(0, np.float32))
VALUES = {
    "bn/gamma": np.array([1, 2, 3], np.float32),
    "bn/beta": np.array([0, 1, 0], np.float32),
    "bn/moving_mean": np.array([1, 0, -1], np.float32),
    "bn/moving_variance": np.array([4, 1, 9], np.float32),
}
READ_TO = (
    "bn/gamma/read",
    "bn/beta/read",
    "bn/norm/moving_mean",
    "bn/norm/moving_variance",
)
X = np.random.default_rng(3).standard_normal((2, 2, 2, C)).astype(np.float32)


def expected(epsilon=1e-3):
    gamma, beta, mean, variance = VALUES.values()
    return (X - mean) / np.sqrt(variance + epsilon) * gamma + beta


def fused(*inputs, training=True, op="FusedBatchNorm"):
    return node(
        "bn/norm", op, *inputs, T=FLOAT, epsilon=1e-3, is_training=training, data_format="NHWC"
    )


def updates(prefix="bn", op="AssignSub", mean="bn/norm:1", variance="bn/norm:2"):
    """Move both averages by a tenth toward the statistics of the batch."""
    nodes = [const("tenth", np.float32(0.1))]
    for name, statistic in (("moving_mean", mean), ("moving_variance", variance)):
        scope = f"{prefix}/move_{name}"
        nodes += [
            node(f"{scope}/gap", "Sub", f"{prefix}/{name}/read", statistic, T=FLOAT),
            node(f"{scope}/part", "Mul", f"{scope}/gap", "tenth", T=FLOAT),
            node(scope, op, f"{prefix}/{name}", f"{scope}/part", T=FLOAT),
        ]
    return nodes


def variables(prefix="bn", names=("gamma", "beta", "moving_mean", "moving_variance")):
    return [ref_variable(f"{prefix}/{n}", C) for n in names]


def training(norm=None, update_nodes=None):
    return [
        placeholder("x", -1, 2, 2, C),
        *variables(),
        NONE,
        norm or fused("x", "bn/gamma/read", "bn/beta/read", "none", "none"),
        *(updates() if update_nodes is None else update_nodes),
        node("y", "Relu", "bn/norm", T=FLOAT),
    ]


def test_training_norm_uses_the_averages_that_it_updates(tmp_path):
    result = frozen(source(training(), VALUES, tmp_path), "y")
    assert listing(result.graph)[-4:] == [
        "bn/norm/moving_mean = Identity(bn/moving_mean)",
        "bn/norm/moving_variance = Identity(bn/moving_variance)",
        f"bn/norm = FusedBatchNorm(x, {', '.join(READ_TO)})",
        "y = Relu(bn/norm)",
    ]
    assert not result.graph["bn/norm"].attr_bool("is_training")
    (warning,) = result.warnings
    assert warning.startswith("1 batch normalizations were left in training mode; they use")
    assert warning.endswith(": bn/norm")
    got = Interpreter(result.graph).run(["y"], {"x": X})[0]
    np.testing.assert_allclose(got, np.maximum(expected(), 0), rtol=1e-5, atol=1e-5)


def test_keep_does_not_change_training_mode(tmp_path):
    result = frozen(source(training(), VALUES, tmp_path), "y", batch_norm="keep")
    assert result.graph["bn/norm"].attr_bool("is_training")
    assert not result.warnings


def test_norm_for_inference_is_not_changed(tmp_path):
    reads = [f"bn/{n}/read" for n in ("gamma", "beta", "moving_mean", "moving_variance")]
    result = frozen(source(training(fused("x", *reads, training=False)), VALUES, tmp_path), "y")
    assert result.graph["bn/norm"].inputs[3].node == "bn/moving_mean/read"
    assert not result.warnings


def test_averages_that_are_inputs_are_used(tmp_path):
    reads = [f"bn/{n}/read" for n in ("gamma", "beta", "moving_mean", "moving_variance")]
    result = frozen(source(training(fused("x", *reads), update_nodes=[]), VALUES, tmp_path), "y")
    assert not result.graph["bn/norm"].attr_bool("is_training")
    got = Interpreter(result.graph).run(["bn/norm"], {"x": X})[0]
    np.testing.assert_allclose(got, expected(), rtol=1e-5, atol=1e-5)


def test_averages_next_to_the_scale_are_used_without_updates(tmp_path):
    result = frozen(source(training(update_nodes=[]), VALUES, tmp_path), "y")
    assert result.graph["bn/norm/moving_mean"].inputs[0].node == "bn/moving_mean"


@pytest.mark.parametrize(
    ("scale", "offset"),
    [("bn/gamma/read", "zeros"), ("ones", "bn/beta/read")],
    ids=["no-offset", "no-scale"],
)
def test_averages_are_found_from_either_scale_or_offset(tmp_path, scale, offset):
    constants = [const("zeros", np.zeros(C, np.float32)), const("ones", np.ones(C, np.float32))]
    norm = fused("x", scale, offset, "none", "none")
    result = frozen(source([*constants, *training(norm, update_nodes=[])], VALUES, tmp_path), "y")
    assert result.graph["bn/norm/moving_mean"].inputs[0].node == "bn/moving_mean"
    assert result.graph["bn/norm/moving_variance"].inputs[0].node == "bn/moving_variance"


def test_norm_without_averages_is_reported(tmp_path):
    nodes = training(update_nodes=[])
    nodes = [n for n in nodes if not (isinstance(n, list) and "moving" in n[0].name)]
    result = frozen(source(nodes, VALUES, tmp_path), "y")
    assert result.graph["bn/norm"].attr_bool("is_training")
    assert result.warnings == (
        "1 batch normalizations stay in training mode, as no moving averages were found: bn/norm",
    )


def test_norm_in_a_branch_is_not_changed(tmp_path):
    nodes = [placeholder("p"), node("s", "Switch", "x", "p", T=FLOAT)]
    inputs = ("s:1", "bn/gamma/read", "bn/beta/read", "none", "none")
    result = frozen(source([*nodes, *training(fused(*inputs))], VALUES, tmp_path), "y")
    assert result.graph["bn/norm"].attr_bool("is_training")
    assert not result.warnings


def test_averages_in_resource_variables(tmp_path):
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    nodes = [placeholder("x", -1, 2, 2, C), NONE]
    for n in names:
        nodes += [handle(f"bn/{n}", C), reading(f"bn/{n}/read", f"bn/{n}")]
    norm = fused("x", "bn/gamma/read", "bn/beta/read", "none", "none", op="FusedBatchNormV3")
    nodes += [norm, *updates(op="AssignSubVariableOp"), node("y", "Relu", "bn/norm", T=FLOAT)]
    graph = frozen(source(nodes, VALUES, tmp_path), "y").graph
    got = Interpreter(graph).run(["bn/norm"], {"x": X})[0]
    np.testing.assert_allclose(got, expected(), rtol=1e-5, atol=1e-5)


def small_ops(*, keep_dims=True):
    """Return a batch normalization in small ops, as in Keras layers."""
    flat = node("bn/axes", "Const").with_attrs(
        **const("bn/axes", np.array([0, 1, 2], np.int32)).attrs
    )
    nodes = [placeholder("x", -1, 2, 2, C), *variables(), flat]
    statistics = []
    for name, of in (("mean", "x"), ("variance", "bn/squares")):
        if name == "variance":
            nodes.append(node("bn/squares", "SquaredDifference", "x", "bn/mean", T=FLOAT))
        nodes.append(node(f"bn/{name}", "Mean", of, "bn/axes", T=FLOAT, keep_dims=keep_dims))
        statistics.append(f"bn/{name}")
        if keep_dims:
            nodes.append(node(f"bn/{name}/flat", "Squeeze", f"bn/{name}", T=FLOAT))
            statistics[-1] = f"bn/{name}/flat"
    mean, variance = statistics
    return [
        *nodes,
        const("epsilon", np.float32(1e-3)),
        node("bn/wide", "AddV2", variance, "epsilon", T=FLOAT),
        node("bn/root", "Rsqrt", "bn/wide", T=FLOAT),
        node("bn/scale", "Mul", "bn/root", "bn/gamma/read", T=FLOAT),
        node("bn/scaled", "Mul", "x", "bn/scale", T=FLOAT),
        node("bn/middle", "Mul", mean, "bn/scale", T=FLOAT),
        node("bn/shift", "Sub", "bn/beta/read", "bn/middle", T=FLOAT),
        node("y", "AddV2", "bn/scaled", "bn/shift", T=FLOAT),
        *updates(mean=mean, variance=variance),
    ]


@pytest.mark.parametrize("keep_dims", [True, False])
def test_batch_statistics_are_replaced_by_the_averages(tmp_path, keep_dims):
    result = frozen(source(small_ops(keep_dims=keep_dims), VALUES, tmp_path), "y")
    assert not {n.op for n in result.graph} & {"Mean", "SquaredDifference", "AssignSub"}
    assert "1 batch normalizations were left in training mode" in result.warnings[0]
    got = Interpreter(result.graph).run(["y"], {"x": X})[0]
    np.testing.assert_allclose(got, expected(), rtol=1e-5, atol=1e-5)
    unchanged = frozen(
        source(small_ops(keep_dims=keep_dims), VALUES, tmp_path), "y", batch_norm="keep"
    )
    assert "Mean" in {n.op for n in unchanged.graph}


def test_statistics_behind_a_training_flag_are_not_replaced(tmp_path):
    flag = placeholder("training", dtype=DType.BOOL)
    choice = node("chosen", "Switch", "bn/mean/flat", "training", T=FLOAT)
    result = frozen(source([*small_ops(), flag, choice], VALUES, tmp_path), "y", "chosen")
    assert "Mean" in {n.op for n in result.graph}
    assert not any("training mode" in w for w in result.warnings)


def test_means_that_update_other_variables_are_not_replaced(tmp_path):
    nodes = [n for item in small_ops() for n in (item if isinstance(item, list) else [item])]
    renamed = [_renamed(n) if "moving" in str(n) else n for n in nodes]
    values = {k.replace("moving_", "range_"): v for k, v in VALUES.items()}
    result = frozen(source(renamed, values, tmp_path), "y")
    assert "Mean" in {n.op for n in result.graph}


def _renamed(old):
    inputs = tuple(r.renamed(r.node.replace("moving_", "range_")) for r in old.inputs)
    return replace(old, name=old.name.replace("moving_", "range_"), inputs=inputs).without_attrs(
        "_class"
    )
