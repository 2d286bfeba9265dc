"""Immutable graphs: nodes in order, a function library, and versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from mobileprep.graph.attrs import AttrValue, OpDef
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor


class Versions(Struct, frozen=True):
    """The GraphDef versions of the producer and of the oldest supported consumer."""

    producer: int = 0
    min_consumer: int = 0
    bad_consumers: tuple[int, ...] = ()


class Function(Struct, frozen=True):
    """A function of the library: its signature, its body, and the sources of its results.

    Inputs of body nodes and values of ``ret`` have the form "node:output:index".
    """

    signature: OpDef
    nodes: tuple[Node, ...] = ()
    ret: Mapping[str, Ref] = field(default_factory=dict)
    control_ret: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    arg_attrs: Mapping[int, Mapping[str, AttrValue]] = field(default_factory=dict)
    resource_ids: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name that nodes use to call the function."""
        return self.signature.name


class Library(Struct, frozen=True):
    """Functions by name, and pairs of functions and their gradients."""

    functions: Mapping[str, Function] = field(default_factory=dict)
    gradients: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.functions or self.gradients)


class Graph:
    """Nodes in their stored order, with lazily computed indexes.

    Args:
        nodes: the nodes; names should be unique, which `graph.verify` checks.
        library: functions that nodes may call.
        versions: versions of the graph.
    """

    __slots__ = ("_by_name", "_consumers", "library", "nodes", "pieces", "versions")

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        library: Library | None = None,
        versions: Versions | None = None,
    ) -> None:
        self.nodes: tuple[Node, ...] = tuple(nodes)
        self.library = library or Library()
        self.versions = versions or Versions()
        self.pieces: tuple[bytes | Tensor, ...] | None = None
        """The serialized graph, cached by `graph.serde`."""
        self._by_name: dict[str, Node] | None = None
        self._consumers: dict[str, list[Node]] | None = None

    def with_nodes(self, nodes: Iterable[Node]) -> Graph:
        """Return a graph of other nodes with the same library and versions."""
        return Graph(nodes, self.library, self.versions)

    @property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name; if several have the same name, the last one."""
        if self._by_name is None:
            self._by_name = {n.name: n for n in self.nodes}
        return self._by_name

    @property
    def consumers(self) -> Mapping[str, list[Node]]:
        """The nodes that use an output of each node, without duplicates, in graph order.

        Control dependencies are included. Names without consumers are absent.
        """
        if self._consumers is None:
            consumers: dict[str, list[Node]] = {}
            for node in self.nodes:
                names = [r.node for r in node.inputs]
                for name in dict.fromkeys(names) if len(names) > 1 else names:
                    users = consumers.get(name)
                    if users is None:
                        consumers[name] = [node]
                    else:
                        users.append(node)
            self._consumers = consumers
        return self._consumers

    def __str__(self) -> str:
        """Return a line for each node; see `mobileprep.graph.text`."""
        from mobileprep.graph.text import graph_text  # That module imports this one.

        return graph_text(self)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> Node:
        return self.by_name[name]

    def get(self, name: str) -> Node | None:
        """Return the node of that name, or None."""
        return self.by_name.get(name)
