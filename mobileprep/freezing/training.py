"""What training leaves in a graph beside the model: losses, gradients, updates, chance."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mobileprep.freezing.flows import Flows
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import FUSED_BATCH_NORMS, LOSSES
from mobileprep.ir.refs import Ref

# What watches, measures or changes a model without being a result of it.
ASIDE: Final = re.compile(
    r"(Shape|ShapeN|Size|Rank|BroadcastGradientArgs|ConcatOffset|"
    r".*Summary(V2)?|Assert|Print(V2)?|NoOp|Assign.*|.*Scatter.*Update|(Resource|Sparse)*Apply.*|"
    r"Save.*|Restore.*|.*Dataset.*|Log.*Tensor.*)\Z"
)
_PENALTY: Final = "L2Loss"
# What optimizers add: gradients, and what applies them.
_GRADIENTS: Final = re.compile(r"(.*/)?(gradient(s|_tape)(_\d+)?/|\w+/update_)")
_UPDATES: Final = re.compile(r"((Resource|Sparse)*Apply.*|Assign(Add|Sub)(VariableOp)?)\Z")
_RANDOM: Final = re.compile(r"(Stateless)?(Random|TruncatedNormal|Multinomial).*\Z")


def is_gradient(node: Node) -> bool:
    """Whether a node works out or applies a gradient."""
    return _GRADIENTS.match(node.name) is not None


def is_of_training(graph: Graph) -> bool:
    """Whether a graph holds what trains a model, so that some of its ends are no results."""
    return any(n.op in LOSSES or _UPDATES.match(n.op) or is_gradient(n) for n in graph)


def scores_of(graph: Graph, flows: Flows, labels: Iterable[Ref]) -> set[str]:
    """The nodes that work out losses, scores and gradients."""
    losses = [n.name for n in graph if n.op in LOSSES or n.op == _PENALTY]
    scored = {*losses, *flows.downstream([*labels, *map(Ref, losses)])}
    scored.update(n.name for n in graph if is_gradient(n))
    return scored


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
