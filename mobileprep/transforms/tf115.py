"""Details of TensorFlow 1.15 that its results depend on: hashes, import, and folded graphs.

Source: ``HashNodeDef``, ``ImportGraphDef``, ``ReplaceTensorWithConstant``, ``ReplaceSendRecvs``,
and ``RemoveUnusedNodes`` of TensorFlow 1.15.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache, reduce
from typing import Final

from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, TransformError
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.node_serde import attr_to_proto
from mobileprep.graph.op_sets import MERGES, NEXT_ITERATIONS
from mobileprep.graph.opdefs.definitions import default_attrs
from mobileprep.graph.reachability import reachable, without_dangling
from mobileprep.graph.refs import Ref, control
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.constant_evaluation import MAX_DEPTH, StaticValues, is_static
from mobileprep.ops.numerics.hashes import hash64
from mobileprep.ops.shape_function import MAX_RANK, UNKNOWN, concatenate, unknown_dims
from mobileprep.transforms.rewriting.constant_folding import ConstantNodes, Execution, Folding

# Up to this total size of constants in bytes, all of them are hashed like in the original.
_HASHED_WHOLE: Final = 1 << 23
_LONG: Final = 1 << 12


class NodeHashes:
    """Hashes of the nodes of one graph.

    If a graph has many bytes of constants, long ones have a faster hash than the original's, so
    only their own positions in the order differ.

    Args:
        graph: the graph.
        named: the nodes whose names are hashed.
    """

    def __init__(self, graph: Graph, named: Collection[str]) -> None:
        self._graph = graph
        self._named = named
        # By the identity of the attributes, which similar nodes often share.
        self._of_attrs: dict[int, tuple[int, ...]] = {}

    def of(self, node: Node) -> int:
        """Return the hash of a node."""
        return reduce(combine, (*map(_text_hash, self._texts(node)), *self._attrs(node)))

    def _texts(self, node: Node) -> list[str]:
        """Return the strings of a node that are hashed before its attributes."""
        name = node.name if node.name in self._named else ""
        return [node.op, name, *map(_canonical, node.inputs), node.device]

    def _attrs(self, node: Node) -> tuple[int, ...]:
        """Return the hashes of the attributes' serialized values, sorted by attribute name."""
        hashes = self._of_attrs.get(id(node.attrs))
        if hashes is None:
            hashes = tuple(_attr_hash(node.attrs[k], self._longest) for k in sorted(node.attrs))
            self._of_attrs[id(node.attrs)] = hashes
        return hashes

    @cached_property
    def _longest(self) -> int:
        constants = [n.attr_tensor("value") for n in self._graph if n.op == "Const"]
        total = sum(t.size * t.dtype.itemsize for t in constants)
        return _HASHED_WHOLE if total <= _HASHED_WHOLE else _LONG


def _canonical(ref: Ref) -> str:
    text = str(ref)
    return text if ref.index > 0 or ref.explicit else f"{text}:0"


def _attr_hash(value: AttrValue, longest: int) -> int:
    if value.kind == "tensor" and value.value.dtype.itemsize and value.value.nbytes > longest:
        return hash64(zlib.crc32(value.value.raw()).to_bytes(4, "little"))
    proto = pb.AttrValue()
    attr_to_proto(value, proto)
    return hash64(proto.SerializeToString(deterministic=True))


@lru_cache(maxsize=1 << 17)
def _text_hash(text: str) -> int:
    """Return the hash of a name, an op, or a device, which often repeat in a graph."""
    return hash64(text.encode())


_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7800


def combine(first: int, second: int) -> int:
    """Combine two hashes into one. Source: ``Hash64Combine`` of TensorFlow."""
    return first ^ (second + _GOLDEN + (first << 10 & _MASK) + (first >> 4) & _MASK)


_OUTPUT_SHAPES: Final = "_output_shapes"


