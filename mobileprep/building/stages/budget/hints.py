"""Suggestions for recipes that exceed a limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import BATCH_NORMS
from mobileprep.runtime.accounting.costs import GraphCosts, NodeCost
from mobileprep.targets.memmapped import removal

SIZE: Final = "quantize the weights, cut the graph further"


_TOLD: Final = 3


def parameters(graph: Graph) -> str:
    """Suggest a fix and name the largest constants, including those of functions."""
    bodies = {f.name: f.nodes for f in graph.library.functions.values()}
    nodes = [(n, "") for n in graph] + [(n, f"{f}/") for f, body in bodies.items() for n in body]
    sizes = [(n.attr_tensor("value").size, owner + n.name) for n, owner in nodes if n.op == "Const"]
    largest = sorted(sizes, key=lambda one: (-one[0], one[1]))[:_TOLD]
    constants = ", ".join(f"{name!r} ({size:,})" for size, name in largest)
    return f"cut the graph further, or train a smaller network: most are in {constants}"


def flops(costs: GraphCosts) -> str:
    """Name the most expensive ops and nodes, and suggest a transform that removes one."""
    whole = costs.flops or 1
    ops = [f"{op} {100 * n / whole:.0f} %" for op, n in costs.flops_by_op.items()][:_TOLD]
    details = f"{', '.join(ops)}, most of it in {_largest(costs, lambda n: n.flops or 0)}"
    norms = sorted(BATCH_NORMS & costs.flops_by_op.keys())
    first = f"fuse_batch_norms takes {', '.join(norms)} off; " if norms else ""
    return f"{first}feed smaller inputs, or train a smaller network: {details}"


def activations(costs: GraphCosts) -> str:
    """Name the nodes that write the largest tensors."""
    largest = _largest(costs, lambda n: n.written)
    return (
        "feed smaller inputs, or compute in 8 bits with 'quantize: {mode: nodes}': the largest "
        f"tensors are of {largest}"
    )


def kernels(ops: Mapping[str, int]) -> str:
    """Name the ops that occur in only one node."""
    single = sorted(op for op, count in ops.items() if count == 1 and op != "Placeholder")
    examples = f": of one node each are {', '.join(single[: 2 * _TOLD])}" if single else ""
    return f"fold_constants and fuse_batch_norms take ops off, and remove_nodes copies{examples}"


def without(op: str) -> str:
    """Suggest how to remove an op from a graph."""
    return removal(op) or f"cut the graph before {op}, or allow it"


def _largest(costs: GraphCosts, amount: Callable[[NodeCost], int]) -> str:
    nodes = sorted(costs.nodes, key=lambda n: (-amount(n), n.name))[:_TOLD]
    return ", ".join(f"{n.name!r} ({amount(n):,})" for n in nodes if amount(n))
