"""What is said of batch norms that a chain leaves."""

from mobileprep.graph.graph import Graph
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import norms_foreseen, norms_left
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder

CONTEXT = Context(("x",), ("out",))


def _graph(op="FusedBatchNormV3", training=False):
    stats = [const(n, abs(normal(32, seed=i)) + 0.5) for i, n in enumerate("gbmv")]
    norm = node("norm", op, "layer g b m v", is_training=training, epsilon=0.001)
    weights = const("w", normal(3, 3, 4, 32))
    return Graph(
        [placeholder(), weights, conv("layer", "x w"), *stats, norm, node("out", "Relu", "norm")]
    )


def test_no_warning_without_remaining_norms():
    assert norms_left(apply("optimize", _graph()).graph, CONTEXT) == ""
    assert norms_left(Graph([placeholder(), node("out", "Relu", "x")]), CONTEXT) == ""


def test_nothing_is_said_of_one_that_nothing_folds():
    assert norms_left(_graph(training=True), CONTEXT) == ""


def test_foldable_norm_is_reported_with_the_transform():
    left = apply("fold_old_batch_norms", _graph())
    assert left.skipped == {"FusedBatchNormV3, which fuse_batch_norms folds": 1}
    assert norms_left(left.graph, CONTEXT) == (
        "1 batch norm is left that can be folded: put fuse_batch_norms, or optimize, which "
        "contains it, at the end of the chain"
    )


def test_norm_foldable_in_another_order_is_reported():
    quantized = apply("quantize_weights", _graph()).graph
    assert any(n.op == "Dequantize" for n in quantized)
    assert norms_left(quantized, CONTEXT) == (
        "1 batch norm is left that can be folded: put fuse_batch_norms, or optimize, which "
        "contains it, before weights are quantized"
    )
    folded = apply("quantize_weights", apply("optimize", _graph()).graph).graph
    assert norms_left(folded, CONTEXT) == ""


def test_unfolded_norms_are_predicted():
    assert norms_foreseen(_graph(), ["fold_batch_norms", "fold_old_batch_norms"]) == (
        "no step of the chain folds 1 FusedBatchNormV3 of the model: put fuse_batch_norms, or "
        "optimize, which contains it, into it"
    )
    assert norms_foreseen(_graph(), ["optimize"]) == ""
    old = _graph("FusedBatchNorm")
    assert norms_foreseen(old, ["fold_old_batch_norms"]) == ""
    assert "1 FusedBatchNorm of the model" in norms_foreseen(old, ["fold_batch_norms"])
    assert norms_foreseen(_graph(training=True), []) == ""
