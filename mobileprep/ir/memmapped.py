"""Memory-mapped models: a graph, and regions that stand for its large constants.

Source: ``MemmappedFileSystemWriter`` and ``ImmutableConstantOp`` of TensorFlow 1.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mobileprep.errors import CorruptFileError, InvalidGraphError
from mobileprep.formats.memmapped import ALIGNMENT, GRAPH_REGION, Directory, PackageRegion
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.serde import graph_to_pieces, serialized_size
from mobileprep.ir.tensor import Tensor, check_shape

IMMUTABLE: Final = "ImmutableConst"
"""The op whose output is a region."""
REGION_NAME: Final = "memory_region_name"
"""Its attribute that names the region."""


@dataclass(frozen=True)
class MemmappedModel:
    """A graph and the regions that its ImmutableConst nodes name.

    Args:
        graph: what the runtime reads.
        regions: names, prefix included, with what each holds, in the order of the nodes.
    """

    graph: Graph
    regions: Sequence[tuple[str, Tensor]]

    def pieces(self) -> Iterator[bytes | Tensor]:
        """The pieces of the file in turn; a tensor stands for its raw content."""
        directory = Directory()
        for name, tensor in self.regions:
            yield directory.add(name, tensor.nbytes, aligned=True)
            yield tensor
        yield directory.add(GRAPH_REGION, serialized_size(self.graph), aligned=False)
        yield from graph_to_pieces(self.graph)
        yield directory.serialized()


def with_constants(graph: Graph, regions: Mapping[str, PackageRegion], file: str) -> Graph:
    """A memory-mapped model's graph with constants in place of ImmutableConst nodes.

    Args:
        graph: the package's graph.
        regions: the package's; constants are views on them.
        file: the package's name, for messages.

    Raises:
        CorruptFileError: a node names a region that is not there, too short, or not aligned.
        InvalidGraphError: a node lacks an attribute, or its type has no elements of one size.
    """
    return graph.with_nodes(_constant(n, regions, file) if n.op == IMMUTABLE else n for n in graph)


def _constant(node: Node, regions: Mapping[str, PackageRegion], file: str) -> Node:
    where = f"{file}, node {node.name!r}"
    name = node.attr_str(REGION_NAME)
    dtype, dims = node.attr_dtype("dtype"), node.attr_shape("shape")
    if dtype.numpy is None or dims is None:
        message = f"an ImmutableConst of type {dtype.short} and shape {dims} has no region"
        raise InvalidGraphError(message, "write the model anew from its graph", where)
    size = Tensor(dtype, check_shape(dims, where)).nbytes
    region = regions.get(name)
    fault = _fault(region, size)
    if region is None or fault:
        message = f"the region {name!r}, of which {size} bytes are needed, {fault}"
        raise CorruptFileError(message, "write the model anew from its graph", where)
    value = Tensor(dtype, dims, content=region.view[:size])
    attrs = {"dtype": attr.dtype(dtype), "value": attr.tensor(value)}
    return replace(node, op="Const", attrs=attrs)


def _fault(region: PackageRegion | None, size: int) -> str:
    """Why TensorFlow's kernel would not take a region; empty where it does."""
    if region is None:
        return "is not there"
    if len(region.view) < size:
        return f"has {len(region.view)} bytes"
    if region.offset % ALIGNMENT:
        return f"begins at byte {region.offset}, which is no multiple of {ALIGNMENT}"
    return ""
