"""Emulate the integers of a .tflite file in its float graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct, field

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Quantization
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array, Tensor
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

Activations = Literal["float", "clipped", "rounded"]
"""How activations are computed: in float, clipped to their ranges, or rounded to integers."""


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


class EmulatedGraph(Struct, frozen=True):
    """A float graph with the errors of a file.

    Args:
        graph: the graph.
        tensors: the names in it of the tensors that differ from the float graph's.
        outputs: the names in it of the outputs.
    """

    graph: Graph
    tensors: Mapping[Edge, str]
    outputs: tuple[str, ...]

    def name(self, tensor: Edge) -> str:
        """Return the name of a tensor of the float graph."""
        return self.tensors.get(tensor, str(Ref(*tensor)))


Part = Literal["all", "both", "weights", "rounded", "clipped"]
"""The errors to add: all, those of weights and activations, those of weights, those of activations,
or clipping activations."""


class _Causes(Struct, frozen=True):
    weights: bool
    activations: Activations
    biases: bool = False


_CAUSES: Final[Mapping[Part, _Causes]] = {
    "all": _Causes(weights=True, activations="rounded", biases=True),
    "both": _Causes(weights=True, activations="rounded"),
    "weights": _Causes(weights=True, activations="float"),
    "rounded": _Causes(weights=False, activations="rounded"),
    "clipped": _Causes(weights=False, activations="clipped"),
}


def parts_of(ops: Sequence[EmulatedOp]) -> tuple[Part, ...]:
    """Return the parts of the errors of operators that are not zero."""
    has_weights = any(op.weights is not None for op in ops)
    has_grids = any(op.has_grids for op in ops)
    return (
        "all",
        "both",
        *(("weights",) if has_weights else ()),
        *(("rounded", "clipped") if has_grids else ()),
    )


def emulated(emulation: Emulation, float_graph: Graph, part: Part = "all") -> EmulatedGraph:
    """Add errors of a file to its float graph.

    Args:
        emulation: the errors.
        float_graph: the graph with the float weights. Its tensors have the names of those of the
            emulated graph, whose weights are used if those of the file are.
        part: the errors to add.
    """
    causes = _CAUSES[part]
    weights, activations, biases = causes.weights, causes.activations, causes.biases
    base = emulation.graph if weights else float_graph
    writer = _Writer(base)
    refs = _Refs({}, {}, {})
    for op in emulation.ops if biases else ():
        if op.bias_error is not None and op.name in base:
            refs.changed[op.name, 0] = writer.add_error(Ref(op.name), base[op.name], op.bias_error)
    if activations != "float":
        _hold(emulation, base, activations, writer, refs)
    stored = {op.name: op.weights for op in emulation.ops if weights and op.weights is not None}
    for node in base:
        inputs = [refs.read_by(node.name, ref) for ref in node.inputs]
        if node.name in stored:
            inputs[1] = writer.constant(node.name, stored[node.name])
        writer.nodes.append(node.with_inputs(tuple(inputs)))
    outputs = (refs.ends.get(tensor, refs.current(tensor)) for tensor in emulation.outputs)
    return EmulatedGraph(
        base.with_nodes(writer.nodes),
        {tensor: str(ref) for tensor, ref in refs.changed.items()},
        tuple(map(str, outputs)),
    )


class _Refs(Struct, frozen=True):
    """The tensors with errors, and those that single nodes or the caller reads instead."""

    changed: dict[Edge, Ref]
    read: dict[tuple[str, Edge], Ref]
    ends: dict[Edge, Ref]

    def current(self, tensor: Edge) -> Ref:
        return self.changed.get(tensor, Ref(*tensor))

    def read_by(self, reader: str, ref: Ref) -> Ref:
        if ref.is_control:
            return ref
        return self.read.get((reader, edge(ref)), self.changed.get(edge(ref), ref))


def _hold(
    emulation: Emulation, base: Graph, activations: Activations, writer: _Writer, refs: _Refs
) -> None:
    """Clip or round the tensors that the file holds in integers."""
    for tensor, grid in emulation.produced.items():
        if tensor[0] in base:
            refs.changed[tensor] = writer.limit(refs.current(tensor), grid, activations)
    for (reader, tensor), grid in emulation.read.items():
        if tensor[0] in base:
            refs.read[reader, tensor] = writer.limit(refs.current(tensor), grid, activations)
    for tensor, grid in emulation.ends.items():
        refs.ends[tensor] = writer.limit(refs.current(tensor), grid, activations)


class SingleOp(Struct, frozen=True):
    """A graph that computes one operator with each part of the errors of a file.

    Args:
        graph: the graph.
        inputs: the tensor of the float graph to feed to each placeholder.
        outputs: the name of the output with each part; parts that are zero are omitted.
    """

    graph: Graph
    inputs: Mapping[str, Edge]
    outputs: Mapping[Part, str]


def single_op(op: EmulatedOp, repaired: Graph, name: str, base: Graph) -> SingleOp | None:
    """Copy an operator into a graph of its own.

    Args:
        op: the operator.
        repaired: the graph that was quantized, whose weights the file has.
        name: the operator's node in the float graph.
        base: the float graph to compare with.

    Returns:
        The graph, or None if the operator is not a chain of nodes in both graphs.
    """
    copies = _Copies(op)
    outputs: dict[Part, str] = {}
    for part in parts_of([op]):
        causes = _CAUSES[part]
        node, graph = (op.name, repaired) if causes.weights else (name, base)
        chain = _chain(node, op.output[0], graph)
        if chain is None:
            return None
        outputs[part] = copies.add(graph, chain, causes)
    return SingleOp(Graph(copies.nodes), copies.inputs, outputs)


class _Copies:
    """Copies of an operator with different errors."""

    def __init__(self, op: EmulatedOp) -> None:
        self.inputs: dict[str, Edge] = {}
        self._op = op
        self._writer = _Writer(())

    @property
    def nodes(self) -> list[Node]:
        return self._writer.nodes

    def add(self, graph: Graph, chain: Sequence[Node], causes: _Causes) -> str:
        """Copy the operator's nodes, and return the name of its output."""
        op, writer, activations = self._op, self._writer, causes.activations
        copies: dict[str, Ref] = {}
        for node in chain:
            inputs = [
                Ref(copies[ref.node].node, ref.index)
                if ref.node in copies
                else self._input(graph, ref, activations)
                for ref in node.data_inputs
            ]
            if node is chain[0] and causes.weights and op.weights is not None:
                inputs[1] = writer.constant(op.name, op.weights)
            copy = writer.copy(node, inputs)
            if node is chain[0] and causes.biases and op.bias_error is not None:
                copy = writer.add_error(copy, node, op.bias_error)
            copies[node.name] = copy
        ref = Ref(copies[op.output[0]].node, op.output[1])
        if op.grid is not None and activations != "float":
            ref = writer.limit(ref, op.grid, activations)
        return str(ref)

    def _input(self, graph: Graph, source: Ref, activations: Activations) -> Ref:
        tensor, node = edge(source), graph[source.node]
        if node.op == "Const":
            ref = self._writer.constant(source.node, node.attr_tensor("value"))
        else:
            kind = tensor_dtype(graph, source) or DType.FLOAT
            ref = self._writer.placeholder(tensor, kind)
            self.inputs[ref.node] = tensor
        grid = self._op.grids.get(tensor)
        if grid is None or activations == "float":
            return ref
        return self._writer.limit(ref, grid, activations)


