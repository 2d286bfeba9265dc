"""Plans of execution: which nodes run, in which order, and when each tensor is freed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError, nearest_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import Kernel, find_kernel

Run = Callable[[Sequence[Array]], tuple[Array, ...]]

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp", "VarIsInitializedOp"})


@dataclass(frozen=True, slots=True)
class Step:
    """One node's turn.

    Args:
        node: the node.
        kernel: computes its outputs.
        inputs: slots of its input tensors.
        outputs: pairs of an output's index and its slot, for the outputs that anyone reads.
        frees: slots that nothing reads after this step.
    """

    node: Node
    kernel: Kernel
    inputs: tuple[int, ...]
    outputs: tuple[tuple[int, int], ...]
    frees: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to compute some tensors from others.

    Args:
        size: how many slots hold tensors while it runs.
        feeds: the slot of each fed tensor; None where nothing needs it.
        constants: slots and values of constants.
        steps: the nodes to run, in order.
        fetches: the slot of each fetched tensor.
    """

    size: int
    feeds: tuple[int | None, ...]
    constants: tuple[tuple[int, Node], ...]
    steps: tuple[Step, ...]
    fetches: tuple[int, ...]


class _Slots:
    """Numbers for tensors, given out when first asked for."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], int] = {}

    def __call__(self, node: str, index: int) -> int:
        return self.numbers.setdefault((node, index), len(self.numbers))


def make_plan(graph: Graph, fetches: Sequence[Ref], feeds: Sequence[Ref], where: str) -> Plan:
    """Plan the computation of ``fetches`` from ``feeds`` and the graph's constants.

    Raises:
        InvalidGraphError: a node takes an input that is not there, or nodes feed each other.
        UnsupportedError: a node that has to run has an op without kernel.
        UsageError: a placeholder that is needed is not fed.
    """
    fed = {(r.node, r.index) for r in feeds}
    nodes = needed_nodes(graph, fetches, fed, where)
    kernels = {n.name: _kernel(n) for n in nodes if n.op != "Const"}
    _check_kernels(nodes, kernels, where)
    slots = _Slots()
    for ref in feeds:
        slots(ref.node, ref.index)
    read = {(r.node, r.index) for n in nodes for r in n.data_inputs}
    read.update((r.node, r.index) for r in fetches)
    outputs: dict[str, list[int]] = {}
    for name, index in sorted(read - fed):
        outputs.setdefault(name, []).append(index)
    constants = [(slots(n.name, 0), n) for n in nodes if n.op == "Const"]
    rough = [
        Step(
            node,
            kernel,
            tuple(slots(r.node, r.index) for r in node.data_inputs),
            tuple((i, slots(node.name, i)) for i in outputs.get(node.name, ())),
            (),
        )
        for node in nodes
        if (kernel := kernels.get(node.name)) is not None
    ]
    wanted = tuple(slots(r.node, r.index) for r in fetches)
    used = {(r.node, r.index) for r in feeds} & read
    fed_slots = tuple(slots(r.node, r.index) if (r.node, r.index) in used else None for r in feeds)
    kept = {*wanted, *(slot for slot, _ in constants)}
    steps = tuple(_with_frees(rough, kept))
    return Plan(len(slots.numbers), fed_slots, tuple(constants), steps, wanted)


def needed_nodes(
    graph: Graph, fetches: Iterable[Ref], fed: set[tuple[str, int]], where: str
) -> list[Node]:
    """The nodes that have to run for ``fetches``, each after its inputs, depth first.

    Depth first keeps the tensors of one branch from waiting for another's.

    Raises:
        InvalidGraphError: a missing input, or a cycle.
    """
    order: dict[str, Node] = {}
    entered: set[str] = set()
    wanted = [r.node for r in reversed(list(fetches)) if (r.node, r.index) not in fed]
    stack = [(graph[name], False) for name in wanted]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order[node.name] = node
            continue
        if node.name in entered:
            continue
        entered.add(node.name)
        stack.append((node, True))
        for ref in reversed(node.inputs):
            if (ref.node, ref.index) in fed or ref.node in order:
                continue
            stack.append((_producer(graph, node, ref, where), False))
    _check_order(order, fed, where)
    return list(order.values())


def _producer(graph: Graph, node: Node, ref: Ref, where: str) -> Node:
    found = graph.get(ref.node)
    if found is None:
        message = f"node {node.name!r} ({node.op}) takes {str(ref)!r}, which is not there"
        raise InvalidGraphError(message, nearest_hint(ref.node, graph.by_name), where)
    return found


def _check_order(order: dict[str, Node], fed: set[tuple[str, int]], where: str) -> None:
    """Every input stands before its consumer, which a cycle prevents."""
    done: set[str] = set()
    for node in order.values():
        for ref in node.inputs:
            if ref.node not in done and (ref.node, ref.index) not in fed:
                message = f"nodes {node.name!r} and {ref.node!r} feed each other in a circle"
                raise InvalidGraphError(message, "export the graph again", where)
        done.add(node.name)


def _kernel(node: Node) -> Kernel | None:
    return find_kernel(node.op)


def _check_kernels(nodes: list[Node], kernels: dict[str, Kernel | None], where: str) -> None:
    lacking = [n for n in nodes if n.op != "Const" and kernels[n.name] is None]
    unfed = [n for n in lacking if n.op in _PLACEHOLDERS]
    if unfed:
        names = ", ".join(repr(n.name) for n in unfed)
        message = f"nothing is fed to the placeholder{'s' * (len(unfed) > 1)} {names}"
        raise UsageError(message, "feed every placeholder that the outputs need", where)
    if lacking:
        raise _unsupported(lacking, where)


def _unsupported(lacking: list[Node], where: str) -> UnsupportedError:
    first = lacking[0]
    message = f"node {first.name!r} has the op {first.op!r}, which cannot be run here"
    if len(lacking) > 1:
        ops = ", ".join(sorted({n.op for n in lacking}))
        message += f"; nor can {len(lacking) - 1} more nodes (ops: {ops})"
    hint = "run the graph with an engine that has the op, or feed the node's output"
    if any(n.op in _VARIABLES for n in lacking):
        hint = "turn variables into constants first: mobileprep freeze"
    return UnsupportedError(message, hint, where)


def _with_frees(steps: list[Step], kept: set[int]) -> list[Step]:
    """The steps, each with the slots whose last reader it is."""
    last: dict[int, int] = {}
    for position, step in enumerate(steps):
        for slot in (*step.inputs, *(slot for _, slot in step.outputs)):
            last[slot] = position
    frees: list[list[int]] = [[] for _ in steps]
    for slot, position in last.items():
        if slot not in kept:
            frees[position].append(slot)
    return [
        Step(s.node, s.kernel, s.inputs, s.outputs, tuple(f))
        for s, f in zip(steps, frees, strict=True)
    ]
