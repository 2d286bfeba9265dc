"""Compressed weights (float16, or int8 and int4 with per-channel scales), and lookup tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.errors import CorruptFileError, TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Quantization
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import FILLERS, TABLES
from mobileprep.graph.reachability import reachable
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Op, Program, Value, builtin
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.ops.context import RunContext, find_context_kernel
from mobileprep.ops.numerics.ranges import channel_steps
from mobileprep.ops.numerics.texts import as_texts
from mobileprep.transforms.base import Context, make_transform
from mobileprep.transforms.quantize_nodes import WeightSettings

LAYER_AXES: Final[Mapping[str, int]] = {
    "CONV_2D": 0,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 0,
    "TRANSPOSE_CONV": 0,
    "CONV_3D": 4,
}
"""Operators with weights as their second input, and the channel axis of these weights."""

# Operators with kernels for int8 weights and float32 inputs.
_HYBRID: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_FOUR_BITS: Final = frozenset({"CONV_2D", "FULLY_CONNECTED"})
# Minimum number of elements, as in other converters; smaller weights save little.
_FEWEST: Final = 1024
_FEWEST_FLOAT16: Final = 64
_USUAL: Final = WeightSettings()


def in_float16(program: Program) -> Program:
    """Store float32 constants as float16, each with a DEQUANTIZE before its readers.

    Constants beyond float16's range and those with few elements are unchanged.
    """
    changed = _Changed()

    def stored(value: Value) -> Value:
        if (
            value.data is None
            or value.dtype is not DType.FLOAT
            or value.data.size < _FEWEST_FLOAT16
        ):
            return value
        with np.errstate(over="ignore"):
            half = value.data.astype(np.float16)
        if not np.isfinite(half).all():
            return value
        return changed.dequantized(value, replace(value, dtype=DType.HALF, data=half))

    for op in program.ops:
        inputs = tuple(None if v is None else stored(v) for v in op.inputs)
        changed.ops.append(replace(op, inputs=inputs) if inputs != op.inputs else op)
    return program.with_ops(changed.ops)


def in_int4(program: Program) -> Program:
    """Store weights like ``in_int8``, but in 4 bits for layers whose kernels support them."""
    return in_int8(program, few=_FOUR_BITS)


def in_int8(
    program: Program,
    is_selected: Callable[[Op], bool] = lambda _: True,
    few: Collection[str] = (),
) -> Program:
    """Store the weights of layers as symmetric int8 with one scale per output channel.

    A layer whose kernel does not support such weights gets a DEQUANTIZE before it.

    Args:
        program: the program.
        is_selected: selects the operators to convert.
        few: operators whose weights are stored in 4 bits.
    """
    changed = _Changed()
    for op in program.ops:
        axis = LAYER_AXES.get(op.code) if is_selected(op) else None
        weights = op.input_at(1)
        if axis is None or weights is None or not _is_large(weights):
            changed.ops.append(op)
            continue
        stored = changed.quantized(weights, axis, 4 if op.code in few else 8)
        if op.code not in _HYBRID or _is_grouped(op):
            stored = changed.dequantized(weights, stored)
        stored_op = replace(op, inputs=(op.inputs[0], stored, *op.inputs[2:]))
        changed.ops.append(_hybrid(stored_op))
    return program.with_ops(changed.ops)


def quantized_weights(
    values: Array, axis: int, settings: WeightSettings = _USUAL, least: Array | None = None
) -> tuple[Array, Quantization]:
    """Quantize weights to [-127, 127] by the largest magnitude of each channel.

    Args:
        values: finite numbers in float32.
        axis: the channel axis.
        settings: bits, granularity, and method; fewer than 8 bits use a smaller part of int8.
        least: the minimum scale of each channel that its bias requires, if any.

    Source: LiteRT's quantization specification.
    """
    most = (1 << (settings.bits - 1)) - 1
    axes = () if settings.granularity == "tensor" else (axis - values.ndim,)
    scales = channel_steps(values, axes, settings.method, most, settings.percentile)
    flat = scales.reshape(-1)
    if least is not None:
        flat = _holding(flat, np.abs(values).max(axis=_others(values, axes), initial=0), least)
    rounded = np.clip(np.rint(values / flat.reshape(scales.shape)), -most, most).astype(np.int8)
    return rounded, Quantization(flat, np.zeros(flat.shape, np.int64), axis)


def _holding(scales: Array, largest: Array, least: Array) -> Array:
    """Raise scales so that a layer's sums can represent its bias."""
    full = largest.reshape(-1) > 0
    if full.any():
        # Channels of zeros would get a scale of 1, and their bias would be as coarse.
        scales = np.where(full, scales, scales[full].min())
    needed = least if scales.size == least.size else least.max(initial=0)
    raised: Array = np.maximum(scales, needed).astype(np.float32)
    return raised


