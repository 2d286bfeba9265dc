"""Loops of few turns, known ahead, as their bodies one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import SUMS
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.transforms.raise_control_flow.region import Raising, Slice

# What counters and conditions are made of.
_COUNTING: Final = (
    IDENTITIES
    | SUMS
    | {
        *("Sub", "Mul", "FloorDiv", "FloorMod", "Minimum", "Maximum", "Cast"),
        *("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"),
        *("LogicalAnd", "LogicalOr", "LogicalNot", "LoopCond"),
    }
)
_LARGEST: Final = 1024

Values = dict[Ref, Tensor]


class Turning(Struct, frozen=True):
    """A loop that is to be unrolled.

    Args:
        name: the loop's.
        own: the names of the nodes that lie in it.
        heads: the loop variables.
        entered: what each begins with.
        body: what one turn does.
    """

    name: str
    own: frozenset[str]
    heads: Sequence[Ref]
    entered: Sequence[Ref]
    body: Slice


def count_turns(work: Raising, loop: Turning, test: Slice, most: int) -> int | None:
    """How often a loop turns, where that follows from constants and is not too often."""
    outer = {ref: ref for ref in (*test.taken, *loop.body.taken)}
    sources = {**outer, **dict(zip(loop.heads, loop.entered, strict=True))}
    found = {ref: work.value(source) for ref, source in sources.items()}
    values = {ref: value for ref, value in found.items() if value is not None}
    same = {ref: value for ref, value in values.items() if ref not in loop.heads}
    for turn in range(most + 1):
        goes_on = _known(test.nodes, values).get(test.results[0])
        if goes_on is None or goes_on.size != 1:
            return None
        if not bool(goes_on.array().reshape(-1)[0]):
            return turn
        after = _known(loop.body.nodes, values)
        pairs = zip(loop.heads, loop.body.results, strict=True)
        values = {**same, **{head: after[ref] for head, ref in pairs if ref in after}}
    return None


def _known(nodes: Sequence[Node], given: Values) -> Values:
    """The values of tensors that follow from those of some others."""
    values = dict(given)
    for node in nodes:
        if node.op == "Const":
            values[Ref(node.name)] = node.attr_tensor("value")
            continue
        inputs = [values.get(ref) for ref in node.data_inputs]
        small = [t for t in inputs if t is not None and t.size <= _LARGEST]
        if node.op not in _COUNTING or len(small) < len(inputs) or not inputs:
            continue
        try:
            values[Ref(node.name)] = evaluate_node(node, small)[0]
        except (InvalidGraphError, UnsupportedError):
            # Running the graph will say what is wrong with it.
            continue
    return values


def unrolled(work: Raising, loop: Turning, turns: int) -> list[Node]:
    """Copies of a loop's body, one for each turn; they stand for the loop's outputs from now on."""
    work.count_copies(turns * len(loop.body.nodes))
    nodes: list[Node] = []
    state = dict(zip(loop.heads, loop.entered, strict=True))
    for turn in range(turns):
        copied, results = _copied(work, loop, state, turn)
        nodes += copied
        state = dict(zip(loop.heads, results, strict=True))
    work.made.update({node.name: node for node in nodes})
    for index, head in enumerate(loop.heads):
        work.same[loop.name, index] = state[head]
    return nodes


def _copied(
    work: Raising, loop: Turning, state: Mapping[Ref, Ref], turn: int
) -> tuple[list[Node], list[Ref]]:
    """The nodes of one turn, and what they give; constants from outside stay where they are."""
    own = [n for n in loop.body.nodes if n.op != "Const" or n.name in loop.own]
    names = {
        n.name: work.names.name(f"{loop.name}/turn_{turn}/{n.name.removeprefix(f'{loop.name}/')}")
        for n in own
    }

    def moved(ref: Ref) -> Ref:
        return state[ref] if ref in state else ref.renamed(names.get(ref.node, ref.node))

    nodes = [Node(names[n.name], n.op, tuple(map(moved, n.inputs)), n.device, n.attrs) for n in own]
    return nodes, list(map(moved, loop.body.results))
