"""Find where the integers of a .tflite file differ from its float graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct, field

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Quantization
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Edge, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import Programs
from mobileprep.litert.program import Op, Program, Readers, Value
from mobileprep.litert.quantizing.kernels import KERNELS, LAYERS
from mobileprep.litert.shapes import is_channels_first

_CONVERSIONS: Final = frozenset({"QUANTIZE", "DEQUANTIZE"})
# Lowest and highest integer of each type of activations; int16 is symmetric.
_LIMITS: Final = {
    DType.INT8: (-128, 127),
    DType.UINT8: (0, 255),
    DType.INT16: (-32767, 32767),
}


class Grid(Struct, frozen=True):
    """The numbers that the integers of a tensor represent.

    Args:
        low: the lowest.
        high: the highest.
        bits: 8 or 16.
    """

    low: float
    high: float
    bits: int


class DynamicGrid(Struct, frozen=True):
    """256 steps between the smallest and the largest element, which the runtime determines.

    Args:
        axes: the axes along which elements share a range.
    """

    axes: tuple[int, ...]


AnyGrid: TypeAlias = Grid | DynamicGrid


class EmulatedOp(Struct, frozen=True, eq=False):
    """An operator whose output is compared with float.

    Args:
        name: its node in the graph.
        code: its LiteRT operator.
        output: the tensor of the graph that it computes, behind a fused bias and activation.
        grids: the integers of the tensors that it reads, as far as it reads integers.
        grid: the integers of its output; None if it is float.
        weights: the weights of the file in float, in the layout of the graph; None if they are not
            quantized.
        bias_error: the rounding error of the bias, ``[channels]``; None without one.
    """

    name: str
    code: str
    output: Edge
    grids: Mapping[Edge, AnyGrid] = field(default_factory=dict)
    grid: Grid | None = None
    weights: Array | None = None
    bias_error: Array | None = None

    @property
    def has_grids(self) -> bool:
        """Whether the operator reads or writes integers."""
        return bool(self.grids) or self.grid is not None


class Emulation(Struct, frozen=True):
    """A float graph, and where the integers of its .tflite file differ from it.

    Args:
        graph: the graph that was lowered.
        inputs: its placeholders, in the order of the inputs.
        outputs: its outputs.
        ops: the operators to compare, in execution order.
        produced: the integers in which the file holds a tensor.
        read: the integers in which a node reads a tensor, if others than those it is held in.
        ends: the integers of outputs, likewise.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[Edge, ...]
    ops: tuple[EmulatedOp, ...]
    produced: Mapping[Edge, AnyGrid]
    read: Mapping[tuple[str, Edge], AnyGrid]
    ends: Mapping[Edge, AnyGrid]


def emulation_of(programs: Programs) -> Emulation:
    """Find where the integers of a file differ from the float graph."""
    return _Finder(programs).emulation()


class _Finder:
    def __init__(self, programs: Programs) -> None:
        self._source = programs.source
        self._graph = programs.source.graph
        self._plain, self._stored = programs.plain, programs.stored
        self._makers = Readers(programs.stored)
        self._produced: dict[Edge, AnyGrid] = {}
        self._read: dict[tuple[str, Edge], AnyGrid] = {}

    def emulation(self) -> Emulation:
        for port, stored in zip(self._plain.inputs, self._stored.inputs, strict=True):
            self._note(port.value, stored.value)
        pairs = list(zip(_computing(self._plain), _computing(self._stored), strict=True))
        for op, stored_op in pairs:
            for value, stored_value in zip(op.outputs, stored_op.outputs, strict=True):
                self._note(value, stored_value)
        ops = [op for op in (self._op(*pair) for pair in pairs) if op is not None]
        refs = [edge(ref) for ref in self._source.outputs]
        self._share(refs)
        ends = {}
        for ref, port in zip(refs, self._stored.outputs, strict=True):
            grid = _grid(port.value)
            if grid is not None and grid != self._produced.get(ref):
                ends[ref] = grid
        return Emulation(
            self._graph,
            self._source.inputs,
            tuple(refs),
            tuple({op.output: op for op in ops}.values()),
            self._produced,
            self._read,
            ends,
        )

    def _share(self, outputs: Sequence[Edge]) -> None:
        """Record tensors that all nodes read in the same integers, such as inputs, as produced so.

        A repair may rename the nodes that read them.
        """
        for tensor in {tensor: None for _, tensor in self._read}:
            readers = [node.name for node in self._graph.consumers[tensor[0]]]
            grids = {self._read.get((reader, tensor)) for reader in readers}
            grid = grids.pop() if len(grids) == 1 else None
            if grid is not None and tensor not in self._produced and tensor not in outputs:
                self._produced[tensor] = grid
                for reader in readers:
                    self._read.pop((reader, tensor), None)

    def _note(self, value: Value, stored: Value) -> None:
        tensor, grid = self._tensor(value), _grid(stored)
        if tensor is not None and grid is not None:
            self._produced[tensor] = grid

    def _tensor(self, value: Value) -> Edge | None:
        """Return the tensor of the graph that a value of the float program has, or None."""
        for name in (value.name, value.alike):
            tensor = edge(parse_ref(name)) if name else None
            if tensor is not None and tensor[0] in self._graph:
                return tensor
        return None

    def _op(self, op: Op, stored: Op) -> EmulatedOp | None:
        grids = self._grids(op, stored)
        node = None if op.node is None else self._graph.get(op.node.name)
        output = self._tensor(op.outputs[0]) if op.outputs else None
        if output is None:
            return None
        grid = _grid(stored.outputs[0])
        name = output[0] if node is None else node.name
        weights, bias_error = None, None
        if op.code in LAYERS and node is not None:
            weights = self._weights(node, op, stored)
            bias_error = _bias_error(op, stored)
        elif grid is None or op.code not in KERNELS or KERNELS[op.code].rule == "same":
            return None
        if weights is None and grid is None and not grids:
            return None
        return EmulatedOp(name, op.code, output, grids, grid, weights, bias_error)

    def _grids(self, op: Op, stored: Op) -> dict[Edge, AnyGrid]:
        """Return the integers that an operator reads, and record those it reads otherwise."""
        grids: dict[Edge, AnyGrid] = {}
        layer = LAYERS.get(op.code)
        for index, (value, form) in enumerate(zip(op.inputs, stored.inputs, strict=True)):
            if value is None or form is None or (layer is not None and index != layer.image):
                continue
            tensor, grid = self._tensor(value), _grid(form) or _dynamic_grid(op, stored)
            if tensor is None or grid is None:
                continue
            grids[tensor] = grid
            if self._produced.get(tensor) != grid:
                for reader in self._readers(op, tensor):
                    self._read[reader, tensor] = grid
        return grids

    def _readers(self, op: Op, tensor: Edge) -> list[str]:
        """Return the nodes that read a tensor for an operator."""
        readers = [n.name for n in self._graph.consumers.get(tensor[0], ())]
        own = "" if op.node is None else op.node.name
        return [own] if own in readers else readers

    def _weights(self, node: Node, op: Op, stored: Op) -> Array | None:
        """Return the weights of the file in the layout of the graph; None if they are float."""
        index = LAYERS[op.code].weights
        plain, quantized = op.constant(index), self._constant(stored.input_at(index))
        weights = self._graph.get(node.data_inputs[1].node) if len(node.data_inputs) > 1 else None
        if plain is None or quantized is None or weights is None or weights.op != "Const":
            return None
        order, before = _order(node), weights.attr_tensor("value").array()
        if len(order) != plain.ndim or plain.size != before.size:
            return None
        if not np.array_equal(np.transpose(plain, order).reshape(before.shape), before):
            return None
        floats: Array = np.transpose(dequantized_constant(quantized), order).reshape(before.shape)
        return floats

    def _constant(self, value: Value | None) -> Value | None:
        """Return a quantized constant, or the one that a DEQUANTIZE reads."""
        maker = self._makers.maker(value, "DEQUANTIZE")
        value = value if maker is None else maker.inputs[0]
        return value if value is not None and value.quantization is not None else None


