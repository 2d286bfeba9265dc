"""What is known of the nodes that have to run, before any of their work is planned."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mobileprep.errors import InvalidGraphError
from mobileprep.frozen import dataclass
from mobileprep.ir.frames import Frames
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Edge, edge
from mobileprep.runtime.selection import closes_loop


@dataclass(frozen=True, slots=True)
class Survey:
    """Nodes and how they hang together.

    Args:
        nodes: the nodes by name.
        frames: the frame of each.
        readers: for each node those that take a tensor of it.
        indices: for each node the outputs that are read and not fed.
        controls: the nodes that others take as control inputs.
        fed: tensors that are given.
        combine: whether to compute constants ahead.
        watched: tensors that are shown as they are computed.
        where: the graph's name, for messages.
    """

    nodes: dict[str, Node]
    frames: Frames
    readers: dict[str, list[Node]]
    indices: dict[str, list[int]]
    controls: Collection[str]
    fed: Collection[Edge]
    combine: bool
    watched: Collection[Edge]
    where: str

    def is_head(self, node: Node) -> bool:
        """Whether a node is a Merge at the head of a loop."""
        return any(
            closes_loop(node, self.nodes[r.node]) for r in node.data_inputs if r.node in self.nodes
        )


def survey(
    nodes: Sequence[Node],
    fed: Collection[Edge],
    wanted: Collection[Edge],
    where: str,
    *,
    combine: bool,
    watched: Collection[Edge],
) -> Survey:
    """Survey some nodes, each standing after its inputs.

    Raises:
        InvalidGraphError: their loops are malformed.
    """
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in {r.node for r in node.data_inputs}:
            readers.setdefault(name, []).append(node)
    read = {edge(r) for n in nodes for r in n.data_inputs} | set(wanted)
    indices: dict[str, list[int]] = {}
    for name, index in sorted(read - set(fed)):
        indices.setdefault(name, []).append(index)
    return Survey(
        {n.name: n for n in nodes},
        Frames(nodes, fed, where),
        readers,
        indices,
        {r.node for n in nodes for r in n.control_inputs},
        fed,
        combine,
        watched,
        where,
    )


def malformed_head(node: Node, where: str) -> InvalidGraphError:
    """What to say of a Merge that a loop returns to, but that does not begin one."""
    message = f"node {node.name!r} ({node.op}) does not join what enters a loop with what returns"
    return InvalidGraphError(message, "export the graph again", where)
