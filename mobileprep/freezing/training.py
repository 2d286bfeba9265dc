"""What training leaves in a graph beside the model: losses, gradients, updates, chance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import Final

from mobileprep.freezing.flows import Flows
from mobileprep.freezing.follow import VARIABLE_OPS, variable_behind
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import FUSED_BATCH_NORMS, LOSSES
from mobileprep.ir.refs import Ref

# What watches, measures or changes a model without being a result of it.
ASIDE: Final = re.compile(
    r"(Shape|ShapeN|Size|Rank|Range|OnesLike|ZerosLike|Fill|BroadcastGradientArgs|ConcatOffset|"
    r".*Summary(V2)?|Assert|Print(V2)?|NoOp|Assign.*|.*Scatter.*Update|(Resource|Sparse)*Apply.*|"
    r"Save.*|Restore.*|.*Dataset.*|Log.*Tensor.*)\Z"
)
_PENALTY: Final = "L2Loss"
# What optimizers add: gradients, and what applies them.
_GRADIENTS: Final = re.compile(r"(.*/)?(gradient(s|_tape)(_\d+)?/|\w+/update_)")
_UPDATES: Final = re.compile(r"((Resource|Sparse)*Apply.*|Assign(Add|Sub)(VariableOp)?)\Z")
# Scopes of TensorFlow's losses, metrics, and assertions, and those that training scripts use.
_SCORING: Final = re.compile(
    r"(.*/)?(\w*loss(es)?|cost|\w*cross_entropy\w*|xentropy|accuracy|metrics|confusion_matrix)"
    r"(_\d+)?/"
)
_ASSERTION: Final = re.compile(r"(.*/)?(assert_[a-z_]+|Assert|AssertGuard)(_\d+)?/")
_LOGARITHMS: Final = frozenset({"Log", "Log1p"})
# What an error is computed with, as long as the author gave it no name.
_ERRORS: Final = _LOGARITHMS | {"Square", "Pow", "Abs"}
# Keep a probability away from zero before its logarithm is taken, or subtract it from one.
_SHIFTS: Final = frozenset({"Add", "AddV2", "Sub", "Maximum", "Minimum", "ClipByValue"})
_REDUCTIONS: Final = frozenset({"Mean", "Sum"})
# Lead to the condition of an assertion.
_CONDITIONS: Final = frozenset(
    {"All", "Any", "Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"}
    | {"LogicalAnd", "LogicalOr", "LogicalNot", "IsFinite", "IsNan", "IsInf"}
)
# Convert what a condition compares.
_CONVERSIONS: Final = frozenset({"Cast", "Pack", "StridedSlice"})
_PACK_NAME: Final = "stack"
_LOSS_ARITHMETIC: Final = (
    _REDUCTIONS
    | _LOGARITHMS
    | _SHIFTS
    | {"Neg", "Mul", "AddN", "RealDiv", "Div", "DivNoNan", "Pow", "Square", "SquaredDifference"}
    | {"Abs", "Exp", "Sqrt", "Identity", "Cast", "Select", "SelectV2", "GreaterEqual", "Greater"}
    | {"Less", "ZerosLike", "OnesLike", "Softplus", "Reshape", "Squeeze"}
)
_RANDOM: Final = re.compile(r"(Stateless)?(Random|TruncatedNormal|Multinomial).*\Z")


def is_gradient(node: Node) -> bool:
    """Whether a node works out or applies a gradient."""
    return _GRADIENTS.match(node.name) is not None


def is_of_training(graph: Graph) -> bool:
    """Whether a graph holds what trains a model, so that some of its ends are no results."""
    return any(n.op in LOSSES or _UPDATES.match(n.op) or is_gradient(n) for n in graph)


def is_uncut(graph: Graph) -> bool:
    """Whether a graph was saved whole, so that some of its ends may be leftovers.

    A graph without variables was frozen, which keeps only what its outputs need.
    """
    return is_of_training(graph) or any(n.op in VARIABLE_OPS for n in graph)


def has_default_name(node: Node) -> bool:
    """Whether a node has the name that TensorFlow chooses, such as ``ArgMax_1``."""
    name = re.sub(r"(V\d+)?(_\d+)?\Z", "", node.name.rpartition("/")[2], count=1)
    usual = _PACK_NAME if node.op == "Pack" else re.sub(r"V\d+\Z", "", node.op).lower()
    return name.replace("_", "").lower() == usual


def scores_of(graph: Graph, flows: Flows, labels: Iterable[Ref]) -> set[str]:
    """The nodes that compute losses, scores, assertions, and gradients."""
    losses = [n.name for n in graph if n.op in LOSSES or n.op == _PENALTY]
    scored = {*losses, *flows.downstream([*labels, *map(Ref, losses)])}
    scored.update(n.name for n in graph if is_gradient(n) or _ASSERTION.match(n.name))
    return _with_preparation(graph, flows, scored)


def losses_among(
    graph: Graph, flows: Flows, ends: Iterable[Node], fed: Iterable[Ref], scored: Set[str]
) -> set[str]:
    """Names of the nodes that only compute losses without a label, such as of an autoencoder.

    Args:
        graph: a graph that was saved whole.
        flows: its flows.
        ends: ends of the graph that are single numbers.
        fed: the tensors that an app feeds.
        scored: names of the other nodes that are not part of the model.
    """
    given = {ref.node for ref in fed}

    def is_step(node: Node, part: Set[str]) -> bool:
        """Whether a node only leads to a loss."""
        is_arithmetic = node.op in _LOSS_ARITHMETIC and node.name not in given
        is_named = node.op == "Identity" and not has_default_name(node)
        has_weights = any(variable_behind(graph, ref) for ref in node.data_inputs)
        if not is_arithmetic or is_named or has_weights:
            return False
        takers = (n for n, _ in flows.takers(node.name) if not ASIDE.match(n.op))
        return all(taker.name in part or taker.name in scored for taker in takers)

    found: set[str] = set()
    for end in ends:
        part = {end.name} if end.op in _LOSS_ARITHMETIC else set()
        waiting = [end] if part else []
        while waiting:
            for node in (graph[ref.node] for ref in waiting.pop().data_inputs):
                if node.name not in part and is_step(node, part):
                    part.add(node.name)
                    waiting.append(node)
        if any(graph[name].op in _REDUCTIONS for name in part):
            found |= part
    return found


def _with_preparation(graph: Graph, flows: Flows, scored: set[str]) -> set[str]:
    """Add the nodes that only prepare the model's results for the scores."""
    scored = set(scored)
    waiting = list(scored)
    left: dict[str, int] = {}
    while waiting:
        taker = graph[waiting.pop()]
        for name in dict.fromkeys(ref.node for ref in taker.data_inputs):
            if name not in left:
                takers = {n.name for n, _ in flows.takers(name) if not ASIDE.match(n.op)}
                left[name] = len(takers)
            left[name] -= not ASIDE.match(taker.op)
            if left[name] <= 0 and name not in scored and _prepares(graph, flows, graph[name]):
                scored.add(name)
                waiting.append(name)
    return scored


