"""Move part of a graph into one node that a remote processor runs, or annotate its nodes."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType, dtype_from_text
from mobileprep.formats.wire import VARINT, delimited, encode_varint
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.tensor import Array
from mobileprep.graph.verify import check_inputs, check_tensors
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.tf115 import imported_nodes

OUTPUT_TYPES: Final = "_default_remote_graph_output_data_types"
OUTPUT_SHAPES: Final = "_default_remote_output_shapes"

_FEEDABLE: Final = (DType.FLOAT, DType.INT32, DType.QUINT8)
_LARGEST_FEED: Final = 1 << 28


class RemoteOptions(Transform, frozen=True):
    """Selection of the graph part that a remote processor runs, and the name of its op."""

    remote_fused_graph_executor_name: Annotated[
        str,
        Option("Executor that runs the part on the remote processor."),
    ]
    remote_fused_graph_node_name: Annotated[
        str,
        Option("Name of the node that replaces the part."),
    ] = ""
    fused_nodes: Annotated[str, Option("Nodes of the part, separated by commas.")] = ""
    border_inputs: Annotated[
        str,
        Option("Inputs of the part, separated by commas, instead of fused_nodes."),
    ] = ""
    border_outputs: Annotated[
        str,
        Option("Outputs of the part, separated by commas, with border_inputs."),
    ] = ""
    fused_op_types: Annotated[
        str,
        Option("Ops of the part, separated by commas, instead of fused_nodes."),
    ] = ""
    fuse_by_executor: Annotated[
        bool,
        Option("Let the executor choose the part, if it is available, instead of fused_nodes."),
    ] = False
    input_types: Annotated[
        str,
        Option(
            "Dtypes of the graph's inputs, separated by commas. If set, the dtypes and shapes of "
            "all tensors are recorded."
        ),
    ] = ""
    input_shapes: Annotated[
        str,
        Option("Shapes of the inputs, separated by colons, with input_types: `1,299,299,3:1`."),
    ] = ""

    def checked(self, graph: Graph, context: Context) -> Graph:
        """Validate the graph, and record all tensor shapes if input types are set.

        Raises:
            TransformError: the executor is empty, or an input type or shape is invalid.
            InvalidGraphError: a tensor does not exist.
        """
        if not self.remote_fused_graph_executor_name:
            message = "remote_fused_graph_executor_name is empty"
            raise self.refused(message, "name an executor")
        check_inputs(graph, self.transform_name)
        check_tensors(graph, context.inputs, "input", self.transform_name)
        check_tensors(graph, context.outputs, "output", self.transform_name)
        return self._with_shapes(graph, context) if self.input_types else graph

    def refused(self, message: str, hint: str = "") -> TransformError:
        """Create an error of this transform."""
        return refuse(self.transform_name, message, hint)

    def _with_shapes(self, graph: Graph, context: Context) -> Graph:
        feeds = self._feeds(context.inputs)
        outputs = {n.name: _outputs(n, graph) for n in graph}
        fed = {parse_ref(name).node for name in feeds}
        fetched = [str(r) for name, refs in outputs.items() if name not in fed for r in refs]
        values = dict(zip(fetched, Interpreter(graph).run(fetched, feeds), strict=True))
        values.update((str(parse_ref(name)), array) for name, array in feeds.items())
        return graph.with_nodes(_recorded(n, outputs[n.name], values, graph) for n in graph)

    def _feeds(self, inputs: Sequence[str]) -> dict[str, Array]:
        types, shapes = self.input_types.split(","), self.input_shapes.split(":")
        if not len(inputs) == len(types) == len(shapes):
            message = f"{len(inputs)} inputs have {len(types)} types and {len(shapes)} shapes"
            raise self.refused(message, "types are divided by commas, shapes by colons")
        triples = zip(inputs, types, shapes, strict=True)
        return {name: self._zeros(dtype, shape) for name, dtype, shape in triples}

    def _zeros(self, type_text: str, shape_text: str) -> Array:
        dtype = dtype_from_text(type_text.strip())
        if dtype not in _FEEDABLE or dtype.numpy is None:
            message = f"{type_text!r} is not a dtype for inputs"
            raise self.refused(message, "one of float, int32, quint8")
        sizes = [part.strip() for part in shape_text.split(",")] if shape_text else []
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in sizes):
            message = f"{shape_text!r} is not a shape"
            raise self.refused(message, "give numbers divided by commas")
        shape = tuple(int(part) for part in sizes)
        if int(np.prod(shape, dtype=np.float64)) > _LARGEST_FEED:
            message = f"an input of shape {list(shape)} is too large to be run"
            raise self.refused(message, "give the shape that the model is used with")
        return np.zeros(shape, dtype.numpy)


def names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list; an empty string has no names."""
    return tuple(text.split(",")) if text else ()


