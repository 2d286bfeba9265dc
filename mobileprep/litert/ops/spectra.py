"""Fourier transforms of any length, as products with sines and cosines.

A complex tensor exists in the program only as its real and imaginary parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.flatbuffer import number_map
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.ops.math import repeated
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import known_size, reshaped
from mobileprep.litert.types import need_float

# Number of axes that each op transforms.
_FORWARD: Final = {"FFT": 1, "FFT2D": 2, "RFFT": 1, "RFFT2D": 2}
_INVERSE: Final = {"IFFT": 1, "IFFT2D": 2, "IRFFT": 1, "IRFFT2D": 2}
_READERS: Final = frozenset(
    {"ComplexAbs", "Real", "Imag", "Angle", "Conj", "FFT", "FFT2D", *_INVERSE}
)
_LONGEST: Final = 1 << 12

Parts = tuple[Value, Value | None]
"""The real and imaginary part; the latter is None for a real tensor."""


@lowering("RFFT", "RFFT2D")
def real_transform(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Multiply by the waves of half a spectrum along the last axis, a full one along others."""
    need_float(inputs[:1])
    *before, length = _lengths(scope, node, _FORWARD[node.op])
    waves = _waves(scope, inputs[0], -1, length, half=True)
    parts = _transformed(scope, (inputs[0], None), waves, _times)
    for size in before:
        parts = _transformed(scope, parts, _waves(scope, inputs[0], -2, size), _row_times)
    return _whole(scope, node, parts)


