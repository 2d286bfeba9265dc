"""The graph after raising: what is left of its nodes, those that were made, the functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from mobileprep.ir import attrs as attr
from mobileprep.ir.colocation import without_dangling
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import FEEDABLE
from mobileprep.ir.reachability import closure
from mobileprep.ir.refs import Ref, parse_ref
from mobileprep.transforms.raise_control_flow.functions import Functions
from mobileprep.transforms.raise_control_flow.region import Raising, cannot_raise

_FETCH: Final = "fetch the tensor itself"


def assembled(
    work: Raising,
    functions: Functions,
    outputs: Sequence[Ref],
    beside: Collection[str],
    inputs: Iterable[str],
) -> Graph:
    """The raised graph.

    Args:
        work: what stands for tensors that are gone, and the nodes that were made.
        functions: what these run.
        outputs: the tensors wanted; their nodes keep their names.
        beside: names of nodes that stay, though the outputs do not need them.
        inputs: the tensors that are fed.

    Raises:
        UnsupportedError: a tensor that is fed or wanted is in a loop or a branch.
    """
    graph = work.graph
    fed = [n for n in map(graph.get, (parse_ref(name).node for name in inputs)) if n is not None]
    # What is fed stays, though a branch that is never taken was all that took it.
    given = [n.name for n in fed if n.op in FEEDABLE and _gives_constants(graph, n)]
    starts = [*(work.resolved(ref).node for ref in outputs), *beside, *given]
    needed = closure(starts, lambda name: _needed(work, name))
    for node in fed:
        if node.name in work.live and node.name not in needed:
            _check_fed(work, node)
    left = [n for n in graph if n.name in needed]
    ends = [_end(work, ref) for ref in dict.fromkeys(outputs) if ref.node not in needed]
    nodes = _placed(work, [*left, *ends])
    names = {n.name for n in nodes}
    return Graph(without_dangling(nodes, names), functions.library, graph.versions)


def _gives_constants(graph: Graph, node: Node) -> bool:
    """Whether what stands for a placeholder that is not fed is constant, if anything does."""
    return all(graph[r.node].op == "Const" for r in node.data_inputs)


def _check_fed(work: Raising, node: Node) -> None:
    if node.op not in FEEDABLE and node.op != "Const":
        raise cannot_raise(node, "is fed within a loop or a branch", "feed what enters it")


def _needed(work: Raising, name: str) -> list[str]:
    node = work.node(name)
    return [] if node is None else [work.resolved(r).node for r in node.data_inputs]


def _placed(work: Raising, nodes: Sequence[Node]) -> list[Node]:
    """Nodes with their inputs resolved, those that were made before the first that needs them."""
    done: dict[str, Node] = {}
    there = {n.name for n in nodes}
    for start in nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            refs = tuple(map(work.resolved, node.inputs))
            made = [work.made[r.node] for r in refs if r.node in work.made and r.node not in done]
            if made and node.name not in done:
                stack += reversed(made)
                continue
            stack.pop()
            kept = tuple(r for r in refs if not r.is_control or r.node in there or r.node in done)
            done.setdefault(node.name, node if kept == node.inputs else node.with_inputs(kept))
    return list(done.values())


def _end(work: Raising, ref: Ref) -> Node:
    """What has the name of an output that is gone."""
    if ref.index:
        raise cannot_raise(work.graph[ref.node], "is fetched at a second output", _FETCH)
    source = work.resolved(ref)
    kind = {"T": attr.dtype(work.type_of(source))}
    return Node(ref.node, "Identity", (source,), "", kind)