def _computing(program: Program) -> Iterator[Op]:
    return (op for op in program.ops if op.code not in _CONVERSIONS)


def _dynamic_grid(op: Op, stored: Op) -> DynamicGrid | None:
    """Return how the runtime quantizes a float input to multiply it with integer weights.

    Each row of a dense layer has a range of its own, and so has each pixel of a 1 x 1 convolution,
    which XNNPACK computes as a dense layer. Other convolutions have one for each image.
    """
    weights = stored.input_at(LAYERS[op.code].weights) if op.code in LAYERS else None
    if weights is None or weights.data is None or weights.quantization is None:
        return None
    if op.code == "FULLY_CONNECTED":
        return DynamicGrid((-1,))
    if op.code != "CONV_2D" or weights.data.shape[1:3] != (1, 1):
        return DynamicGrid((1, 2, 3))
    return DynamicGrid((1 if op.node is not None and is_channels_first(op.node) else -1,))


def _grid(value: Value) -> Grid | None:
    """Return the numbers that an integer tensor represents; None for other values."""
    limits, details = _LIMITS.get(value.dtype), value.quantization
    if limits is None or details is None or details.scales.size != 1:
        return None
    scale, zero = float(details.scales[0]), int(details.zero_points[0])
    low, high = ((limit - zero) * scale for limit in limits)
    return Grid(low, high, 16 if value.dtype is DType.INT16 else 8)


def dequantized_constant(value: Value) -> Array:
    """Return a quantized constant in float32."""
    assert value.data is not None
    details: Quantization | None = value.quantization
    assert details is not None
    scales = details.scales.astype(np.float64)
    shape = [1] * value.data.ndim
    if scales.ndim > 1:
        # A scale for each block along the last dimension.
        shape[details.axis] = scales.shape[0]
        scales = np.repeat(scales, -(-value.data.shape[-1] // scales.shape[1]), 1)
        scales = scales[:, : value.data.shape[-1]]
        shape[-1] = value.data.shape[-1]
    elif scales.size > 1:
        shape[details.axis] = scales.size
    points = details.zero_points.reshape(shape) if details.zero_points.size else 0
    whole = value.data.astype(np.float64) - points
    floats: Array = (whole * scales.reshape(shape)).astype(np.float32)
    return floats


def _bias_error(op: Op, stored: Op) -> Array | None:
    index = LAYERS[op.code].bias
    before, after = op.input_at(index), stored.input_at(index)
    if before is None or before.data is None or after is None or after.quantization is None:
        return None
    error = dequantized_constant(after).astype(np.float64) - before.data
    return error.astype(np.float32) if error.any() else None


def _order(node: Node) -> tuple[int, ...]:
    """Return the order of the axes of LiteRT's weights in the graph; empty for unknown layers."""
    if node.op == "MatMul" and node.attr_bool("transpose_b", False):
        return 0, 1
    return _ORDERS.get(node.op, ())


# The reverse of the lowering, see ``litert.ops.conv``.
_ORDERS: Final[Mapping[str, tuple[int, ...]]] = {
    "Conv2D": (1, 2, 3, 0),
    "DepthwiseConv2dNative": (0, 1, 2, 3),
    "Conv2DBackpropInput": (1, 2, 0, 3),
    "MatMul": (1, 0),
}