def _others(values: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i in range(values.ndim) if i - values.ndim not in axes)


class _Changed:
    """The rewritten operators, and the stored form of each constant."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._floats: dict[Value, Value] = {}
        self._integers: dict[tuple[Value, int], Value] = {}

    def dequantized(self, value: Value, stored: Value) -> Value:
        """Return a stored constant as float32, dequantized once for all readers."""
        if value not in self._floats:
            result = Value(f"{value.name}_float", DType.FLOAT, value.shape)
            self.ops.append(builtin("DEQUANTIZE", [stored], [result]))
            self._floats[value] = result
        return self._floats[value]

    def quantized(self, value: Value, axis: int, bits: int) -> Value:
        """Return a constant as int8 or int4, quantized once for all readers."""
        if (value, bits) not in self._integers:
            assert value.data is not None
            data, details = quantized_weights(value.data, axis, WeightSettings(bits))
            kind = DType.INT4 if bits == 4 else DType.INT8
            result = replace(value, dtype=kind, data=data, quantization=details)
            self._integers[value, bits] = result
        return self._integers[value, bits]


def _is_large(weights: Value) -> bool:
    data = weights.data
    if data is None or weights.dtype is not DType.FLOAT or data.size < _FEWEST:
        return False
    return bool(np.isfinite(data).all())


def _is_grouped(op: Op) -> bool:
    """Return whether a convolution has groups, which hybrid kernels do not support."""
    image, weights = op.inputs[:2]
    if op.code != "CONV_2D" or image is None or weights is None:
        return False
    return not (image.shape and weights.shape and image.shape[-1] == weights.shape[-1])


def _hybrid(op: Op) -> Op:
    """Quantize the inputs of a dense layer asymmetrically, which loses less precision."""
    weights = op.inputs[1]
    if op.code != "FULLY_CONNECTED" or weights is None or weights.dtype is DType.FLOAT:
        return op
    return op.with_options(asymmetric_quantize_inputs=True)


_READERS: Final = frozenset(
    f"LookupTable{what}{version}" for what in ("Find", "Size", "Export") for version in ("", "V2")
)
_MOST_BYTES: Final = 1 << 28
_IN_THE_APP: Final = "look up in the app, and feed what its look-ups give"


class Tables:
    """The lookup tables of a graph, evaluated on demand.

    Args:
        graph: the tables and the nodes that fill them.
        fillers: the nodes that fill each table, by ``table_name``.
        changing: the names of tables that other nodes may modify.
    """

    def __init__(
        self, graph: Graph, fillers: Mapping[str, Sequence[Node]], changing: frozenset[str]
    ) -> None:
        self._graph = graph
        self._fillers = fillers
        self._changing = changing

    def filling(self, graph: Graph) -> Graph:
        """Add the nodes that fill tables to a graph that was cut out of the whole one."""
        lacking = [node for node in self._graph if node.name not in graph]
        return graph.with_nodes([*graph, *lacking]) if lacking else graph

    def contents(self, table: Node) -> tuple[Array, Array]:
        """Return keys and values of a table, ``[count]`` each; strings are object arrays.

        Raises:
            CannotExpressError: the table is empty, or its contents are not constant.
        """
        name = table_name(table)
        fillers = self._fillers.get(name, ())
        if not fillers:
            reason = "nothing fills it before the graph runs"
            raise CannotExpressError(reason, "freeze the model with its tables")
        if table.op.startswith("Mutable") and (name in self._changing or len(fillers) > 1):
            reason = "its entries change while the graph runs"
            raise CannotExpressError(reason, _IN_THE_APP)
        context = RunContext()
        for filler in fillers:
            self._fill(context, table, filler)
        (resource,) = context.resources.values()
        if not resource.entries:
            reason = "it has no entries"
            raise CannotExpressError(reason, _IN_THE_APP)
        kinds = table.attr_dtype("key_dtype"), table.attr_dtype("value_dtype")
        keys, values = list(resource.entries), list(resource.entries.values())
        return _array(keys, kinds[0]), _array(values, kinds[1])

    def _fill(self, context: RunContext, table: Node, filler: Node) -> None:
        make, fill = find_context_kernel(table.op), find_context_kernel(filler.op)
        assert make is not None
        assert fill is not None
        constants = self._constants(filler)
        try:
            fill(context, filler, make(context, table), *constants)
        except CorruptFileError as error:
            name = Path(error.where).name
            hint = f"put {name!r} next to the model, or in a directory `assets` there"
            reason = f"{error.where} {error.message}"
            raise CannotExpressError(reason, hint) from error

    def _constants(self, filler: Node) -> list[Array]:
        """Return the constant inputs of a node that fills a table."""
        refs = filler.data_inputs[1:]
        fetches = tuple(dict.fromkeys(map(str, refs)))
        limit = {"max_constant_size_in_bytes": _MOST_BYTES}
        try:
            fold = make_transform("fold_constants", limit)
            graph = fold.apply(self._graph, Context((), fetches)).graph
        except TransformError:
            graph = self._graph
        nodes = [graph.get(ref.node) for ref in refs]
        constants = [
            n.attr_tensor("value").array() for n in nodes if n is not None and n.op == "Const"
        ]
        if len(constants) < len(refs):
            reason = f"{filler.name!r} fills it with values that are not constant"
            raise CannotExpressError(reason, _IN_THE_APP)
        return constants


def tables_of(graph: Graph) -> Tables:
    """Return the tables of a whole graph, before it is cut."""
    tables = {node.name: table_name(node) for node in graph if node.op in TABLES}
    fillers: dict[str, list[Node]] = {}
    changing = set()
    for node in graph if tables else ():
        for place, ref in enumerate(node.data_inputs):
            name = tables.get(ref.node)
            if name is not None and node.op in FILLERS and not place:
                fillers.setdefault(name, []).append(node)
            elif name is not None and node.op not in _READERS:
                changing.add(name)
    roots = [node.name for nodes in fillers.values() for node in nodes]
    needed = reachable(graph, roots, through_control=False)
    retained = [node.with_inputs(node.data_inputs) for node in graph if node.name in needed]
    return Tables(graph.with_nodes(retained), fillers, frozenset(changing))


def no_tables() -> Tables:
    """Return the tables of a graph without any."""
    return Tables(Graph([]), {}, frozenset())


def table_name(table: Node) -> str:
    """Return the name that identifies a table; nodes with the same name share one."""
    return table.attr_str("shared_name", "") or table.name


def _array(elements: Sequence[bytes | int], kind: DType) -> Array:
    if kind is DType.STRING:
        return as_texts([e for e in elements if isinstance(e, bytes)], (len(elements),))
    array = np.array(elements)
    if array.dtype != kind.numpy:
        message = f"its entries are of {array.dtype}, not of {kind.short}"
        raise ValueError(message)
    return array