def recorded(node: Node) -> tuple[tuple[DType, ...], tuple[tuple[int, ...], ...]] | None:
    """Return the recorded types and shapes of a node's outputs, or None."""
    if OUTPUT_TYPES not in node.attrs or OUTPUT_SHAPES not in node.attrs:
        return None
    shapes = node.attr_shapes(OUTPUT_SHAPES)
    return node.attr_dtypes(OUTPUT_TYPES), tuple(s or () for s in shapes)


def with_record(node: Node, types: Sequence[DType], shapes: Sequence[tuple[int, ...]]) -> Node:
    """Record the types and shapes of a node's outputs."""
    attrs = {
        OUTPUT_TYPES: AttrValue("list(type)" if types else "list", tuple(types)),
        OUTPUT_SHAPES: AttrValue("list(shape)" if shapes else "list", tuple(shapes)),
    }
    return replace(node, attrs={**node.attrs, **attrs})


def output_dtypes(node: Node, graph: Graph) -> Sequence[DType]:
    """Return the types of a node's outputs, or an empty list if the op is unknown."""
    definition = signature_of(node, graph.library)
    return [] if definition is None else output_types(node, definition)


def _outputs(node: Node, graph: Graph) -> list[Ref]:
    return [Ref(node.name, i) for i in range(len(output_dtypes(node, graph)))]


def _recorded(node: Node, refs: Sequence[Ref], values: dict[str, Array], graph: Graph) -> Node:
    types = output_dtypes(node, graph)
    shapes = [values[str(r)].shape for r in refs]
    return with_record(node, [t.base for t in types], shapes)


@transform("fuse_remote_graph")
class FuseRemoteGraph(RemoteOptions, frozen=True):
    """Replace part of the graph with a RemoteFusedGraphExecute op that contains it.

    Source: ``fuse_remote_graph`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Replaces part of the graph with one node, which a remote processor runs."
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


_NODE_TYPE = "_remote_fused_graph_node_type"


class _Part(enum.IntEnum):
    """Role of a node, with the numbers that executors use."""

    UNUSED = 0
    GRAPH_INPUT = 1
    GRAPH_OUTPUT = 2
    FUSED_NODE = 3
    BORDER_INPUT = 4
    BORDER_OUTPUT = 5


@transform("place_remote_graph_arguments")
class PlaceRemoteGraphArguments(RemoteOptions, frozen=True):
    """Set an attribute on every node that the counterpart of fuse_remote_graph reads at run time.

    Source: ``place_remote_graph_arguments`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Records at each node its role in a graph that a remote processor runs."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Annotate all nodes with their roles."""
        graph = self.checked(graph, context)
        fused = frozenset(names(self.fused_nodes))
        ops = frozenset(names(self.fused_op_types))
        executor = (self.remote_fused_graph_executor_name, self.remote_fused_graph_node_name)
        nodes: list[Node] = []
        matched = 0
        for node in graph:
            parts = [
                *_at(node, _Part.GRAPH_INPUT, context.inputs, *executor),
                *_at(node, _Part.GRAPH_OUTPUT, context.outputs),
                *([str(int(_Part.FUSED_NODE))] * ((node.name in fused) + (node.op in ops))),
                *_at(node, _Part.BORDER_INPUT, names(self.border_inputs)),
                *_at(node, _Part.BORDER_OUTPUT, names(self.border_outputs)),
            ]
            matched += bool(parts)
            text = ":".join(parts) or str(int(_Part.UNUSED))
            nodes.append(node.with_attrs(**{_NODE_TYPE: attr.string(text)}))
        return Result(graph.with_nodes(nodes), matched)


def _at(node: Node, part: _Part, tensors: Sequence[str], *more: str) -> list[str]:
    """Return ``part,output,position`` for each of the tensors that the node outputs."""
    refs = [parse_ref(name) for name in tensors]
    return [
        ",".join([str(int(part)), str(ref.index), str(place), *more])
        for place, ref in enumerate(refs)
        if ref.node == node.name
    ]
