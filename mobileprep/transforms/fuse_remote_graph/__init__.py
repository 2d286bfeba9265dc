"""Move part of a graph into one node that a remote processor runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.wire import VARINT, delimited, encode_varint
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.verify import check_tensors
from mobileprep.transforms.base import Context, Result, transform
from mobileprep.transforms.fuse_remote_graph.options import RemoteOptions as RemoteOptions
from mobileprep.transforms.fuse_remote_graph.options import names as names
from mobileprep.transforms.fuse_remote_graph.options import output_dtypes, recorded, with_record
from mobileprep.transforms.tf115.importing import imported_nodes


@transform("fuse_remote_graph")
class FuseRemoteGraph(RemoteOptions, frozen=True):
    """Replace part of the graph with a RemoteFusedGraphExecute op that contains it.

    Source: ``fuse_remote_graph`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Puts part of the graph into one node, which a remote processor runs."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Move each part into its node, and keep the other nodes that the outputs need."""
        checked = self.checked(graph, context)
        if not names(self.fused_nodes) and not self._is_bordered and not self.fused_op_types:
            raise self._without_part()
        parts = self._parts(checked, context)
        now = self._fused(checked, parts, context) if parts else checked
        return Result(now, len(parts))

    @property
    def _is_bordered(self) -> bool:
        return not self.fused_nodes and bool(self.border_inputs and self.border_outputs)

    def _without_part(self) -> TransformError:
        if not self.fuse_by_executor:
            hint = "give fused_nodes, border_inputs with border_outputs, or fused_op_types"
            message = "no part of the graph is named"
            return self.refused(message, hint)
        message = f"unknown executor {self.remote_fused_graph_executor_name!r} to choose a part"
        return self.refused(message, "name the part's nodes, or tensors, or ops")

    def _parts(self, graph: Graph, context: Context) -> list[Cluster]:
        if not self.remote_fused_graph_node_name:
            message = "remote_fused_graph_node_name is empty"
            raise self.refused(message, "name the new node")
        if self._is_bordered:
            inputs, outputs = names(self.border_inputs), names(self.border_outputs)
            check_tensors(graph, (*inputs, *outputs), "border", self.transform_name)
            return [part_between(graph, _refs(inputs), _refs(outputs))]
        chosen = frozenset(names(self.fused_nodes))
        check_tensors(graph, sorted(chosen), "node", self.transform_name)
        if not chosen:
            ops = names(self.fused_op_types)
            chosen = frozenset(n.name for n in graph if n.op in ops)
        for node in graph:
            if node.name in chosen and context.tf115:
                self._check_inputs(node, chosen)
        return connected_parts(graph, chosen)

    def _check_inputs(self, node: Node, chosen: frozenset[str]) -> None:
        inside = sum(r.node in chosen for r in node.inputs)
        if inside not in (0, len(node.inputs)):
            message = f"node {node.name!r} takes tensors from the part and from outside"
            raise self.refused(message, "name the nodes that feed it as well")

    def _fused(self, graph: Graph, parts: Sequence[Cluster], context: Context) -> Graph:
        graph = graph.with_nodes(imported_nodes(graph))
        position = {n.name: i for i, n in enumerate(graph)}
        fused: dict[str, Node] = {}
        places: dict[Ref, Ref] = {}
        for number, part in enumerate(parts):
            own = self.remote_fused_graph_node_name
            name = own if self._is_bordered else f"{own}/{number}"
            members = sorted(_surrounded(part) & position.keys(), key=position.__getitem__)
            fused[name] = self._node(graph, part, [graph[n] for n in members], name)
            places.update((ref, Ref(name, i)) for i, ref in enumerate(part.outputs))
        results = _results(places, fused, context)
        replaced = {n.name for n in results}
        rest = [_redirected(n, places) for n in graph if n.name not in replaced]
        everything = graph.with_nodes([*rest, *fused.values(), *results])
        inputs = _refs(context.inputs)
        retained, _ = needed(everything, inputs, _refs(context.outputs))
        borders = {r.node for r in inputs}
        return graph.with_nodes(
            _placeholder(n, 0) if n.name in borders else n
            for n in everything
            if n.name in retained or n.name in borders
        )

    def _node(self, graph: Graph, part: Cluster, members: Sequence[Node], name: str) -> Node:
        """Create the node for a part; ``members`` are its nodes and those that feed it."""
        borders = {r.node: r.index for r in part.inputs}
        for node_name in borders:
            if len(output_dtypes(graph[node_name], graph)) > 1:
                message = f"node {node_name!r} feeds the part, and has several outputs"
                raise self.refused(message, "name nodes that other nodes feed")
        inside = graph.with_nodes(
            _placeholder(n, borders[n.name]) if n.name in borders else n for n in members
        )
        info = execute_info(
            inside,
            self.remote_fused_graph_executor_name,
            [(str(r), _record(inside, r)) for r in part.inputs],
            [(str(r), _record(inside, r)) for r in part.outputs],
        )
        attrs = {
            "Tinputs": _types(graph, part.inputs),
            "Toutputs": _types(graph, part.outputs),
            "serialized_remote_fused_graph_execute_info": AttrValue("string", info),
        }
        controls = dict.fromkeys(
            r
            for n in members
            if n.name in part.nodes
            for r in n.control_inputs
            if r.node not in part.nodes
        )
        inputs = (*(Ref(r.node, r.index) for r in part.inputs), *controls)
        return Node(name, "RemoteFusedGraphExecute", inputs, attrs=attrs)


def _refs(tensors: Sequence[str]) -> list[Ref]:
    return [parse_ref(name) for name in tensors]


def _dtype(graph: Graph, ref: Ref) -> DType:
    """Return a tensor's type; like the original, default to float if none is recorded."""
    types = output_dtypes(graph[ref.node], graph)
    return types[ref.index].base if ref.index < len(types) else DType.FLOAT


def _types(graph: Graph, refs: Sequence[Ref]) -> AttrValue:
    return AttrValue("list(type)", tuple(_dtype(graph, r) for r in refs))


def _record(graph: Graph, ref: Ref) -> Record | None:
    return _recorded_at(graph[ref.node], ref.index)


def _recorded_at(node: Node, index: int) -> Record | None:
    record = recorded(node)
    if record is None or index >= min(len(record[0]), len(record[1])):
        return None
    return record[0][index], record[1][index]


def _placeholder(node: Node, index: int) -> Node:
    """Create a placeholder with a node's recorded type and shape, or a float32 scalar."""
    if node.op == "Placeholder":
        return node
    dtype, shape = _recorded_at(node, index) or (DType.FLOAT, ())
    placeholder = Node(
        node.name, "Placeholder", attrs={"dtype": attr.dtype(dtype), "shape": attr.shape(shape)}
    )
    return with_record(placeholder, [dtype], [shape])


def _surrounded(part: Cluster) -> frozenset[str]:
    """Return the names of a part's nodes and of those that feed it."""
    return part.nodes.union(r.node for r in part.inputs)


def _results(places: Mapping[Ref, Ref], fused: Mapping[str, Node], context: Context) -> list[Node]:
    """Return the replacements of graph outputs that are inside parts."""
    of_node: dict[str, list[Ref]] = defaultdict(list)
    for ref, place in places.items():
        of_node[ref.node].append(place)
    outputs = [parse_ref(text).node for text in context.outputs]
    return [
        _identity(name, place, fused[place.node]) for name in outputs for place in of_node[name]
    ]


def _identity(name: str, source: Ref, fused: Node) -> Node:
    dtype = fused.attr_dtypes("Toutputs")[source.index]
    return Node(name, "Identity", (source,), attrs={"T": attr.dtype(dtype)})


def _redirected(node: Node, places: dict[Ref, Ref]) -> Node:
    inputs = tuple(places.get(r, r) for r in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs)


class Cluster(Struct, frozen=True):
    """Part of a graph.

    Tensors are spelled as the user wrote them, or with all output numbers as the tool does.

    Args:
        nodes: the names of its nodes.
        inputs: the tensors that its nodes take from others.
        outputs: the tensors that other nodes take from it, and those of nodes without consumers.
    """

    nodes: frozenset[str]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]


def connected_parts(graph: Graph, chosen: Collection[str]) -> list[Cluster]:
    """Return the chosen nodes as connected components, in stored order."""
    place = {n.name: i for i, n in enumerate(graph)}
    done: set[str] = set()
    parts: list[Cluster] = []
    for node in graph:
        if node.name in chosen and node.name not in done:
            members = _component(graph, node.name, chosen)
            done |= members
            parts.append(_with_borders(graph, sorted(members, key=place.__getitem__)))
    return parts


def part_between(graph: Graph, inputs: Sequence[Ref], outputs: Sequence[Ref]) -> Cluster:
    """Return the part of all nodes that the outputs need, up to the inputs."""
    nodes, _ = needed(graph, inputs, outputs)
    return Cluster(frozenset(nodes), tuple(inputs), tuple(outputs))


def needed(
    graph: Graph, inputs: Sequence[Ref], outputs: Sequence[Ref]
) -> tuple[set[str], set[str]]:
    """Return the nodes that the outputs need, and the nodes of the inputs among their sources."""
    fed = set(inputs)
    waiting = [r.node for r in outputs]
    seen, borders = set(waiting), set[str]()
    while waiting:
        for ref in graph[waiting.pop()].inputs:
            if ref in fed:
                borders.add(ref.node)
            if ref.node in seen:
                continue
            seen.add(ref.node)
            if ref not in fed:
                waiting.append(ref.node)
    return seen - borders, borders


def _component(graph: Graph, start: str, chosen: Collection[str]) -> set[str]:
    def around(name: str) -> Iterator[str]:
        beside = [r.node for r in graph[name].inputs]
        beside += [n.name for n in graph.consumers.get(name, ())]
        return (other for other in beside if other in chosen)

    return closure([start], around)


def _with_borders(graph: Graph, names: Sequence[str]) -> Cluster:
    members = frozenset(names)
    inputs: dict[Ref, None] = {}
    outputs: dict[Ref, None] = {}
    for node in map(graph.by_name.__getitem__, names):
        inputs.update((_explicit(r), None) for r in node.data_inputs if r.node not in members)
        outputs.update((_explicit(r), None) for r in _outside_reads(graph, node, members))
    return Cluster(members, tuple(inputs), tuple(outputs))


def _outside_reads(graph: Graph, node: Node, members: Collection[str]) -> list[Ref]:
    consumers = graph.consumers.get(node.name, ())
    if not consumers:
        return [Ref(node.name)]
    outside = (c for c in consumers if c.name not in members)
    return [r for c in outside for r in c.data_inputs if r.node == node.name]


def _explicit(ref: Ref) -> Ref:
    return Ref(ref.node, ref.index, explicit=True)


Record = tuple[DType, tuple[int, ...]]
"""A tensor's type and shape."""


def execute_info(
    part: Graph,
    executor: str,
    inputs: Sequence[tuple[str, Record | None]],
    outputs: Sequence[tuple[str, Record | None]],
) -> bytes:
    """Return the serialized message.

    Args:
        part: the nodes to run remotely.
        executor: the name of the remote program.
        inputs: input tensor names, with types and shapes if recorded.
        outputs: output tensor names, with types and shapes if recorded.
    """
    return b"".join(
        [
            delimited(1, graph_to_bytes(part)),
            *(delimited(2, name.encode()) for name, _ in inputs),
            *(delimited(3, name.encode()) for name, _ in outputs),
            delimited(4, executor.encode()),
            *(delimited(6, _type_and_shape(record)) for _, record in inputs if record),
            *(delimited(7, _type_and_shape(record)) for _, record in outputs if record),
        ]
    )


def _type_and_shape(record: Record) -> bytes:
    dtype, shape = record
    sizes = b"".join(delimited(2, _number(1, size) if size else b"") for size in shape)
    return _number(1, dtype) + delimited(2, sizes)


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3 | VARINT) + encode_varint(value)
