"""Merge equal constants."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import colocated
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform

_DIGEST_SIZE: Final = 16


@transform("share_constants")
class ShareConstants(Transform, frozen=True):
    """Merge constants with equal type, shape, and elements.

    How the elements are stored does not matter, nor do attributes besides type and value. Constants
    with different devices or control inputs are not merged.
    """

    summary = "Keeps one of constants that hold the same."

    def apply(self, graph: Graph, context: Context) -> Result:
        """Merge the constants except inputs and outputs of the graph."""
        protected = context.protected
        shared = {
            other: survivor
            for equal in _equal_constants(graph)
            for other, survivor in _pairs(equal, protected)
        }
        if not shared:
            return Result(graph)
        nodes = [_moved(n, shared) for n in graph if n.name not in shared]
        return Result(graph.with_nodes(nodes), len(shared))


def _equal_constants(graph: Graph) -> Iterator[list[str]]:
    """Yield the names of each group of equal constants."""
    alike: dict[Hashable, list[Node]] = defaultdict(list)
    for node in graph:
        if node.op == "Const" and "value" in node.attrs:
            value = node.attr_tensor("value")
            if value.dtype is DType.STRING or value.dtype.numpy is not None:
                key = (value.dtype, value.shape, node.device, frozenset(node.inputs))
                alike[key].append(node)
    for nodes in alike.values():
        equal: dict[bytes, list[str]] = defaultdict(list)
        for node in nodes if len(nodes) > 1 else ():
            equal[_digest(node.attr_tensor("value"))].append(node.name)
        yield from (names for names in equal.values() if len(names) > 1)


def _pairs(equal: list[str], protected: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each removed constant with its replacement, a protected one if there is one."""
    survivor = next((name for name in equal if name in protected), equal[0])
    yield from ((name, survivor) for name in equal if name != survivor and name not in protected)


def _moved(node: Node, shared: dict[str, str]) -> Node:
    if any(r.node in shared for r in node.inputs):
        inputs = tuple(r.renamed(shared.get(r.node, r.node)) for r in node.inputs)
        node = replace(node, inputs=inputs)
    return colocated(node, lambda name: shared.get(name, name))


def _digest(tensor: Tensor) -> bytes:
    """Return a digest that is equal for equal elements, regardless of their storage."""
    if tensor.dtype is DType.STRING:
        lengths = b"".join(len(x).to_bytes(8, "little") for x in tensor.array().ravel())
        elements = b"".join(tensor.array().ravel())
        return hashlib.blake2b(lengths + elements, digest_size=_DIGEST_SIZE).digest()
    return hashlib.blake2b(_leading(tensor), digest_size=_DIGEST_SIZE).digest()


def _leading(tensor: Tensor) -> bytes | memoryview:
    """Return the bytes of the elements without trailing repetitions of the last one.

    A tensor filled with one number is not expanded for this.
    """
    width = tensor.dtype.itemsize
    data = tensor.raw() if tensor.values is None else tensor.values[: tensor.size].tobytes()
    if not data:
        return bytes(width if tensor.size else 0)
    elements = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
    if len(elements) == 1 or (elements[-1] != elements[-2]).any():
        return data
    others = np.flatnonzero((elements != elements[-1]).any(axis=1))
    return elements[: others[-1] + 2 if len(others) else 1].tobytes()
