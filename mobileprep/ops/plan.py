"""Plans of execution: which actions run, in which order, and when each tensor is freed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.actions import Action, Constants, Edge, edge, kernel_action
from mobileprep.ops.folding import fold
from mobileprep.ops.fusion import fuse
from mobileprep.ops.kernel import find_kernel
from mobileprep.ops.selection import check_kernels, needed_nodes


@dataclass(frozen=True, slots=True)
class Step:
    """One action's turn.

    Args:
        action: what is done.
        inputs: slots of the tensors that it reads.
        outputs: pairs of a result's index and its slot.
        frees: slots that nothing reads after this step.
    """

    action: Action
    inputs: tuple[int, ...]
    outputs: tuple[tuple[int, int], ...]
    frees: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to compute some tensors from others.

    Args:
        constants: what the slots hold before anything runs; None but for constants.
        feeds: the slot of each fed tensor; None where nothing reads it.
        steps: the work, in order.
        fetches: the slot of each fetched tensor.
    """

    constants: tuple[Array | None, ...]
    feeds: tuple[int | None, ...]
    steps: tuple[Step, ...]
    fetches: tuple[int, ...]


def make_plan(
    graph: Graph, fetches: Sequence[Ref], feeds: Sequence[Ref], where: str, *, combine: bool
) -> Plan:
    """Plan the computation of ``fetches`` from ``feeds`` and the graph's constants.

    Args:
        graph: the graph.
        fetches: the tensors wanted.
        feeds: the tensors given.
        where: what the graph is called, for messages.
        combine: compute what depends on constants alone ahead, and chains of nodes together,
            which may change results by rounding.

    Raises:
        InvalidGraphError: a node takes an input that is not there, or nodes feed each other.
        UnsupportedError: a node that has to run has an op without kernel.
        UsageError: a placeholder that is needed is not fed.
    """
    fed = {edge(r) for r in feeds}
    wanted = [edge(r) for r in fetches]
    nodes = needed_nodes(graph, fetches, fed, where)
    check_kernels(nodes, where)
    constants: Constants = {
        (n.name, 0): n.attr_tensor("value").array()
        for n in nodes
        if n.op == "Const" and (n.name, 0) not in fed
    }
    actions = _actions(nodes, fed, wanted)
    # Without feeds everything is constant: there is nothing to be ahead of.
    if combine and feeds:
        actions, constants = fold(actions, constants, wanted, where)
        actions = fuse(actions, constants, wanted)
    return _placed(actions, constants, [edge(r) for r in feeds], wanted)


def _actions(nodes: Sequence[Node], fed: set[Edge], wanted: Sequence[Edge]) -> list[Action]:
    """An action for each node but constants."""
    read = {edge(r) for n in nodes for r in n.data_inputs} | set(wanted)
    indices: dict[str, list[int]] = {}
    for name, index in sorted(read - fed):
        indices.setdefault(name, []).append(index)
    return [
        kernel_action(node, kernel, indices.get(node.name, ()))
        for node in nodes
        if node.op != "Const" and (kernel := find_kernel(node.op)) is not None
    ]


def _placed(
    actions: Sequence[Action], constants: Constants, feeds: Sequence[Edge], wanted: Sequence[Edge]
) -> Plan:
    """The plan, with a slot for every tensor that anything reads."""
    read = {e for a in actions for e in a.inputs} | set(wanted)
    slots: dict[Edge, int] = {}

    def slot(tensor: Edge) -> int:
        return slots.setdefault(tensor, len(slots))

    given = tuple(slot(e) if e in read else None for e in feeds)
    held = {slot(e): array for e, array in constants.items() if e in read}
    places = [
        (tuple(slot(e) for e in a.inputs), tuple((i, slot(e)) for i, e in a.outputs))
        for a in actions
    ]
    fetches = tuple(slot(e) for e in wanted)
    last: dict[int, int] = {}
    for position, (inputs, outputs) in enumerate(places):
        last.update(dict.fromkeys((*inputs, *(s for _, s in outputs)), position))
    frees: list[list[int]] = [[] for _ in actions]
    for number, position in last.items():
        if number not in held and number not in fetches:
            frees[position].append(number)
    steps = tuple(
        Step(action, inputs, outputs, tuple(freed))
        for action, (inputs, outputs), freed in zip(actions, places, frees, strict=True)
    )
    return Plan(tuple(held.get(i) for i in range(len(slots))), given, steps, fetches)
