"""Select the inference branch where a graph switches between training and inference."""

from __future__ import annotations

from collections import Counter
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import constant_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS
from mobileprep.graph.refs import Ref
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.choose_inference.branches import condition, resolve_branches

_UNSURE: Final = "its branches do not show which of them is for inference"


@transform("choose_inference")
class ChooseInference(Transform, frozen=True):
    """Remove the training branches and the Switch and Merge nodes around them.

    A graph for training and inference has a boolean placeholder for the phase, and a conditional at
    each batch normalization and dropout. The inference value of the phase is derived from fused
    batch normalizations that use batch statistics in one branch and averages in the other, or from
    the default of a PlaceholderWithDefault that is not an input. A placeholder that is an input is
    kept, unused.
    """

    summary = "Takes the branch for inference where a graph chooses between training and inference."

    def apply(self, graph: Graph, context: Context) -> Result:
        """Resolve every conditional whose phase is known."""
        check_inputs(graph, "")
        protected = context.protected
        phases = _phases(graph, context)
        skipped: Counter[str] = Counter()
        decisions: dict[str, bool] = {}
        for name, value in phases.items():
            if value is None:
                skipped[_UNSURE] += 1
            else:
                decisions[name] = value
        if not decisions:
            return Result(graph, skipped=skipped)
        after = resolve_branches(graph, decisions, protected)
        if isinstance(after, str):
            skipped[after] += len(decisions)
            return Result(graph, skipped=skipped)
        merges = sum(n.op == "Merge" for n in graph) - sum(n.op == "Merge" for n in after)
        return Result(after, max(merges, 1), skipped)


def _phases(graph: Graph, context: Context) -> dict[str, bool | None]:
    """Return the placeholders that control conditionals, with inference values or None."""
    votes: dict[str, set[bool]] = {}
    for node in graph:
        name = condition(graph, node)
        if name and graph[name].op in ("Placeholder", "PlaceholderWithDefault"):
            votes.setdefault(name, set())
    for node in graph:
        if votes and node.op in FUSED_BATCH_NORMS and node.data_inputs:
            vote = _branch(graph, node)
            if vote is not None and vote[0] in votes:
                name, branch = vote
                # In training mode, the normalization is in the branch that inference does not
                # take.
                votes[name].add(branch != node.attr_bool("is_training", True))
    fed = {name.partition(":")[0] for name in context.inputs}
    defaults = {n: _default(graph, graph[n]) for n in votes if n not in fed}
    return {n: _only(values) if values else defaults.get(n) for n, values in votes.items()}


def _branch(graph: Graph, norm: Node) -> tuple[str, bool] | None:
    """Return the phase that controls a normalization, and the value that enables it."""
    source = norm.data_inputs[0]
    name = condition(graph, graph[source.node])
    return (name, source.index == 1) if name else None


def _only(values: set[bool]) -> bool | None:
    return next(iter(values)) if len(values) == 1 else None


def _default(graph: Graph, node: Node) -> bool | None:
    if node.op != "PlaceholderWithDefault" or not node.data_inputs:
        return None
    value = constant_behind(graph, Ref(node.data_inputs[0].node))
    if value is None or value.dtype is not DType.BOOL or value.size != 1:
        return None
    return bool(value.array().reshape(-1)[0])
