"""Digests of the subgraph that computes a tensor, to detect changes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.node_serde import attr_to_proto
from mobileprep.graph.op_sets import NEXT_ITERATIONS
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import Edge, Ref
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.tensor import Tensor

_LENGTH = 16


def tensor_digests(graph: Graph, tensors: Iterable[Edge], fed: Collection[Edge]) -> dict[Edge, str]:
    """Return a digest of the subgraph that computes each tensor from the inputs.

    Node names are ignored except in loops, where they identify nodes; devices are ignored.
    """
    digests = _Digests(graph, fed)
    return {tensor: digests.of(tensor) for tensor in tensors}


class _Digests:
    def __init__(self, graph: Graph, fed: Collection[Edge]) -> None:
        self._nodes: Mapping[str, Node] = graph.by_name
        self._fed = frozenset(Ref(*tensor) for tensor in fed)
        self._digests: dict[str, bytes] = {}
        library = graph_to_bytes(Graph(library=graph.library)) if graph.library else b""
        self._library = hashlib.sha256(library).digest()
        self._functions = graph.library.functions
        self._has_loops = any(node.op in NEXT_ITERATIONS for node in graph)

    def of(self, tensor: Edge) -> str:
        ref = Ref(*tensor)
        if ref in self._fed:
            digest = self._input(ref)
        elif self._has_loops and self._is_behind_loop(tensor[0]):
            digest = self._with_loops(tensor[0])
        else:
            digest = self._node(tensor[0])
        return hashlib.sha256(digest + str(tensor[1]).encode()).hexdigest()[:_LENGTH]

    def _node(self, name: str) -> bytes:
        """Return the digest of a node and its dependencies, which contain no loop."""
        waiting = [name]
        while waiting:
            node = self._nodes[waiting[-1]]
            needed = [r for r in node.inputs if r not in self._fed]
            missing = [r.node for r in needed if r.node not in self._digests]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            digest = hashlib.sha256(self._own(node))
            for ref in node.inputs:
                input_digest = self._input(ref) if ref in self._fed else self._digests[ref.node]
                digest.update(input_digest + str(ref.index).encode())
            self._digests[node.name] = digest.digest()
        return self._digests[name]

    def _is_behind_loop(self, name: str) -> bool:
        above = reachable(self._nodes, [name], self._fed)
        return any(self._nodes[n].op in NEXT_ITERATIONS for n in above)

    def _with_loops(self, name: str) -> bytes:
        """Return a digest of a node and all of its dependencies, including their names."""
        digest = hashlib.sha256(name.encode())
        for other in sorted(reachable(self._nodes, [name], self._fed)):
            node = self._nodes[other]
            inputs = " ".join(f"{r.node}:{r.index}" for r in node.inputs)
            digest.update(f"\n{other}\n{inputs}\n".encode() + self._own(node))
        return digest.digest()

    def _input(self, ref: Ref) -> bytes:
        return hashlib.sha256(f"fed {ref.node}:{ref.index}".encode()).digest()

    def _own(self, node: Node) -> bytes:
        digest = own_digest(node)
        has_functions = node.op in self._functions or any(
            "func" in value.kind for value in node.attrs.values()
        )
        return digest + (self._library if has_functions else b"")


def own_digest(node: Node) -> bytes:
    """Return a digest of a node's op and attributes, without its name, device, and inputs."""
    digest = hashlib.sha256(node.op.encode())
    for name, value in sorted(node.attrs.items()):
        digest.update(f"\n{name} ".encode())
        if value.kind == "tensor":
            digest.update(_content(value.value))
            continue
        proto = pb.AttrValue()
        attr_to_proto(value, proto)
        digest.update(proto.SerializeToString(deterministic=True))
    return digest.digest()


def _content(tensor: Tensor) -> bytes:
    """Return bytes that identify a constant's elements, independent of their form."""
    kind = f"{tensor.dtype.short}{list(tensor.shape)} ".encode()
    if tensor.dtype is DType.STRING:
        return kind + repr(tensor.array().tolist()).encode()
    return kind + (tensor.opaque or tensor.digest().encode())
