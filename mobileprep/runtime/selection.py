"""Selection of the nodes that have to run for some tensors, in an order that allows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError, nearest_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import MERGES, NEXT_ITERATIONS, PLACEHOLDERS
from mobileprep.ir.refs import CONTROL, Edge, Ref

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp", "VarIsInitializedOp"})


def needed_nodes(graph: Graph, fetches: Iterable[Ref], fed: set[Edge], where: str) -> list[Node]:
    """The nodes that have to run for ``fetches``, each after its inputs, depth first.

    Depth first keeps the tensors of one branch from waiting for another's. The edges that close
    while loops do not count: what they come from may stand later.

    Raises:
        InvalidGraphError: a missing input, or a cycle.
    """
    # What waits for a node that is fed has nothing to wait for.
    fed = fed | {(name, CONTROL) for name, _ in fed}
    order: dict[str, Node] = {}
    entered: set[str] = set()
    wanted = [r.node for r in reversed(list(fetches)) if (r.node, r.index) not in fed]
    stack = [(graph[name], False) for name in wanted]
    closing: list[Node] = []
    while stack or closing:
        if not stack:
            stack.append((closing.pop(), False))
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
            producer = _producer(graph, node, ref, where)
            if closes_loop(node, producer):
                closing.append(producer)
            else:
                stack.append((producer, False))
    _check_order(order, fed, where)
    return list(order.values())


def closes_loop(consumer: Node, producer: Node) -> bool:
    """Whether a tensor goes back to the head of a while loop."""
    return consumer.op in MERGES and producer.op in NEXT_ITERATIONS


def _producer(graph: Graph, node: Node, ref: Ref, where: str) -> Node:
    found = graph.get(ref.node)
    if found is None:
        message = f"node {node.name!r} ({node.op}) takes {str(ref)!r}, which is not there"
        raise InvalidGraphError(message, nearest_hint(ref.node, graph.by_name), where)
    return found


def _check_order(order: dict[str, Node], fed: set[Edge], where: str) -> None:
    """Every input stands before its consumer, which a cycle prevents."""
    done: set[str] = set()
    for node in order.values():
        for ref in node.inputs:
            if ref.node in done or (ref.node, ref.index) in fed:
                continue
            if not closes_loop(node, order[ref.node]):
                message = f"nodes {node.name!r} and {ref.node!r} feed each other in a circle"
                raise InvalidGraphError(message, "export the graph again", where)
        done.add(node.name)


def refuse(lacking: Sequence[Node], where: str) -> None:
    """Give up where nodes that may have to run have no kernel.

    Raises:
        UsageError: a placeholder among them is not fed.
        UnsupportedError: an op has no kernel; the message counts how many nodes that concerns.
    """
    unfed = [n for n in lacking if n.op in PLACEHOLDERS]
    if unfed:
        names = ", ".join(repr(n.name) for n in unfed)
        message = f"nothing is fed to the placeholder{'s' * (len(unfed) > 1)} {names}"
        raise UsageError(message, "feed every placeholder that the outputs need", where)
    if lacking:
        raise _unsupported(lacking, where)


def _unsupported(lacking: Sequence[Node], where: str) -> UnsupportedError:
    first = lacking[0]
    message = f"node {first.name!r} has the op {first.op!r}, which cannot be run here"
    if len(lacking) > 1:
        ops = ", ".join(sorted({n.op for n in lacking}))
        message += f" (of the {len(lacking)} nodes that cannot, the ops are {ops})"
    hint = (
        "use an engine that has the op, feed the output of the node, or leave out the steps of a "
        "build that run the model (`check`, `validation`, `calibration`)"
    )
    if any(n.op in _VARIABLES for n in lacking):
        hint = "turn variables into constants first: mobileprep freeze"
    return UnsupportedError(message, hint, where)
