"""Running steps one after another, and the numbers that are kept of each."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import TransformError, UsageError
from mobileprep.graph.attrs import OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import (
    ChainStep,
    StepRecord,
    cautions,
    norms_foreseen,
    norms_left,
    run_chain,
)
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder

CONTEXT = Context(("x",), ("out",))


def graph() -> Graph:
    """Eight nodes: two Identities in line, a constant product, and one nobody needs."""
    nodes = [placeholder(), node("one", "Identity", "x"), node("two", "Identity", "one")]
    nodes += [const("a", [2.0]), const("b", [3.0]), node("product", "Mul", "a b")]
    return Graph([*nodes, node("out", "Add", "two product"), node("unused", "Neg", "two")])


def records(*steps: ChainStep) -> list[StepRecord]:
    return run_chain(graph(), steps, CONTEXT)[1]


def test_nodes_that_go_and_those_whose_inputs_change_are_counted_apart() -> None:
    (record,) = records(ChainStep("remove_nodes", {"op": ["Identity"]}))
    # out and unused read x afterwards.
    assert record == StepRecord("remove_nodes", 2, 0, 2, 2, 8, 6)


def test_a_node_that_is_replaced_under_its_name_is_changed() -> None:
    (record,) = records(ChainStep("fold_constants"))
    # product becomes a constant; a, b and unused are needed no more.
    assert (record.added, record.removed, record.changed) == (0, 3, 1)
    assert (record.nodes_before, record.nodes_after) == (8, 5)


def test_a_new_name_is_added_and_the_old_one_removed() -> None:
    (record,) = records(ChainStep("rename_node", {"old_node_name": "one", "new_node_name": "uno"}))
    assert (record.added, record.removed, record.changed) == (1, 1, 1)


def test_a_step_that_changes_nothing_counts_nothing() -> None:
    (record,) = records(ChainStep("remove_device"))
    assert record == StepRecord("remove_device", 0, 0, 0, 0, 8, 8)


def test_equal_new_node_is_not_counted_as_changed() -> None:
    device = ChainStep("set_device", {"device": "/cpu:0"})
    assert [r.changed for r in records(device, device)] == [8, 0]


def test_each_step_s_record_and_graph_are_shown_when_it_is_done() -> None:
    seen: list[tuple[str, int]] = []
    steps = [ChainStep("strip_unused_nodes"), ChainStep("remove_nodes", {"op": ["Identity"]})]
    run_chain(graph(), steps, CONTEXT, watch=lambda record, g: seen.append((record.name, len(g))))
    assert seen == [("strip_unused_nodes", 7), ("remove_nodes", 5)]


FAILING = {"old_node_name": "one", "new_node_name": "two"}


def test_a_step_that_fails_ends_the_chain() -> None:
    with pytest.raises(TransformError):
        records(ChainStep("rename_node", FAILING), ChainStep("fold_constants"))


def test_ignored_errors_of_a_step_are_reported() -> None:
    failed, folded = records(
        ChainStep("rename_node", FAILING, ignore_errors=True), ChainStep("fold_constants")
    )
    assert (failed.nodes_after, failed.changed) == (8, 0)
    assert failed.warnings[0].startswith("rename_node: ignored: ")
    assert folded.removed == 3


def test_a_step_that_does_not_exist_is_never_ignored() -> None:
    with pytest.raises(UsageError, match="fold_constant"):
        records(ChainStep("fold_constant", ignore_errors=True))


@pytest.mark.parametrize(("tf115", "kept"), [(False, 0), (True, 1)])
def test_functions_that_nothing_calls_stay_only_where_1_15_keeps_them(
    tf115: bool, kept: int
) -> None:
    library = Library({"f": Function(OpDef("f"), (), {})})
    steps = [ChainStep("remove_nodes", {"op": ["Identity"]})]
    context = Context(("x",), ("out",), tf115=tf115)
    after, _ = run_chain(Graph(graph().nodes, library=library), steps, context)
    assert len(after.library.functions) == kept


LOSES_THE_OUTPUT = {"old_node_name": "out", "new_node_name": "other"}


def test_a_step_that_loses_an_output_is_refused() -> None:
    with pytest.raises(TransformError, match="rename_node: the output 'out' is gone") as caught:
        records(ChainStep("rename_node", LOSES_THE_OUTPUT))
    assert "outputs" in caught.value.hint


def test_output_missing_before_a_step_is_not_its_error() -> None:
    context = Context(("x",), ("out", "nowhere"))
    run_chain(graph(), [ChainStep("remove_device")], context)


def test_the_original_loses_outputs_without_a_word() -> None:
    after, _ = run_chain(
        graph(), [ChainStep("rename_node", LOSES_THE_OUTPUT)], Context(("x",), ("out",), tf115=True)
    )
    assert "out" not in after


def test_a_step_whose_errors_are_ignored_leaves_the_output() -> None:
    step = ChainStep("rename_node", LOSES_THE_OUTPUT, ignore_errors=True)
    after, (record,) = run_chain(graph(), [step], CONTEXT)
    assert "out" in after
    assert "ignored" in record.warnings[0]


PLAIN = Graph([placeholder(), node("out", "Relu", "x")])
LOOP = Graph([*PLAIN.nodes, node("switch", "Switch", "x x")])
NORMED = Graph([*PLAIN.nodes, node("norm", "FusedBatchNormV3", "x")])
QUANTIZED = Graph(
    [*PLAIN.nodes, const("c", [1], np.uint8), node("back", "Dequantize", "c", T=None)]
)


@pytest.mark.parametrize(
    ("graph", "earlier", "name", "options", "told"),
    [
        (LOOP, [], "remove_nodes", {"op": ("Identity",)}, "control flow"),
        (NORMED, [], "quantize_nodes", {}, "before the batch norms are folded"),
        (PLAIN, ["quantize_weights"], "quantize_weights", {}, "a second time"),
        (QUANTIZED, [], "quantize_weights", {}, "a second time"),
    ],
)
def test_known_trap_is_a_warning(graph, earlier, name, options, told) -> None:
    (caution,) = cautions(graph, earlier, name, options)
    assert caution.startswith(name)
    assert told in caution


@pytest.mark.parametrize(
    ("graph", "earlier", "name", "options"),
    [
        (PLAIN, [], "remove_nodes", {"op": ("Identity",)}),
        (LOOP, [], "remove_nodes", {"op": ("CheckNumerics",)}),
        (NORMED, ["fold_old_batch_norms"], "quantize_nodes", {}),
        (PLAIN, ["round_weights"], "quantize_weights", {}),
    ],
)
def test_no_warning_without_a_reason(graph, earlier, name, options) -> None:
    assert cautions(graph, earlier, name, options) == ()


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
