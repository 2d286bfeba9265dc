"""Spectra of real signals, as products with sines and cosines: of any length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import ACTIVATION, Scope
from mobileprep.litert.types import need_float

_READERS: Final = frozenset({"ComplexAbs", "Real", "Imag"})
_LONGEST: Final = 1 << 12


@lowering("RFFT")
def rfft(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Two BATCH_MATMUL, of which ComplexAbs, Real and Imag read the results."""
    need_float(node, inputs[:1])
    readers = scope.graph.consumers.get(node.name, ())
    if not readers or any(reader.op not in _READERS for reader in readers):
        reason = "LiteRT has hardly an operator on complex numbers"
        raise CannotExpressError(reason, "read its ComplexAbs, Real or Imag alone")
    length = scope.integers(node, 1, "length")[0]
    signal = inputs[0]
    given = -1 if not signal.shape else signal.shape[-1]
    if not 0 < length <= _LONGEST or not 0 < given <= _LONGEST:
        reason = f"it transforms {given} samples to a length of {length}"
        raise CannotExpressError(reason, f"give it at most {_LONGEST} samples")
    places = np.arange(given)[:, None] * np.arange(length // 2 + 1)[None, :] % length
    angles = places * (2 * np.pi / length)
    angles[length:] = np.nan  # Samples beyond the length do not count.
    shape = scope.output_shape(node)
    parts = [
        _product(scope, signal, np.nan_to_num(waves, nan=0.0), shape)
        for waves in (np.cos(angles), -np.sin(angles))
    ]
    whole = Value("", DType.COMPLEX64, shape)
    scope.halves[whole] = (parts[0], parts[1])
    return whole


def _product(
    scope: Scope, signal: Value, waves: np.ndarray, shape: tuple[int, ...] | None
) -> Value:
    inputs = [signal, scope.constant(waves.astype(np.float32), "waves")]
    return scope.emit("BATCH_MATMUL", inputs, shape, DType.FLOAT, "BatchMatMulOptions")


@lowering("ComplexAbs")
def complex_abs(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """The root of the sum of both parts' squares."""
    squares = [_unary(scope, "SQUARE", part) for part in _halves(scope, inputs[0])]
    shape, options = squares[0].shape, {ACTIVATION: "NONE"}
    total = scope.emit("ADD", squares, shape, DType.FLOAT, "AddOptions", **options)
    return _unary(scope, "SQRT", total)


@lowering("Real", "Imag")
def part(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """One of the parts."""
    return _halves(scope, inputs[0])[node.op == "Imag"]


def _halves(scope: Scope, value: Value) -> tuple[Value, Value]:
    found = scope.halves.get(value)
    if found is None:
        reason = "it takes complex numbers"
        raise CannotExpressError(reason, "feed what this node puts out")
    return found


def _unary(scope: Scope, code: str, value: Value) -> Value:
    return scope.emit(code, [value], value.shape, value.dtype)
