"""Represent a .tflite file as a graph: placeholders, constants, and a node for each operator.

The ops of the nodes are LiteRT operators with a prefix, so that they differ from TensorFlow ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.core.files import map_file
from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.checker import is_tflite
from mobileprep.formats.tflite.reader import read_model
from mobileprep.formats.tflite.records import (
    NARROW,
    LiteTensor,
    ModelRecord,
    OperatorRecord,
    unpacked,
)
from mobileprep.formats.tflite.streaming import STREAMING, Streaming, decode_streaming
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Edge, FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor

PREFIX: Final = "LiteRT."
"""Prefix of LiteRT ops."""

TENSOR: Final = "_tensors"
"""Attribute with the tensor numbers of a node's outputs in the file."""

SHAPES: Final = "_shapes"
"""Attribute with the shapes of a node's outputs; -1 for unknown sizes."""

TYPE: Final = "_type"
"""Attribute with the element type of a constant as named by the format, such as ``INT4``."""

BLOCK_SIZE: Final = "_block_size"
"""Attribute of a constant with the number of elements that share a scale."""

_OPTIONS: Final = ("fused_activation_function", "filter_width", "filter_height")
"""Operator options to store as attributes, with a leading underscore."""

_MAIN: Final = "main"

_TYPES: Final = {
    "FLOAT32": DType.FLOAT,
    "FLOAT16": DType.HALF,
    "BFLOAT16": DType.BFLOAT16,
    "FLOAT64": DType.DOUBLE,
    "BOOL": DType.BOOL,
    "STRING": DType.STRING,
    "COMPLEX64": DType.COMPLEX64,
    "COMPLEX128": DType.COMPLEX128,
    **{
        f"{sign}INT{bits}": DType[f"{sign}INT{bits}"]
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
}


def is_tflite_file(path: Path) -> bool:
    """Return whether a path is a file with the identifier of .tflite files."""
    return path.is_file() and is_tflite(map_file(path))


def is_tflite_graph(graph: Graph) -> bool:
    """Return whether a graph was read from a .tflite file."""
    return any(TENSOR in node.attrs for node in graph)


class TfliteTensor(Struct, frozen=True):
    """An input or output of a .tflite file.

    Args:
        name: name of the tensor in the graph.
        dtype: dtype; INVALID for types that TensorFlow does not have.
        shape: sizes, -1 for unknown ones; None if the file has no shape, as for scalars and unknown
            ranks.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...] | None


class TfliteInterface(Struct, frozen=True):
    """Inputs and outputs by their names in the file's signature, or else by tensor name.

    Args:
        key: name of the signature; without one ``main``, the name of the first subgraph.
        inputs: inputs in the order of the file.
        outputs: outputs in the order of the file.
    """

    key: str
    inputs: Mapping[str, TfliteTensor]
    outputs: Mapping[str, TfliteTensor]


class TfliteGraph(Struct, frozen=True):
    """The first subgraph of a .tflite file.

    Args:
        graph: the graph; each node has the name of its first output.
        outputs: output tensors of the file.
        names: tensors by their names in the file's signature.
        interface: inputs and outputs of the file.
        streaming: how to run the file on a stream; None for other files.
    """

    graph: Graph
    outputs: tuple[str, ...]
    names: Mapping[str, str]
    interface: TfliteInterface
    streaming: Streaming | None = None


def read_tflite(path: Path) -> TfliteGraph:
    """Read the first subgraph of a .tflite file; repeated names get numeric suffixes."""
    return parse_tflite(map_file(path), str(path))


def parse_tflite(data: bytes | memoryview, file: str) -> TfliteGraph:
    """Parse the first subgraph of a .tflite file; see ``read_tflite``."""
    return _Reading(read_model(data, file), file).read()


class _NarrowTensor(Tensor):
    """Integers of 2 or 4 bits, which become int8 when they are read.

    Args:
        stored: their bytes in the file.
        bits: bits of each.
        shape: dimensions.
    """

    __slots__ = ("_bits", "_stored")

    def __init__(self, stored: bytes | memoryview, bits: int, shape: tuple[int, ...]) -> None:
        super().__init__(DType.INT8, shape)
        self._stored = stored
        self._bits = bits

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return len(self._stored)

    def _decode(self) -> Array:
        return unpacked(self._stored, self._bits, self.shape)


class _Reading:
    """The conversion of a file to nodes."""

    def __init__(self, model: ModelRecord, where: str) -> None:
        self._model = model
        self._record = model.subgraphs[0]
        self._where = where
        self._fresh = FreshNames(())
        self._edges: dict[int, Edge] = {}

    def read(self) -> TfliteGraph:
        graph = self._graph()
        tensor_names = {number: str(Ref(*edge)) for number, edge in self._edges.items()}
        first = [s for s in self._model.signatures if s.subgraph == 0][:1]
        names = {name: tensor_names[i] for s in first for name, i in (*s.inputs, *s.outputs)}
        outputs = tuple(tensor_names[i] for i in self._record.outputs)
        entry = dict(self._model.metadata).get(STREAMING)
        streaming = None if entry is None else decode_streaming(bytes(entry), self._where)
        return TfliteGraph(graph, outputs, names, self._interface(tensor_names), streaming)

    def _interface(self, tensor_names: Mapping[int, str]) -> TfliteInterface:
        signed = next((s for s in self._model.signatures if s.subgraph == 0), None)
        record = self._record
        inputs = signed.inputs if signed else [(tensor_names[n], n) for n in record.inputs]
        outputs = signed.outputs if signed else [(tensor_names[n], n) for n in record.outputs]
        return TfliteInterface(
            (signed.key if signed else "") or _MAIN,
            {name: self._interface_tensor(tensor_names[n], n) for name, n in inputs},
            {name: self._interface_tensor(tensor_names[n], n) for name, n in outputs},
        )

    def _interface_tensor(self, name: str, number: int) -> TfliteTensor:
        tensor = self._tensor(number)
        return TfliteTensor(name, self._type(number), tensor.signature or tensor.shape or None)

    def _graph(self) -> Graph:
        nodes = [self._placeholder(number) for number in self._record.inputs]
        activations = {n for o in self._record.operators for n in o.outputs}
        activations.update(self._record.inputs)
        nodes += [
            self._constant(number)
            for number in range(len(self._record.tensors))
            if number not in activations
        ]
        nodes += [self._operator(operator) for operator in self._record.operators]
        return Graph(nodes)

    def _name(self, number: int, index: int, node: str = "") -> str:
        tensor = self._record.tensors[number]
        # A colon in a node's name would be read as an output index.
        own = tensor.name.removesuffix(":0").replace(":", "_")
        name = node or self._fresh.name(own or f"tensor_{number}")
        self._edges[number] = (name, index)
        return name

    def _placeholder(self, number: int) -> Node:
        tensor = self._record.tensors[number]
        attrs = {
            "dtype": attr.dtype(_TYPES.get(tensor.type, DType.INVALID)),
            "shape": attr.shape(tensor.signature or tensor.shape),
            TENSOR: attr.integers(number),
        }
        return Node(self._name(number, 0), "Placeholder", (), "", attrs)

    def _constant(self, number: int) -> Node:
        tensor = self._record.tensors[number]
        content = self._model.buffers[tensor.buffer]
        kind = _TYPES.get(tensor.type)
        name = self._name(number, 0)
        attrs = {TENSOR: attr.integers(number), TYPE: attr.string(tensor.type)}
        if tensor.quantization is not None and tensor.quantization.block_size:
            attrs[BLOCK_SIZE] = attr.integer(tensor.quantization.block_size)
        if tensor.type in NARROW and len(content):
            value: Tensor = _NarrowTensor(content, NARROW[tensor.type], tensor.shape)
        elif kind is None or kind.numpy is None:
            # Strings and types without a counterpart are stored as raw bytes.
            value = Tensor.of(np.frombuffer(content, np.uint8))
        else:
            shape = tensor.shape if len(content) else (0,)
            value = Tensor(kind, shape, content=memoryview(content))
        return constant(name, value).with_attrs(**attrs)

    def _operator(self, operator: OperatorRecord) -> Node:
        if not operator.outputs:
            node = self._fresh.name(operator.code.builtin.lower())
        else:
            node = self._name(operator.outputs[0], 0)
        for index, number in enumerate(operator.outputs[1:], start=1):
            self._name(number, index, node)
        attrs = {
            TENSOR: attr.integers(*operator.outputs),
            "T": attr.AttrValue("list(type)", tuple(map(self._type, operator.outputs))),
            SHAPES: attr.AttrValue("list(shape)", tuple(map(self._shape, operator.outputs))),
        }
        options = {} if operator.options is None else operator.options.values
        for name in _OPTIONS:
            value = options.get(name)
            if isinstance(value, str):
                attrs[f"_{name}"] = attr.string(value)
            elif isinstance(value, int):
                attrs[f"_{name}"] = attr.integer(value)
        op = PREFIX + (operator.code.custom or operator.code.builtin)
        return Node(node, op, self._inputs(operator), "", attrs)

    def _type(self, number: int) -> DType:
        return _TYPES.get(self._tensor(number).type, DType.INVALID)

    def _shape(self, number: int) -> tuple[int, ...]:
        tensor = self._tensor(number)
        return tensor.signature or tensor.shape

    def _tensor(self, number: int) -> LiteTensor:
        return self._record.tensors[number]

    def _inputs(self, operator: OperatorRecord) -> tuple[Ref, ...]:
        refs = []
        for number in operator.inputs:
            if number < 0:
                continue
            if number not in self._edges:
                name = self._tensor(number).name
                message = f"an operator takes the tensor {name!r} before it is computed"
                hint = "the file is damaged: convert the model again"
                raise CorruptFileError(message, hint, self._where)
            refs.append(Ref(*self._edges[number]))
        return tuple(refs)
