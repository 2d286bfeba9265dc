"""Which inputs of a graph only training or evaluation feeds."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Final

from mobileprep.freezing.flows import Flows
from mobileprep.freezing.follow import VARIABLE_OPS, upstream, variable_behind
from mobileprep.freezing.subgraph import extract
from mobileprep.freezing.training import ASIDE, is_gradient, is_of_training
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import LOSSES
from mobileprep.ir.reachability import dependents
from mobileprep.ir.refs import Ref
from mobileprep.ops.shape_inference import infer_shapes

_LABEL_NAME: Final = re.compile(
    r"(.*[/_])?(labels?|targets?|truths?|y_|y_true|ground_?truth|weights?_placeholder)(_\d+)?\Z",
    re.IGNORECASE,
)
_LABEL_SLOT: Final = 1
# Ops with weights, which a model's inputs flow into and labels and learning rates do not.
_WEIGHTED: Final = re.compile(
    r"(Conv[23]D|DepthwiseConv2dNative|Conv[23]DBackpropInput(V2)?|(Batch)?MatMul(V2|V3)?|Einsum|"
    r"Sparse(TensorDense)?MatMul|SparseSegment(Sum|Mean|SqrtN)(WithNumSegments)?|"
    r"(Resource)?Gather(V2|Nd)?|FusedBatchNorm(V2|V3)?|LookupTableFind(V2)?|.*LSTM.*|.*RNN.*)\Z"
)
# They take rows of a table, which are weights only if the table is.
_LOOKUPS: Final = re.compile(r"((Resource)?Gather(V2|Nd)?|SparseSegment.*)\Z")
# They hold what a model gives against what it should have given.
_COMPARISONS: Final = frozenset({"Equal", "NotEqual", "InTopK", "InTopKV2", "SquaredDifference"})
_DISTANCES: Final = frozenset({"Square", "Abs", "Pow"})
_LOGARITHM_OPS: Final = frozenset({"Log", "LogSoftmax"})
_ONE_NUMBER: Final = ((),)


def labels_of(graph: Graph, flows: Flows, entries: Sequence[Ref]) -> set[Ref]:
    """Those of the tensors that a graph may be fed with that an app does not feed.

    Args:
        graph: the graph.
        flows: its flows.
        entries: the tensors.
    """
    labels = _told(graph, entries)
    is_frozen = not any(n.op in VARIABLE_OPS for n in graph)
    weights = [n.name for n in graph if _is_weighted(graph, n, is_frozen=is_frozen)]
    of_weights = flows.leading_to(weights)
    unnamed = [r for r in entries if r not in labels]
    others = [r for r in unnamed if not flows.takes(r, of_weights)]
    if len(others) == len(unnamed):
        return labels
    if is_of_training(graph):
        return labels.union(others)
    given = dependents(graph, weights, through_control=False)
    return labels.union(r for r in others if _is_scored_with(graph, flows, r, given))


def _told(graph: Graph, entries: Sequence[Ref]) -> set[Ref]:
    """Entries that are named as labels, or that a loss compares with what the model gives."""
    labels = {r for r in entries if _LABEL_NAME.match(r.node)}
    known = set(entries)
    for node in graph:
        if node.op in LOSSES and len(node.data_inputs) > _LABEL_SLOT:
            last = [Ref(n.name, i) for n, i in upstream(graph, node.inputs[_LABEL_SLOT])]
            labels.update(r for r in last if r in known)
    return labels


def _is_weighted(graph: Graph, node: Node, *, is_frozen: bool) -> bool:
    if not _WEIGHTED.match(node.op) or is_gradient(node) or not node.data_inputs:
        return False
    # Losses gather what the model gives for each label.
    table = node.inputs[0]
    return (
        not _LOOKUPS.match(node.op)
        or (is_frozen and graph[table.node].op == "Const")
        or variable_behind(graph, table) is not None
    )


def _is_scored_with(graph: Graph, flows: Flows, entry: Ref, given: Container[str]) -> bool:
    """Whether an entry only serves to score what a model gives.

    It is then compared with that, or comes to nothing but single numbers. An entry that is a single
    number itself holds for all samples, as no label does.

    Args:
        graph: a graph that trains nothing.
        flows: its flows.
        entry: what meets no weights.
        given: the names of the nodes that the model's weights lead to.
    """
    after = flows.downstream([entry])
    ends = [n for n in after if not flows.takers(n) and not ASIDE.match(graph[n].op)]
    shapes = infer_shapes(extract(graph, [entry.node, *ends]), recorded=True)
    if shapes.get(entry.node, ())[entry.index :][:1] == _ONE_NUMBER:
        return False
    if any(_compares(graph, flows, graph[n], after, given) for n in after):
        return True
    return all(shapes.get(n) == _ONE_NUMBER for n in ends)


def _compares(
    graph: Graph, flows: Flows, node: Node, after: Container[str], given: Container[str]
) -> bool:
    """Whether a node compares what an entry leads to with what the model gives."""
    results = [r.node for r in node.data_inputs if r.node in given and r.node not in after]
    if not results:
        return False
    if node.op == "Mul":  # the cross entropy, written out
        return any(graph[name].op in _LOGARITHM_OPS for name in results)
    if node.op == "Sub":
        takers = flows.takers(node.name)
        return bool(takers) and all(taker.op in _DISTANCES for taker, _ in takers)
    return node.op in _COMPARISONS
