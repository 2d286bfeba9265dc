"""Remove what a graph has for training: branches, dropout, and updates of averages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import Bypass, constant_behind, source_behind
from mobileprep.graph.dropout import masked, unscaled
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS
from mobileprep.graph.reachability import execution_order, without_dangling, without_newly_unused
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, transform


@transform("choose_inference")
class ChooseInference(Transform, frozen=True):
    """Remove the training branches and the Switch and Merge nodes around them.

    A graph for training and inference has a boolean placeholder for the phase, and a conditional at
    each batch normalization and dropout. The inference value of the phase is derived from fused
    batch normalizations that use batch statistics in one branch and averages in the other, or from
    the default of a PlaceholderWithDefault that is not an input. A placeholder that is an input is
    kept, unused.
    """

    summary = (
        "Selects the branch for inference where a graph chooses between training and inference."
    )

    def apply(self, graph: Graph, context: Context) -> Result:
        """Resolve every conditional whose phase is known."""
        check_inputs(graph, "")
        protected = context.protected
        phases = _phases(graph, context)
        skipped: Counter[str] = Counter()
        decisions: dict[str, bool] = {}
        for name, value in phases.items():
            if value is None:
                skipped["its branches do not show which of them is for inference"] += 1
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


def resolve_branches(
    graph: Graph, values: Mapping[str, bool], protected: Collection[str]
) -> Graph | str:
    """Return the graph with only the branches that run for the given boolean node values.

    Switch and Merge become Identity. Consumers of a known value use a constant instead; the nodes
    themselves are kept only if protected. Returns the reason on failure.
    """
    choice = _Choice(graph, values)
    dead = choice.dead()
    if dead & frozenset(protected):
        return "an output is in the training branch"
    merges = {n.name for n in graph if n.op == "Merge"}
    if any(r.index == 1 and r.node in merges for n in graph for r in n.inputs):
        return "the branch decision is used as a number"
    nodes = [m for n in graph if n.name not in dead for m in choice.decided(n, dead, protected)]
    return graph.with_nodes(without_dangling(nodes, {n.name for n in nodes}))


class _Choice:
    def __init__(self, graph: Graph, values: Mapping[str, bool]) -> None:
        self._graph = graph
        self._values = values
        self._names = {n: unique_name(f"{n}/inference", graph.by_name) for n in values}
        self._live: dict[str, int] = {}
        for node in graph:
            name = condition(graph, node)
            if name in values:
                self._live[node.name] = int(values[name])

    def dead(self) -> frozenset[str]:
        """Return the nodes that do not run."""
        dead: set[str] = set()
        waiting = list(self._graph)
        while waiting:
            node = waiting.pop()
            if node.name not in dead and self._is_dead(node, dead):
                dead.add(node.name)
                waiting += self._graph.consumers.get(node.name, ())
        return frozenset(dead)

    def decided(
        self, node: Node, dead: Collection[str], protected: Collection[str]
    ) -> tuple[Node, ...]:
        """Return the replacement for a node that runs."""
        if node.name in self._values:
            value = Tensor.of(np.array(self._values[node.name]))
            number = constant(self._names[node.name], value)
            return (node, number) if node.name in protected else (number,)
        refs = [r for r in node.inputs if not (r.is_control and r.node in self._values)]
        if node.op == "Merge":
            refs = [r for r in refs if not self._is_dead_ref(r, dead)]
        inputs = tuple(self._rewired(r) for r in refs)
        if node.name in self._live:
            controls = (r for r in inputs[2:] if r.is_control)
            return (_identity(node, (inputs[0], *controls)),)
        tensors = [r for r in inputs if not r.is_control]
        if node.op == "Merge" and len(tensors) < len(node.data_inputs):
            if len(tensors) == 1:
                return (_identity(node, inputs),)
            return (replace(node, inputs=inputs).with_attrs(N=attr.integer(len(tensors))),)
        return (node if inputs == node.inputs else replace(node, inputs=inputs),)

    def _is_dead(self, node: Node, dead: Collection[str]) -> bool:
        if node.op == "Merge":
            return all(self._is_dead_ref(r, dead) for r in node.data_inputs)
        return any(self._is_dead_ref(r, dead) for r in node.inputs)

    def _is_dead_ref(self, ref: Ref, dead: Collection[str]) -> bool:
        live = self._live.get(ref.node)
        gated = live is not None and not ref.is_control and ref.index != live
        return gated or ref.node in dead

    def _rewired(self, ref: Ref) -> Ref:
        if ref.node in self._values:
            return Ref(self._names[ref.node])
        if ref.node in self._live and not ref.is_control:
            return Ref(ref.node)
        return ref


def condition(graph: Graph, node: Node) -> str:
    """Return the name of the node that controls a Switch; empty for other ops."""
    if node.op != "Switch" or len(node.data_inputs) != 2:
        return ""
    return source_behind(graph, node.data_inputs[1]).node


def _identity(node: Node, inputs: tuple[Ref, ...]) -> Node:
    return Node(node.name, "Identity", inputs, node.device, {"T": node.attribute("T")})


@transform("remove_dropout")
class RemoveDropout(Transform, frozen=True):
    """Bypass ops that set some elements to zero and scale the others.

    All forms of ``tf.nn.dropout`` are supported: the scaled tensor times ``Floor(rate + uniform)``
    or times ``Cast(uniform >= rate)``, and ``Select`` between it and zero. The scale must be one
    divided by the share of kept elements, where both are constants or the same placeholder. Nodes
    that only served the dropout are removed.
    """

    summary = "Removes dropout, which only training needs."

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove all supported dropouts."""
        bypass = Bypass(graph, context.protected)
        for node in execution_order(graph):
            dropout = masked(graph, node)
            if dropout is None:
                continue
            scaled, rate = dropout
            source = unscaled(graph, scaled, rate)
            if source is None:
                bypass.leave("kept values are not scaled up by the share of dropped ones")
            else:
                bypass.take_out(node, source)
        return Result.of(bypass.result(with_unused=False), graph, context)


