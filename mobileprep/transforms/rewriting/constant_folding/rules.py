"""Rules for the ops that constant folding may evaluate.

Source: ``IsConstantFoldable`` of TensorFlow 1.15's constant folding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from mobileprep.graph.graph import Library
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import NEWEST, TF115, op_def
from mobileprep.graph.opdefs.kernel_classes import kernel_class
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import Ref, control, parse_ref
from mobileprep.ops.kernel import Kernel, find_kernel

_CONTROL_FLOW = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration"})


_LEFT_ALONE = frozenset(
    {
        *_CONTROL_FLOW,
        *(f"Ref{op}" for op in _CONTROL_FLOW),
        "DeleteSessionTensor",
        "FakeParam",
        "GetSessionHandle",
        "GetSessionHandleV2",
        "GetSessionTensor",
    }
)


Kernels = Callable[[str], Kernel | None]
"""Function that returns the kernel of an op, or None for the default one."""


@dataclass
class FoldingRules:
    """Rules that decide whether nodes with constant inputs may be folded.

    Args:
        library: the graph's functions; calls are not folded.
        excluded_ops: ops that the user excluded.
        excluded_nodes: names of nodes that the user excluded.
        max_bytes: size limit of results.
        tf115: the kernels of TensorFlow 1.15, to reproduce its rounding, and to treat a placeholder
            that is not fed as a constant, which fails when its value is needed.
    """

    library: Library
    excluded_ops: Collection[str]
    excluded_nodes: Collection[str]
    max_bytes: int
    tf115: Kernels | None = None
    _excluded: dict[str, str] = field(default_factory=dict, init=False)

    def leave(self, name: str, reason: str) -> None:
        """Exclude a node from now on."""
        self._excluded[name] = reason

    def refusal(self, node: Node) -> str:
        """Return the reason why a node must not be folded, or an empty string."""
        if node.op in self.excluded_ops or node.name in self.excluded_nodes:
            return "excluded"
        if node.op in self.library.functions:
            return "function call"
        if node.op in PLACEHOLDERS:
            return "placeholder" if self.tf115 is None else ""
        if node.op in _LEFT_ALONE:
            return f"{node.op} is never folded"
        release = TF115 if op_def(node.op, TF115) is not None else NEWEST
        definition = op_def(node.op, release)
        if definition is None:
            return f"unknown op {node.op}"
        if definition.is_stateful:
            return f"{node.op} has state"
        if kernel_class(node, release) is None:
            return f"TensorFlow {release} has no CPU kernel for this {node.op}"
        # A node without outputs is never computed.
        if definition.outputs and find_kernel(node.op) is None:
            return f"no kernel for {node.op}"
        return self._excluded.get(node.name, "")


class Execution(Struct, frozen=True):
    """The nodes that a run needs, and the feeds that cut the graph.

    Args:
        nodes: the needed nodes by name, in stored order.
        fed: the inputs of nodes that come from a feed: the fed tensors, and control dependencies on
            the placeholders among them.
        inputs: the nodes whose tensors are fed, in the user's order.
        fetched: the tensors that are fetched.
    """

    nodes: Mapping[str, Node]
    fed: frozenset[Ref]
    inputs: tuple[str, ...]
    fetched: tuple[Ref, ...]


def execution(nodes: Iterable[Node], inputs: Iterable[str], outputs: Iterable[str]) -> Execution:
    """Return the part of a graph between fed and fetched tensors."""
    by_name = {node.name: node for node in nodes}
    tensors = [parse_ref(name) for name in inputs]
    placeholders = (r.node for r in tensors if by_name[r.node].op in PLACEHOLDERS)
    fed = frozenset(tensors).union(control(name) for name in placeholders)
    fetched = tuple(parse_ref(name) for name in outputs)
    needed = reachable(by_name, (r.node for r in fetched), fed)
    names = tuple(dict.fromkeys(r.node for r in tensors))
    return Execution({n: by_name[n] for n in by_name if n in needed}, fed, names, fetched)
