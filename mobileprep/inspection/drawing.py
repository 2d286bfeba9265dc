"""What is drawn of a graph: all of it, the surroundings of a node, or its name scopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref


@dataclass(frozen=True)
class Box:
    """A node, or a whole name scope.

    Args:
        id: the node's name; of a scope, its name with a slash at the end.
        op: the op; empty for a scope.
        nodes: how many nodes it stands for.
    """

    id: str
    op: str
    nodes: int = 1


@dataclass(frozen=True)
class Arrow:
    """Tensors, or control dependencies, between two boxes.

    Args:
        source: the id of the box that they come from.
        target: the id of the one that takes them.
        label: the shapes of the tensors.
        is_control: whether they carry nothing.
    """

    source: str
    target: str
    label: str = ""
    is_control: bool = False


@dataclass(frozen=True)
class Drawing:
    """Boxes in the graph's order, and arrows between them."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def drawn(
    graph: Graph, *, collapse: int = 0, shapes: Mapping[str, tuple[TensorShape, ...]] | None = None
) -> Drawing:
    """What to draw of a graph.

    Args:
        graph: the graph; inputs that are not there are left out.
        collapse: how many parts of names to show: what lies deeper is one box for each scope; 0
            for all nodes.
        shapes: those of each node's outputs, for labels.
    """
    boxes: dict[str, Box] = {}
    places: dict[str, str] = {}
    for node in graph:
        box = _box(node, collapse)
        known = boxes.get(box.id)
        boxes[box.id] = box if known is None else Box(box.id, "", known.nodes + 1)
        places[node.name] = box.id
    labels: dict[tuple[str, str, bool], dict[str, None]] = {}
    for node in graph:
        for ref in node.inputs:
            ends = places.get(ref.node), places[node.name]
            if ends[0] is None or (ends[0] == ends[1] and collapse):
                continue
            known_labels = labels.setdefault((ends[0], ends[1], ref.is_control), {})
            known_labels[_label(ref, shapes or {})] = None
    arrows = [Arrow(a, b, _joined(told), is_control) for (a, b, is_control), told in labels.items()]
    return Drawing(tuple(boxes.values()), tuple(arrows))


def surroundings(graph: Graph, name: str, radius: int) -> Graph:
    """The nodes that at most so many arrows, followed either way, lead to from a node.

    Inputs from elsewhere are left out.

    Raises:
        UsageError: there is no such node.
    """
    if name not in graph:
        message = f"there is no node {name!r} in the graph"
        raise UsageError(message, nearest_hint(name, graph.by_name))
    found = {name}
    rim: Iterable[str] = (name,)
    for _ in range(radius):
        near = {r.node for n in rim for r in graph[n].inputs if r.node in graph}
        near.update(c.name for n in rim for c in graph.consumers.get(n, ()))
        rim = near - found
        if not rim:
            break
        found |= near
    kept = (n for n in graph if n.name in found)
    return graph.with_nodes(
        n.with_inputs(tuple(r for r in n.inputs if r.node in found)) for n in kept
    )


def shape_text(shape: TensorShape) -> str:
    """A shape as pictures have it: ``?x28x28x1``."""
    if shape is None:
        return "?"
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"


def _box(node: Node, collapse: int) -> Box:
    parts = node.name.split("/")
    if not collapse or len(parts) <= collapse:
        return Box(node.name, node.op)
    return Box("/".join(parts[:collapse]) + "/", "")


def _label(ref: Ref, shapes: Mapping[str, tuple[TensorShape, ...]]) -> str:
    known = shapes.get(ref.node, ())
    return shape_text(known[ref.index]) if 0 <= ref.index < len(known) else ""


def _joined(labels: Iterable[str]) -> str:
    told = [label for label in labels if label]
    return told[0] if len(told) == 1 else f"{len(told)} shapes" if told else ""