def _chain(first: str, last: str, graph: Graph) -> list[Node] | None:
    """Return the nodes from one to another, each of which reads the previous, or None."""
    nodes: list[Node] = []
    name = last
    while name in graph and len(nodes) < _LONGEST:
        nodes.append(graph[name])
        if name == first:
            return nodes[::-1]
        computed = {r.node for r in graph[name].data_inputs if graph[r.node].op != "Const"}
        if len(computed) != 1:
            return None
        (name,) = computed
    return None


# A convolution, its bias, and its activation, with room for nodes that only reshape.
_LONGEST: Final = 8


class _Writer:
    """Creates nodes whose names differ from those of other nodes."""

    def __init__(self, base: Iterable[Node]) -> None:
        self.nodes: list[Node] = []
        self._fresh = FreshNames(node.name for node in base)
        self._limits: dict[tuple[Ref, AnyGrid, Activations], Ref] = {}
        self._constants: dict[int, tuple[object, Ref]] = {}
        self._placeholders: dict[Edge, Ref] = {}
        self._copies: dict[tuple[str, tuple[Ref, ...]], Ref] = {}

    def constant(self, name: str, value: Array | Tensor) -> Ref:
        """Add a constant; the same object becomes the same constant."""
        entry = self._constants.get(id(value))
        if entry is None:
            tensor = value if isinstance(value, Tensor) else Tensor.of(value)
            node = constant(self._fresh.name(f"{name}/value"), tensor)
            self.nodes.append(node)
            # Keeping the object keeps its identity unique.
            entry = self._constants[id(value)] = value, Ref(node.name)
        return entry[1]

    def placeholder(self, tensor: Edge, kind: DType) -> Ref:
        """Add a placeholder for a tensor, once."""
        if tensor not in self._placeholders:
            attrs = {"dtype": attr.dtype(kind), "shape": attr.shape(None)}
            self._placeholders[tensor] = self._added("Placeholder", tensor[0], **attrs)
        return self._placeholders[tensor]

    def copy(self, node: Node, inputs: Sequence[Ref]) -> Ref:
        """Copy a node with other inputs, once."""
        key = (node.name, tuple(inputs))
        if key not in self._copies:
            self._copies[key] = self._added(node.op, node.name, *inputs, **node.attrs)
        return self._copies[key]

    def add_error(self, ref: Ref, node: Node, error: Array) -> Ref:
        """Add the error of a bias to the output of a layer."""
        if is_channels_first(node):
            error = error.reshape(-1, 1, 1)
        return self._plain("Add", ref, self.constant(node.name, error))

    def limit(self, ref: Ref, grid: AnyGrid, activations: Activations) -> Ref:
        """Clip or round a tensor to the numbers that integers represent."""
        key = ref, grid, activations
        if key not in self._limits:
            self._limits[key] = self._limited(ref, grid, activations)
        return self._limits[key]

    def _limited(self, ref: Ref, grid: AnyGrid, activations: Activations) -> Ref:
        if isinstance(grid, DynamicGrid):
            return ref if activations == "clipped" else self._dynamic(ref, grid)
        if activations == "rounded":
            return self._added(
                "FakeQuantWithMinMaxArgs",
                f"{ref.node}/rounded",
                ref,
                min=attr.floating(grid.low),
                max=attr.floating(grid.high),
                num_bits=attr.integer(grid.bits),
                narrow_range=attr.boolean(grid.bits > _BYTE),
            )
        above = self._plain("Maximum", ref, self._number(ref, grid.low))
        return self._plain("Minimum", above, self._number(ref, grid.high))

    def _dynamic(self, ref: Ref, grid: DynamicGrid) -> Ref:
        axes, zero = self.constant(ref.node, np.array(grid.axes, np.int32)), self._number(ref, 0.0)
        keep = {"T": attr.dtype(DType.FLOAT), "keep_dims": attr.boolean(True)}
        low, high = (self._added(op, ref.node, ref, axes, **keep) for op in ("Min", "Max"))
        span = self._plain(
            "Sub", self._plain("Maximum", high, zero), self._plain("Minimum", low, zero)
        )
        step = self._plain("Mul", span, self._number(ref, 1 / 255))
        step = self._plain("Maximum", step, self._number(ref, _LEAST_STEP))
        whole = self._plain("Round", self._plain("RealDiv", ref, step))
        return self._plain("Mul", whole, step)

    def _number(self, ref: Ref, number: float) -> Ref:
        return self.constant(ref.node, np.array(number, np.float32))

    def _plain(self, op: str, *inputs: Ref) -> Ref:
        return self._added(op, inputs[0].node, *inputs, T=attr.dtype(DType.FLOAT))

    def _added(self, op: str, name: str, *inputs: Ref, **attrs: AttrValue) -> Ref:
        node = Node(self._fresh.name(f"{name}/{op}"), op, inputs, "", attrs)
        self.nodes.append(node)
        return Ref(node.name)


_BYTE: Final = 8
# Avoids a division by zero for tensors of zeros.
_LEAST_STEP: Final = 1e-30