@lowering("FFT", "FFT2D", "IFFT", "IFFT2D")
def complex_transform(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Multiply by waves along each axis with BATCH_MATMUL."""
    parts: Parts = _halves(scope, inputs[0])
    inverse = node.op in _INVERSE
    for axis in range(-1, -1 - {**_FORWARD, **_INVERSE}[node.op], -1):
        length = known_size(inputs[0], axis)
        waves = _waves(scope, inputs[0], axis, length, inverse=inverse)
        parts = _transformed(scope, parts, waves, _times if axis == -1 else _row_times)
    return _whole(scope, node, parts)


@lowering("IRFFT", "IRFFT2D")
def inverse_real_transform(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Multiply by waves with BATCH_MATMUL, using half a spectrum along the last axis."""
    *before, length = _lengths(scope, node, _INVERSE[node.op])
    parts: Parts = _halves(scope, inputs[0])
    for size in before:
        waves = _waves(scope, inputs[0], -2, size, inverse=True)
        parts = _transformed(scope, parts, waves, _row_times)
    count = length // 2 + 1
    waves = _waves(scope, inputs[0], -1, length, inverse=True)
    waves[count:] = 0
    # The other half of the spectrum is conjugate, so both halves contribute the same real numbers.
    waves[1 : (length + 1) // 2] *= 2
    real, imaginary = parts
    assert imaginary is not None
    reals = _times(scope, real, waves.real), _times(scope, imaginary, waves.imag)
    return Arithmetic(scope).sub(*reals)


@lowering("Complex")
def complex_(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Combine two parts to a complex tensor."""
    need_float(inputs)
    shape = scope.output_shape(node)
    real, imaginary = (repeated(scope, value, shape) for value in inputs)
    return _whole(scope, node, (real, imaginary))


@lowering("Conj")
def conj(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Negate the imaginary part; a real tensor is unchanged."""
    if inputs[0] not in scope.halves:
        need_float(inputs)
        return inputs[0]
    real, imaginary = _halves(scope, inputs[0])
    return _whole(scope, node, (real, Arithmetic(scope).one("NEG", imaginary)))


@lowering("ComplexAbs")
def complex_abs(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute the square root of the sum of squares of both parts."""
    work = Arithmetic(scope)
    squares = [work.one("SQUARE", part) for part in _halves(scope, inputs[0])]
    return work.one("SQRT", work.add(*squares))


@lowering("Angle")
def angle(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit ATAN2 of the parts."""
    real, imaginary = _halves(scope, inputs[0])
    return scope.emit("ATAN2", [imaginary, real], scope.output_shape(node))


@lowering("Real", "Imag")
def part(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Return one of the parts."""
    return _halves(scope, inputs[0])[node.op == "Imag"]


def _whole(scope: Scope, node: Node, parts: Parts) -> Value:
    """Return a complex tensor of two parts; raises an error for unsupported readers."""
    readers = scope.graph.consumers.get(node.name, ())
    other = next((reader for reader in readers if reader.op not in _READERS), None)
    if other is not None:
        reason = f"{other.op} {other.name!r} reads its complex numbers"
        hint = "read its ComplexAbs, Real, Imag, or Angle instead"
        raise CannotExpressError(reason, hint)
    real, imaginary = parts
    assert imaginary is not None
    whole = Value("", DType.COMPLEX64, scope.output_shape(node))
    scope.halves[whole] = (real, imaginary)
    return whole


def _lengths(scope: Scope, node: Node, count: int) -> tuple[int, ...]:
    lengths = scope.integers(node, 1, "length")
    if len(lengths) != count:
        message = f"it has {len(lengths)} lengths for {count} axes"
        raise ValueError(message)
    return lengths


def _waves(
    scope: Scope, value: Value, axis: int, length: int, *, half: bool = False, inverse: bool = False
) -> Array:
    """Return the complex waves of a transform: a row per element, a column per frequency.

    Elements beyond the length are ignored, as in TensorFlow.
    """
    size = known_size(value, axis)
    if not 0 < length <= _LONGEST or not 0 < size <= _LONGEST:
        reason = f"it transforms {size} samples to a length of {length}"
        raise CannotExpressError(reason, f"give it 1 to {_LONGEST} samples")
    columns = length // 2 + 1 if half else length
    turns = np.arange(size)[:, None] * np.arange(columns)[None, :] % length / length
    waves: Array = np.exp((2j if inverse else -2j) * np.pi * turns)
    waves[length:] = 0
    return waves / length if inverse else waves


def _transformed(
    scope: Scope, parts: Parts, waves: Array, times: Callable[[Scope, Value, Array], Value]
) -> Parts:
    """Multiply complex numbers by waves along the last axis, or along the one before it."""
    real, imaginary = parts
    if imaginary is None:
        return times(scope, real, waves.real), times(scope, real, waves.imag)
    one, two = times(scope, real, waves.real), times(scope, imaginary, waves.imag)
    three, four = times(scope, real, waves.imag), times(scope, imaginary, waves.real)
    work = Arithmetic(scope)
    return work.sub(one, two), work.add(three, four)


def _times(scope: Scope, value: Value, waves: Array) -> Value:
    shape = None if value.shape is None else (*value.shape[:-1], waves.shape[1])
    right = scope.constant(waves.astype(np.float32), "waves")
    if shape is None or len(shape) > 1:
        return scope.emit("BATCH_MATMUL", [value, right], shape)
    row = reshaped(scope, value, (1, -1))
    return reshaped(scope, scope.emit("BATCH_MATMUL", [row, right], (1, *shape)), shape)


def _row_times(scope: Scope, value: Value, waves: Array) -> Value:
    shape = value.shape
    sizes = None if shape is None else (*shape[:-2], waves.shape[1], shape[-1])
    turned = scope.constant(np.ascontiguousarray(waves.T, np.float32), "waves")
    return scope.emit("BATCH_MATMUL", [turned, value], sizes)


def _halves(scope: Scope, value: Value) -> tuple[Value, Value]:
    halves = scope.halves.get(value)
    if halves is None:
        reason = "it takes complex numbers"
        raise CannotExpressError(reason, "feed the output of this node instead")
    return halves


@lowering("AudioSpectrogram")
def spectrogram(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit the custom operator AudioSpectrogram."""
    need_float(inputs)
    options: Mapping[str, int | bool] = {
        "window_size": node.attr_int("window_size"),
        "stride": node.attr_int("stride"),
        "magnitude_squared": node.attr_bool("magnitude_squared", False),
    }
    outputs = [(scope.output_shape(node), DType.FLOAT)]
    return scope.emit_custom("AudioSpectrogram", inputs, outputs, number_map(options))[0]


@lowering("Mfcc")
def mfcc(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit the custom operator Mfcc, whose frequency limits must be integers."""
    need_float(inputs[:1])
    upper = node.attr_float("upper_frequency_limit", 4000.0)
    lower = node.attr_float("lower_frequency_limit", 20.0)
    if not (upper.is_integer() and lower.is_integer()):
        reason = f"its limits of frequency are {lower:g} and {upper:g}, no whole numbers"
        raise CannotExpressError(reason, "round them")
    options: Mapping[str, int | bool] = {
        "upper_frequency_limit": int(upper),
        "lower_frequency_limit": int(lower),
        "filterbank_channel_count": node.attr_int("filterbank_channel_count", 40),
        "dct_coefficient_count": node.attr_int("dct_coefficient_count", 13),
    }
    outputs = [(scope.output_shape(node), DType.FLOAT)]
    return scope.emit_custom("Mfcc", inputs, outputs, number_map(options))[0]