_RANGE_INPUTS: Final = {
    "FakeQuantWithMinMaxVars": (1, 2),
    "FakeQuantWithMinMaxVarsPerChannel": (1, 2),
}
_ASSIGNING: Final = frozenset({"Assign", "AssignAdd", "AssignSub"})


@transform("remove_ema")
class RemoveEma(Transform, frozen=True):
    """Read the ranges that training averaged over batches, without updating the averages.

    In a training graph, FakeQuantWithMinMaxVars takes its range from the op that updates the moving
    average. Here, it reads the average itself, which is a variable or, once frozen, a constant.
    Nodes that only served the updates are removed.

    Source: ``remove_ema`` of the graph transforms of TensorFlow 1.4, without its assumptions about
    how the update is computed.
    """

    summary = (
        "Makes fake quantization use the averaged ranges of training, and removes the averaging."
    )

    def apply(self, graph: Graph, context: Context) -> Result:
        """Connect fake quantization to the stored ranges."""
        check_inputs(graph, self.transform_name)
        moved = {n.name: m for n in graph if (m := _with_read_range(graph, n)) is not n}
        if not moved:
            return Result(graph)
        after = graph.with_nodes(moved.get(n.name, n) for n in graph)
        return Result(without_newly_unused(graph, after, context.protected), len(moved))


def _with_read_range(graph: Graph, node: Node) -> Node:
    inputs = list(node.inputs)
    for index in _RANGE_INPUTS.get(node.op, ()):
        if index < len(node.data_inputs):
            inputs[index] = _averaged(graph, inputs[index])
    return node if tuple(inputs) == node.inputs else replace(node, inputs=tuple(inputs))


def _averaged(graph: Graph, ref: Ref) -> Ref:
    """Return the target of the assignment behind a reference, or the reference itself."""
    source = source_behind(graph, ref)
    node = graph[source.node]
    seen: set[str] = set()
    while node.op in _ASSIGNING and node.data_inputs and node.name not in seen:
        seen.add(node.name)
        source = node.data_inputs[0]
        node = graph[source.node]
    return source if seen else ref