def imported_nodes(graph: Graph) -> list[Node]:
    """Return the nodes in the importer's order and as it completes them.

    Missing attributes get the defaults of TensorFlow 1.15's op definitions, if it has the op.
    Recorded output shapes are removed. Control inputs are sorted and deduplicated.
    """
    defaults: dict[str, Mapping[str, AttrValue]] = {}
    nodes = []
    for node in import_order(graph):
        if node.op not in defaults:
            defaults[node.op] = default_attrs(node.op, graph.library) or {}
        nodes.append(_completed(node, defaults[node.op]))
    return nodes


def import_order(graph: Graph) -> list[Node]:
    """Return the nodes in the order in which the importer creates them.

    Of the nodes with available inputs, the first one in the graph comes next. A Merge that closes a
    loop waits for one tensor and its control inputs.

    Raises:
        InvalidGraphError: the graph has a cycle outside of loops.
    """
    nodes = graph.nodes
    position = {node.name: i for i, node in enumerate(nodes)}
    consumers: list[list[int]] = [[] for _ in nodes]
    pending = []
    for i, node in enumerate(nodes):
        pending.append(_awaited(node, graph))
        for ref in node.inputs:
            consumers[position[ref.node]].append(i)
    ready = [i for i, count in enumerate(pending) if not count]
    order = []
    while ready:
        node = nodes[i := heapq.heappop(ready)]
        order.append(node)
        closes = node.op in NEXT_ITERATIONS
        for consumer in consumers[i]:
            if closes and nodes[consumer].op in MERGES:
                continue
            pending[consumer] -= 1
            if not pending[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) < len(nodes):
        waiting = next(n.name for i, n in enumerate(nodes) if pending[i] > 0)
        message = f"{len(nodes) - len(order)} nodes feed each other in a circle, as {waiting!r}"
        raise InvalidGraphError(message, "export the graph again")
    return order


def _awaited(node: Node, graph: Graph) -> int:
    if node.op in MERGES and any(graph[r.node].op in NEXT_ITERATIONS for r in node.data_inputs):
        return len(node.control_inputs) + 1
    return len(node.inputs)


def _completed(node: Node, defaults: Mapping[str, AttrValue]) -> Node:
    attrs = node.attrs
    if _OUTPUT_SHAPES in attrs or any(name not in attrs for name in defaults):
        attrs = {**defaults, **{k: v for k, v in attrs.items() if k != _OUTPUT_SHAPES}}
    inputs = _imported_inputs(node.inputs)
    if inputs is node.inputs and attrs is node.attrs:
        return node
    return replace(node, inputs=inputs, attrs=attrs)


