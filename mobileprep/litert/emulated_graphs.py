"""Add the errors of a .tflite file to its float graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.litert.emulation import AnyGrid, DynamicGrid, EmulatedOp, Emulation
from mobileprep.litert.shapes import is_channels_first

Activations = Literal["float", "clipped", "rounded"]
"""How activations are computed: in float, clipped to their ranges, or rounded to integers."""


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
