"""Compressed weights: float16, or int8 and int4 with a scale for each channel, block, or tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options, Quantization
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Op, Program, Value, builtin, reshape
from mobileprep.litert.refusals import listed
from mobileprep.litert.scope import ACTIVATION
from mobileprep.litert.versions import release_order
from mobileprep.ops.numerics.ranges import channel_steps, float16_steps
from mobileprep.transforms.quantize_nodes import WeightSettings

LAYER_AXES: Final[Mapping[str, int]] = {
    "CONV_2D": 0,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 0,
    "TRANSPOSE_CONV": 0,
    "CONV_3D": 4,
}
"""Operators with weights as their second input, and the channel axis of these weights."""

FOUR_BITS: Final[Mapping[str, frozenset[DType]]] = {
    "CONV_2D": frozenset({DType.FLOAT, DType.INT8, DType.INT16}),
    "FULLY_CONNECTED": frozenset({DType.FLOAT, DType.INT8, DType.INT16}),
    "EMBEDDING_LOOKUP": frozenset({DType.FLOAT}),
}
"""Operators with kernels for 4-bit weights, and the dtypes of their activations or results.

Source: ai-edge-litert 2.3, measured with and without XNNPACK. Without an error, it computes wrong
numbers for depthwise convolutions of int16 and for GATHER.
"""
BLOCKS: Final = frozenset({"FULLY_CONNECTED", "EMBEDDING_LOOKUP"})
"""Operators of ``FOUR_BITS`` with a scale for each block in float; CONV_2D ignores the scales."""

_SEQUENCES: Final[Mapping[str, tuple[int, ...]]] = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 9), 16),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (1, 2),
}
"""Operators over sequences, and their inputs with weights, which have one scale each."""

# Operators with kernels for int8 weights and float32 inputs.
_HYBRID: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
# First release that looks up rows of tables with a scale for each row.
_TABLES_RELEASE: Final = (2, 18)
# Largest float16, the type of the scales of blocks.
_MOST_SCALE: Final = 65504.0
_FEW_BITS: Final = 4
_SHOWN: Final = 3
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


def in_few_bits(
    program: Program,
    settings_of: Callable[[Op], WeightSettings | None] = lambda _: _USUAL,
    min_runtime: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Program:
    """Store the weights of layers and the tables of lookups as symmetric integers.

    A layer whose kernel does not support such weights gets a DEQUANTIZE before it. A GATHER of rows
    becomes an EMBEDDING_LOOKUP. Dense layers and 1x1 convolutions, which become dense layers, can
    have a scale for each block; others have one for each channel.

    Args:
        program: the program.
        settings_of: how to store the weights of an operator; None for weights in float.
        min_runtime: the oldest release that must run the file; empty for any.
        tell: called with a sentence about layers that cannot have blocks because of their size.
    """
    changed = _Changed()
    uneven: dict[int, list[str]] = {}
    for op in program.ops:
        settings = settings_of(op)
        if op.code in _SEQUENCES and settings is not None:
            changed.ops.append(_sequence(op))
            continue
        weights = op.input_at(_index(op))
        if settings is None or weights is None or not _is_large(weights):
            changed.ops.append(op)
        elif _is_lookup(op, min_runtime):
            changed.ops += _lookup(op, changed.quantized(op, weights, _fitting(op, settings)))
        elif op.code in LAYER_AXES:
            fitting = _fitting(op, settings)
            if settings.block_size and not fitting.block_size and op.code == "FULLY_CONNECTED":
                uneven.setdefault(settings.block_size, []).append(op.outputs[0].name)
            stored = changed.quantized(op, weights, fitting)
            if op.code not in _HYBRID or _is_grouped(op):
                stored = changed.dequantized(weights, stored)
            layer = replace(op, inputs=(op.inputs[0], stored, *op.inputs[2:]))
            changed.ops.append(_hybrid(_dense(layer) if fitting.block_size else layer))
        else:
            changed.ops.append(op)
    for size, names in uneven.items():
        reason = f"their columns are not a multiple of {size}, or their weights exceed float16"
        tell(f"FULLY_CONNECTED {listed(names, _SHOWN)} without blocks: {reason}")
    return program.with_ops(changed.ops)


def _sequence(op: Op) -> Op:
    """Return a sequence operator whose matrices are stored as int8, unless they are small."""
    inputs = list(op.inputs)
    indices = [i for i in _SEQUENCES[op.code] if op.constant(i) is not None]
    arrays = [array for i in indices if (array := op.constant(i)) is not None]
    is_finite = all(np.isfinite(array).all() for array in arrays)
    if sum(array.size for array in arrays) < _FEWEST or not is_finite:
        return op
    for index, array in zip(indices, arrays, strict=True):
        value = inputs[index]
        assert value is not None
        data, details = quantized_weights(array, 0, WeightSettings(8, "tensor"))
        inputs[index] = replace(value, dtype=DType.INT8, data=data, quantization=details)
    return replace(op, inputs=tuple(inputs)).with_options(asymmetric_quantize_inputs=True)


def has_few_bits(op: Op) -> bool:
    """Return whether LiteRT has kernels for an operator with constant weights in 4 bits."""
    if op.code == "GATHER":
        shape = op.operands[0].shape
        # Each row of a table starts at a byte.
        return shape is not None and shape != () and shape[-1] % 2 == 0
    return op.code in FOUR_BITS and not _is_grouped(op)


def stored_type(op: Op, settings: WeightSettings) -> DType:
    """Return the type in which the weights of an operator are stored."""
    return DType.INT4 if settings.bits <= _FEW_BITS and has_few_bits(op) else DType.INT8


def quantized_weights(
    values: Array, axis: int, settings: WeightSettings = _USUAL, least: Array | None = None
) -> tuple[Array, Quantization]:
    """Quantize weights to [-127, 127] by the largest magnitude of each channel.

    Args:
        values: finite numbers in float32; with blocks ``[channels, columns]``.
        axis: the channel axis.
        settings: bits, granularity, and method; fewer than 8 bits use a smaller part of int8.
            Blocks have scales that float16 and bfloat16 can represent, as XNNPACK needs.
        least: the minimum scale of each channel that its bias requires, if any.

    Source: LiteRT's quantization specification.
    """
    most = _most(settings)
    if settings.block_size:
        blocks = values.reshape(-1, settings.block_size)
        scales = channel_steps(blocks, (-2,), settings.range_method, most, settings.percentile)
        scales = float16_steps(scales)
        rounded = np.clip(np.rint(blocks / scales), -most, most).astype(np.int8)
        per_block = scales.reshape(len(values), -1)
        none = np.zeros(0, np.int64)
        return rounded.reshape(values.shape), Quantization(per_block, none, 0, settings.block_size)
    axes = () if settings.granularity == "tensor" else (axis - values.ndim,)
    scales = channel_steps(values, axes, settings.range_method, most, settings.percentile)
    flat = scales.reshape(-1)
    if least is not None:
        flat = _holding(flat, np.abs(values).max(axis=_others(values, axes), initial=0), least)
    rounded = np.clip(np.rint(values / flat.reshape(scales.shape)), -most, most).astype(np.int8)
    return rounded, Quantization(flat, np.zeros(flat.shape, np.int64), axis)


def _most(settings: WeightSettings) -> int:
    """Return the largest level of symmetric weights."""
    return (1 << (settings.bits - 1)) - 1


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
        self._integers: dict[tuple[Value, DType, WeightSettings], Value] = {}

    def dequantized(self, value: Value, stored: Value) -> Value:
        """Return a stored constant as float32, dequantized once for all readers."""
        if value not in self._floats:
            result = Value(f"{value.name}_float", DType.FLOAT, value.shape)
            self.ops.append(builtin("DEQUANTIZE", [stored], [result]))
            self._floats[value] = result
        return self._floats[value]

    def quantized(self, op: Op, value: Value, settings: WeightSettings) -> Value:
        """Return the weights of an operator as integers, quantized once for all readers."""
        kind = stored_type(op, settings)
        if (value, kind, settings) not in self._integers:
            assert value.data is not None
            data = value.data
            if settings.block_size:
                data = data.reshape(len(data), -1)
            data, details = quantized_weights(data, LAYER_AXES.get(op.code, 0), settings)
            stored = replace(value, dtype=kind, shape=data.shape, data=data, quantization=details)
            self._integers[value, kind, settings] = stored
        return self._integers[value, kind, settings]


def _index(op: Op) -> int:
    """Return the index of the input with the weights, or with the table of a lookup."""
    return 0 if op.code == "GATHER" else 1


def _fitting(op: Op, settings: WeightSettings) -> WeightSettings:
    """Return the settings without blocks if the operator cannot have them."""
    weights = op.constant(_index(op))
    size = settings.block_size
    if not size or weights is None or not has_few_bits(op) or settings.bits > _FEW_BITS:
        return replace(settings, block_size=0)
    is_even = weights.size // len(weights) % size == 0
    is_in_range = float(np.abs(weights).max()) <= _MOST_SCALE * _most(settings)
    has_blocks = op.code == "GATHER" or op.code in BLOCKS or _is_dense(op, weights)
    return settings if has_blocks and is_even and is_in_range else replace(settings, block_size=0)


def _is_dense(op: Op, weights: Array) -> bool:
    """Return whether an operator is a convolution with 1x1 filters at every pixel."""
    if op.code != "CONV_2D":
        return False
    strides = [op.option("stride_h"), op.option("stride_w")]
    return weights.shape[1:3] == (1, 1) and strides == [1, 1]


def _dense(op: Op) -> Op:
    """Return a 1x1 convolution as a dense layer on its pixels; other layers are unchanged."""
    if op.code != "CONV_2D":
        return op
    values = {ACTIVATION: op.option(ACTIVATION, "NONE"), "keep_num_dims": True}
    return replace(op, code="FULLY_CONNECTED", options=Options("FullyConnectedOptions", values))


def _is_lookup(op: Op, min_runtime: str) -> bool:
    """Return whether an operator reads whole rows of a table with known sizes."""
    if op.code != "GATHER" or op.option("axis") or op.option("batch_dims"):
        return False
    table, indices = op.inputs[:2]
    shape = op.outputs[0].shape
    if table is None or indices is None or table.rank != 2 or shape is None:
        return False
    if min_runtime and release_order(min_runtime) < _TABLES_RELEASE:
        return False
    is_integer = indices.dtype in (DType.INT32, DType.INT64)
    return is_integer and indices.rank is not None and sum(size < 0 for size in shape) <= 1


def _lookup(op: Op, table: Value) -> list[Op]:
    """Return the EMBEDDING_LOOKUP of a GATHER, which takes a list of indices in int32."""
    indices, output = op.inputs[1], op.outputs[0]
    assert indices is not None
    assert indices.shape is not None
    ops = []
    if indices.dtype is not DType.INT32:
        short = replace(
            indices, name=f"{output.name}_indices", dtype=DType.INT32, data=None, alike=""
        )
        types = {"in_data_type": "INT64", "out_data_type": "INT32"}
        ops.append(builtin("CAST", [indices], [short], **types))
        indices = short
    if indices.rank == 1:
        return [
            *ops,
            replace(builtin("EMBEDDING_LOOKUP", [indices, table], [output]), node=op.node),
        ]
    sizes = indices.shape or ()
    count = -1 if min(sizes, default=0) < 0 else int(np.prod(sizes, dtype=np.int64))
    flat = Value(f"{output.name}_list", DType.INT32, (count,))
    columns = 0 if table.shape is None else table.shape[-1]
    rows = Value(f"{output.name}_rows", DType.FLOAT, (count, columns))
    lookup = replace(builtin("EMBEDDING_LOOKUP", [flat, table], [rows]), node=op.node)
    return [*ops, reshape(indices, flat), lookup, reshape(rows, output)]


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