def _imported_inputs(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """Return tensors as "node" or "node:1", then control inputs, sorted and deduplicated."""
    if not any(r.explicit or r.is_control for r in refs):
        return refs
    tensors = [Ref(r.node, r.index) for r in refs if not r.is_control]
    controls = sorted({r.node for r in refs if r.is_control})
    return (*tensors, *map(control, controls))


def copies_warning(step: str, before: Graph, after: Graph) -> str:
    """Return a warning about constants that a step duplicated, with a remedy, or an empty string.

    The original folds each Identity of a constant to a second constant of the same value. If other
    nodes still need the first, for example a NoOp with a control input from it, the file contains
    both. Values are compared by identity, which costs nothing.
    """
    if after is before:
        return ""
    had = Counter(id(value) for value in _values(before))
    has = Counter(id(value) for value in _values(after))
    sizes = {id(value): value.nbytes for value in _values(after)}
    more = {key: has[key] - had[key] for key in has if 0 < had[key] < has[key]}
    size = sum(count * sizes[key] for key, count in more.items())
    if not size:
        return ""
    return (
        f"{step}: {sum(more.values())} constants are duplicated now, {size:,} bytes more, "
        "because it copies each that is read through an Identity; put remove_nodes(op=Identity) "
        f"before {step}, or merge_duplicate_nodes behind it"
    )


def _values(graph: Graph) -> Iterator[Tensor]:
    for node in graph:
        value = node.attrs.get("value") if node.op == "Const" else None
        if value is not None and isinstance(value.value, Tensor):
            yield value.value


_TOLD_BY_SHAPES = frozenset({"Rank", "Shape", "Size"})
_SPECIAL_MASKS = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


class Tf115Values(StaticValues):
    """Static values as 1.15 finds them.

    It misses a value that needs one Shape, Rank, or Size node twice, and finds the sizes of a
    partly known shape only through Pack, Concat, and simple strided slices.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        shape_of: Callable[[Ref], TensorShape],
        fed: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(nodes, shape_of, fed)
        self._evaluated: set[Ref] = set()

    def value(self, ref: Ref) -> Array | None:
        """Return a tensor's elements, or None if they are unknown."""
        node = self._nodes[ref.node]
        if node.op == "Const":
            return super().value(ref)
        if ref not in self._evaluated and not self._is_evaluated(node):
            return None
        value = super().value(ref)
        if value is not None:
            self._evaluated.add(ref)
        return value

    def as_shape(self, ref: Ref) -> TensorShape:
        """Return a tensor interpreted as a shape, with -1 for each unknown size, or None."""
        return self._read_shape(ref, 0)

    def _is_evaluated(self, target: Node) -> bool:
        """Return whether all sources of a node are constant, and no known shape is used twice."""
        if not is_static(target):
            return False
        used: set[Ref] = set()
        followed = {target.name}
        waiting = list(target.data_inputs)
        while waiting:
            ref = waiting.pop()
            node = self._nodes[ref.node]
            if not is_static(node) or not (node.data_inputs or node.op == "Const"):
                return False
            if node.op in _TOLD_BY_SHAPES and super().value(ref) is not None:
                if ref in used:
                    return False
                used.add(ref)
            elif ref in self._evaluated and ref not in used:
                used.add(ref)
            elif node.name not in followed:
                followed.add(node.name)
                waiting += node.data_inputs
        return True

    def _read_shape(self, ref: Ref, depth: int) -> TensorShape:
        shape, node = self._shape_of(ref), self._nodes[ref.node]
        if shape == (0,):
            return ()
        if shape is None or len(shape) != 1 or depth > MAX_DEPTH:
            return None
        refs = node.data_inputs
        if node.op in ("Shape", "ShapeN"):
            return self._shape_of(refs[ref.index])
        if node.op == "Pack":
            return tuple(self._size(r) for r in refs)
        if node.op in ("Concat", "ConcatV2"):
            joined: TensorShape = ()
            for part in refs[1:] if node.op == "Concat" else refs[:-1]:
                joined = concatenate(joined, self._read_shape(part, depth + 1))
            return joined
        if node.op == "StridedSlice":
            return self._read_slice(node, depth)
        sizes = self.value(ref)
        if sizes is not None:
            return tuple(max(int(size), UNKNOWN) for size in sizes[:MAX_RANK])
        return unknown_dims(shape[0]) if 0 <= shape[0] <= MAX_RANK else None

    def _size(self, ref: Ref) -> int:
        value = self.value(ref)
        return UNKNOWN if value is None or value.size != 1 else max(int(value.item()), UNKNOWN)

    def _read_slice(self, node: Node, depth: int) -> TensorShape:
        bounds = node.data_inputs[1:4]
        if any(self._shape_of(r) != (1,) for r in bounds):
            return None
        masks = node.attr_int("begin_mask", 0), node.attr_int("end_mask", 0)
        if max(masks) > 1 or any(node.attr_int(name, 0) for name in _SPECIAL_MASKS):
            return None
        values = [self.value(r) for r in bounds]
        if any(v is None and not m for v, m in zip(values, (*masks, 0), strict=True)):
            return None
        begin, end, stride = (None if v is None else int(v.item()) for v in values)
        cut = slice(None if masks[0] else begin, None if masks[1] else end, stride)
        source = self._read_shape(node.data_inputs[0], depth + 1)
        if source is None or stride == 0:
            return None
        return source[cut]


_NAME = "fold_constants"


def fetch_order(run: Execution) -> list[str]:
    """Return the fetched nodes in the order in which the original tool starts from them."""
    used = {r.node for n in run.nodes.values() for r in n.inputs}
    starts = {f"_send_{r.node}_{r.index}": r.node for r in run.fetched}
    # A node without consumers is also connected to the graph's sink directly.
    starts |= {r.node: r.node for r in run.fetched if r.node not in used}
    return [starts[key] for key in sorted(starts)]


def check_feeds(run: Execution) -> None:
    """Raise an error if a tensor is both fed and fetched."""
    for ref in run.fetched:
        if ref in run.fed:
            message = f"{_NAME}: {str(ref)!r} is an input and an output"
            raise TransformError(message, "name it as one of them only")


def folded_graph(graph: Graph, folding: Folding, serials: Iterator[int]) -> list[Node]:
    """Return the nodes of the folded graph in the original's order."""
    run = folding.run
    folded, sources = _folded_constants(folding, serials)
    by_name = {n.name: _rewired(n, run.fed, sources) for n in run.nodes.values()}
    by_name |= {n.name: n for n in folded}
    by_name |= {name: graph[name] for name in run.inputs if name not in by_name}
    tensors = frozenset(r for r in run.fed if not r.is_control)
    needed = reachable(by_name, (r.node for r in run.fetched), tensors).union(run.inputs)
    inputs = frozenset(run.inputs)
    survivors = (n for n in by_name.values() if n.name in needed)
    nodes = [_placeholder(n) if n.name in inputs else n for n in survivors]
    # The original keeps constraints on removed nodes, and TensorFlow rejects its graph.
    return without_dangling(nodes, needed)


def _folded_constants(
    folding: Folding, serials: Iterator[int]
) -> tuple[list[Node], Mapping[Ref, Ref]]:
    """Create constants, and return the replacement of each tensor."""
    shape_names = _shape_names(folding.constant, serials)
    used_names = {*folding.run.nodes, *folding.run.inputs}
    nodes, sources = [], {}
    order = sorted(folding.values, key=lambda r: shape_names.get(r, (r.node, r.index)))
    for number, ref in enumerate(order):
        name = _constant_name(ref.node, number, serials, used_names)
        awaited = _controls(folding.constant.controls[ref.node], folding.run.fed)
        nodes.append(constant(name, folding.values[ref], inputs=awaited))
        sources[ref] = Ref(name)
    return nodes, sources


def _constant_name(
    node: str, number: int, serials: Iterator[int], used_names: Container[str] = ()
) -> str:
    """Return the name of a new constant.

    Args:
        node: the node whose output the constant replaces.
        number: the index of the constant within one folding.
        serials: the serial numbers of all constants in a run.
        used_names: the names of nodes, which 1.15 would reuse.
    """
    names = (f"{node}/_{number}__cf__{serial}" for serial in serials)
    return next(name for name in names if name not in used_names)


def _shape_names(constants: ConstantNodes, serials: Iterator[int]) -> Mapping[Ref, tuple[str, int]]:
    """Return the sort keys of known shapes: the original creates their constants before folding."""
    names: dict[Ref, tuple[str, int]] = {}
    for node in constants.order:
        for index in range(len(constants.shapes.get(node, ()))):
            name = _constant_name(node, len(names), serials)
            names[Ref(node, index)] = (name, 0)
    return names


def _rewired(node: Node, fed: frozenset[Ref], sources: Mapping[Ref, Ref]) -> Node:
    if not any(r in fed or r in sources for r in node.inputs):
        return node
    tensors = [
        Ref(r.node, r.index, explicit=True) if r in fed else sources.get(r, r)
        for r in node.data_inputs
    ]
    return replace(node, inputs=(*tensors, *_controls(node.control_inputs, fed)))


def _controls(refs: Iterable[Ref], fed: frozenset[Ref]) -> tuple[Ref, ...]:
    """Return control inputs in stored order: by name, feeds by that of their receiving nodes."""
    names = {f"_recv_{r.node}_{max(r.index, 0)}" if r in fed else r.node: r.node for r in refs}
    return tuple(dict.fromkeys(control(names[key]) for key in sorted(names)))


def _placeholder(node: Node) -> Node:
    if node.op == "Placeholder":
        return node
    if node.op == "PlaceholderWithDefault":
        return replace(node, op="Placeholder", inputs=())
    message = f"{_NAME}: the input {node.name!r} is a {node.op}, not a placeholder"
    raise TransformError(message, "run strip_unused_nodes before")