def _prepares(graph: Graph, flows: Flows, node: Node) -> bool:
    """Whether a node only prepares a result for a score that takes it.

    The author of a model names the results; the ops of a score keep their default names.
    """
    if _SCORING.match(node.name):
        return True
    if node.op in _ERRORS or node.op == "ArgMax":
        return has_default_name(node)
    takers = [taker for taker, _ in flows.takers(node.name) if not is_gradient(taker)]
    if node.op in _CONDITIONS or (node.op in _CONVERSIONS and has_default_name(node)):
        compared = _CONDITIONS | _CONVERSIONS
        return any(t.op in compared or _ASSERTION.match(t.name) for t in takers)
    if node.op not in _SHIFTS or not any(t.op in _ERRORS | _SHIFTS for t in takers):
        return False
    return any(graph[ref.node].op == "Const" for ref in node.data_inputs)


def of_chance_or_batch(graph: Graph, flows: Flows) -> set[str]:
    """The nodes that depend on chance, or on the statistics of their batch.

    What lies in branches is chosen when the model runs, so that nothing is said of what comes
    after a Merge.
    """
    starts = {
        n.name
        for n in graph
        if _RANDOM.match(n.op) or (n.op in FUSED_BATCH_NORMS and n.attr_bool("is_training", True))
    }
    merges = {n.name for n in graph if n.op == "Merge"}
    taken = [Ref(name, index) for name in starts for _, index in flows.takers(name)]
    return starts | flows.downstream(taken, past=merges)
