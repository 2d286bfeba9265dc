"""Insert folded constants into a graph in place of their nodes, under the same names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import output_count
from mobileprep.graph.reachability import reachable, without_dangling
from mobileprep.graph.refs import FreshNames, Ref, control
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.rewriting.constant_folding.search import Folding


def folded_in_place(graph: Graph, folding: Folding) -> Graph:
    """Return the folded graph, or the graph itself if nothing changes.

    A node with one output becomes a constant of the same name, so output names are preserved. A
    tensor that equals an existing constant is redirected to it instead of being duplicated, except
    if it is a graph output. A node with several outputs gets a separate constant for each. Nodes
    that the outputs do not need are removed, except inputs.
    """
    nodes = list(_Places(graph, folding).nodes())
    by_name = {n.name: n for n in nodes}
    roots = [*(r.node for r in folding.run.fetched), *folding.run.inputs]
    needed = reachable(by_name, roots)
    nodes = without_dangling((n for n in nodes if n.name in needed), needed)
    if len(nodes) == len(graph) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    return graph.with_nodes(nodes)


class _Places:
    """Locations of the values of folded tensors."""

    def __init__(self, graph: Graph, folding: Folding) -> None:
        self._graph = graph
        self._folding = folding
        self._sources: dict[Ref, Ref] = {}
        self._in_place: dict[str, Node] = {}
        self._beside: dict[str, list[Node]] = {}
        self._names = FreshNames(graph.by_name)
        constants = self._constants()
        fed = {r.node for r in folding.run.fed}
        for ref, value in sorted(folding.values.items(), key=lambda item: str(item[0])):
            same = constants.get(id(value))
            if same is not None:
                self._share(ref, same)
            elif ref.node not in fed:
                self._place(ref, value)

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes after folding, including those that are no longer needed."""
        for node in self._graph:
            yield self._in_place.get(node.name) or self._rewired(node)
            yield from self._beside.get(node.name, ())

    def _constants(self) -> Mapping[int, str]:
        """Return the names of Const nodes by the identity of their values."""
        names: dict[int, str] = {}
        for name in self._folding.constant.order:
            node = self._folding.run.nodes[name]
            if node.op == "Const":
                names.setdefault(id(node.attr_tensor("value")), name)
        return names

    def _share(self, ref: Ref, same: str) -> None:
        # A constant with different control inputs, as in a branch that may not run, is not equal.
        controls = self._folding.constant.controls
        if controls[ref.node] == controls[same]:
            self._sources[ref] = Ref(same)

    def _place(self, ref: Ref, value: Tensor) -> None:
        node = self._graph[ref.node]
        controls = self._folding.constant.controls[ref.node]
        awaited = tuple(control(name) for name in sorted({r.node for r in controls}))
        if output_count(node, self._graph.library) == 1:
            self._in_place[node.name] = constant(node.name, value, node.device, awaited)
            return
        name = self._names.name(f"{node.name}_{ref.index}")
        self._sources[ref] = Ref(name)
        beside = self._beside.setdefault(node.name, [])
        beside.append(constant(name, value, node.device, awaited))

    def _rewired(self, node: Node) -> Node:
        fed = self._folding.run.fed
        if not any(r in self._sources for r in node.inputs):
            return node
        inputs = (r if r in fed else self._sources.get(r, r) for r in node.inputs)
        return replace(node, inputs=tuple(inputs))
