"""Frozen graphs to memory-mapped models: large constants become regions that a runtime maps.

Source: ``convert_graphdef_memmapped_format`` of TensorFlow 1.15.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from mobileprep.core.files import atomic_writer
from mobileprep.formats.dtypes import DType
from mobileprep.formats.memmapped import PREFIX
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.files import check_serialized_size
from mobileprep.ir.graph import Graph
from mobileprep.ir.memmapped import IMMUTABLE, REGION_NAME, MemmappedModel
from mobileprep.ir.node import Node
from mobileprep.ir.serde import raw_chunks, serialized_size
from mobileprep.ir.tensor import Tensor
from mobileprep.opdefs.read_only_inputs import PASSED_ON, only_reads

MINIMUM_SIZE: Final = 10_000
"""Constants of fewer bytes stay in the graph, where nothing else is asked for."""
PAGE_SIZE: Final = 4096
"""The same for recipes: of less than a page of memory the system could not drop anything."""

_QUANTIZED: Final = frozenset(
    {DType.QUINT8, DType.QINT8, DType.QUINT16, DType.QINT16, DType.QINT32}
)
# TF_CALL_POD_TYPES of TensorFlow 1.15.
_PLAIN: Final = frozenset(
    {
        *(DType.FLOAT, DType.DOUBLE, DType.HALF, DType.BFLOAT16),
        *(DType.INT64, DType.INT32, DType.INT16, DType.UINT16, DType.INT8, DType.UINT8),
        *(DType.COMPLEX64, DType.COMPLEX128, DType.BOOL),
    }
)
_UNFIT: Final = re.compile(rb"[^A-Za-z0-9_.]")


@dataclass(frozen=True)
class Conversion:
    """A memory-mapped model, and what of its graph is worth a word.

    Args:
        model: what to write.
        quantized: constants that stay in the graph for their quantized type, by name.
        written: constants that an op may overwrite, by name, each with that op's node. Where
            they were mapped, the app ends with a segmentation fault.
    """

    model: MemmappedModel
    quantized: tuple[str, ...]
    written: tuple[tuple[str, str], ...]


def convert(
    graph: Graph, minimum_size: int = MINIMUM_SIZE, *, quantized: bool, safe: bool
) -> Conversion:
    """The memory-mapped form of a graph; constants in the bodies of functions stay there.

    Args:
        graph: frozen.
        minimum_size: constants of fewer bytes stay in the graph; at least 1.
        quantized: whether constants of quantized types get regions too. The original's do not.
        safe: whether constants that an op may overwrite stay in the graph. The original's do not.
    """
    regions: list[tuple[str, Tensor]] = []
    nodes: list[Node] = []
    used: set[str] = set()
    left, written = [], []
    for node in graph:
        if node.op != "Const" or not _is_large(node.attr_tensor("value"), minimum_size):
            nodes.append(node)
            continue
        tensor = node.attr_tensor("value")
        if tensor.dtype in _QUANTIZED and not quantized:
            left.append(node.name)
            nodes.append(node)
            continue
        writer = _writer_over(graph, node.name)
        if writer:
            written.append((node.name, writer))
        if writer and safe:
            nodes.append(node)
            continue
        name = f"{PREFIX}{_region_name(node.name, used)}"
        regions.append((name, tensor))
        nodes.append(_immutable(node, tensor, name))
    model = MemmappedModel(graph.with_nodes(nodes), regions)
    return Conversion(model, tuple(left), tuple(written))


def write_memmapped(path: Path, model: MemmappedModel) -> None:
    """Write a memory-mapped model atomically, tensor by tensor.

    Raises:
        ArtifactError: the file cannot be written, or its graph would pass protobuf's limit.
    """
    check_serialized_size(serialized_size(model.graph), str(path))
    with atomic_writer(path) as stream:
        stream.writelines(raw_chunks(model.pieces()))


def _is_large(tensor: Tensor, minimum_size: int) -> bool:
    return tensor.dtype in _PLAIN | _QUANTIZED and tensor.nbytes >= max(minimum_size, 1)


def _writer_over(graph: Graph, name: str) -> str:
    """The first node that may put its result into a constant's memory; empty for none."""
    seen, left = {name}, [name]
    while left:
        source = left.pop()
        for user in graph.consumers.get(source, ()):
            indices = [i for i, ref in enumerate(user.data_inputs) if ref.node == source]
            if user.op in PASSED_ON:
                if indices and user.name not in seen:
                    seen.add(user.name)
                    left.append(user.name)
            elif not all(only_reads(user.op, i) for i in indices):
                return user.name
    return ""


def _region_name(node: str, used: set[str]) -> str:
    """A name of its own, of the characters that a region's may have."""
    name = _UNFIT.sub(b"_", node.encode()).decode("ascii")
    while name in used:
        name += "_"
    used.add(name)
    return name


def _immutable(node: Node, tensor: Tensor, region: str) -> Node:
    attrs = {
        "dtype": attr.dtype(tensor.dtype),
        "shape": attr.shape(tensor.shape),
        REGION_NAME: attr.string(region),
    }
    return replace(node, op=IMMUTABLE, attrs=attrs)
