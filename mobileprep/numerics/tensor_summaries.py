"""Tensors in the words of TensorFlow's ``Print``, ``Assert`` and ``StringFormat``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.tensor import Array

# Types whose elements TensorFlow shows as question marks.
_UNSHOWN: Final = frozenset(
    {DType.QINT32, DType.COMPLEX64, DType.COMPLEX128, DType.RESOURCE, DType.VARIANT}
)
_ESCAPES: Final = {ord(c): f"\\{e}" for c, e in zip("\n\r\t\"'\\", "nrt\"'\\", strict=True)}
_ESCAPED: Final = tuple(
    _ESCAPES.get(b) or (chr(b) if 0x20 <= b < 0x7F else f"\\{b:03o}") for b in range(256)
)
# The least number with all its digits in single precision; TensorFlow takes what is less for 0.
_LEAST: Final = float(np.finfo(np.float32).tiny)

Show = Callable[[Any], str]


def summary(array: Array, dtype: DType, count: int) -> str:
    """The first elements in row-major order, rows in brackets: ``[1 2][3...]...``.

    Args:
        array: the tensor, quantized types as plain integers.
        dtype: its type.
        count: how many elements to show, all if negative.

    Source: ``Tensor::SummarizeValue`` of TensorFlow 1.15; 2.21 writes the same, and shows bfloat16,
    of which 1.15 shows question marks.
    """
    shown = array.size if count < 0 else min(count, array.size)
    left_out = "..." if shown < array.size else ""
    if dtype in _UNSHOWN:
        return " ".join(repeat("?", shown)) + left_out
    elements = map(_shower(dtype), _readable(array).reshape(-1)[:shown].tolist())
    if array.ndim < 2:
        return " ".join(elements) + left_out
    return "".join(_rows(elements, array.shape, shown)) + left_out


def edges(array: Array, dtype: DType, count: int) -> str:
    """The first and last elements along each axis, a line a row, texts in quotes.

    Args:
        array: the tensor, quantized types as plain integers.
        dtype: its type.
        count: how many elements to show at each end of an axis, all if negative.

    Source: ``Tensor::SummarizeValue`` of TensorFlow 1.15 with ``print_v2``.
    """
    count = array.size if count < 0 else min(count, array.size)
    if dtype in _UNSHOWN:
        shown = summary(array, dtype, count)
        return f"[{shown}]" if array.ndim else shown
    if array.ndim == 0 and count == 0:
        return "..."
    return _block(_readable(array), count, _quoted if dtype is DType.STRING else _shower(dtype), 0)


def escaped(text: bytes) -> str:
    """A text with everything but printable ASCII as C escapes it, bytes in octal."""
    return "".join(map(_ESCAPED.__getitem__, text))


def _rows(elements: Iterator[str], shape: tuple[int, ...], shown: int) -> Iterator[str]:
    """Elements with the brackets of all axes but the first."""
    # How many elements lie between the brackets of each inner axis.
    spans = [math.prod(shape[axis:]) for axis in range(1, len(shape))]
    for position, element in enumerate(elements):
        opened = sum(position % span == 0 for span in spans)
        yield "[" * opened if opened else " "
        yield element
        end = position + 1
        if end < shown:
            yield "]" * sum(end % span == 0 for span in spans)
            continue
        yield "..." if end % spans[-1] else ""
        yield "]" * len(spans)


def _block(array: Array, count: int, show: Show, axis: int) -> str:
    """What lies below one place of the outer axes, of which there are ``axis``."""
    if array.ndim == 0:
        return show(array.item())
    length, inner = len(array), array.ndim - 1
    between = "\n" * inner + " " * (axis + 1) if inner else " "
    parts = [
        _block(array[i : i + 1].reshape(array.shape[1:]), count, show, axis + 1)
        for i in _ends(length, count)
    ]
    # The original puts a space before the dots even where nothing stands before them.
    left_out = [f"{between}..."] if length > 2 * count else []
    first, last = parts[:count], parts[count:]
    told = between.join(first)
    return "[" + told + "".join(left_out) + "".join(between + p for p in last) + "]"


def _ends(length: int, count: int) -> list[int]:
    """The first and the last places of an axis."""
    if length <= 2 * count:
        return list(range(length))
    return [*range(count), *range(length - count, length)]


def _readable(array: Array) -> Array:
    """Narrow floats as single precision, which numpy turns into numbers of Python."""
    return (
        array
        if array.dtype.kind in "biuO" or array.dtype == np.float64
        else array.astype(np.float32)
    )


def _shower(dtype: DType) -> Show:
    """What writes one element."""
    if dtype is DType.STRING:
        return escaped
    if dtype is DType.DOUBLE:
        return _double
    return _single if dtype.is_floating else _integer


def _integer(value: int) -> str:
    return str(int(value))


def _single(value: float) -> str:
    """Six digits, or as many as bring the number back."""
    if abs(value) < _LEAST:
        value = math.copysign(0.0, value)
    text = f"{value:.6g}"
    return _signed(value, text if np.float32(text) == value else f"{value:.9g}")


def _double(value: float) -> str:
    text = f"{value:.15g}"
    return _signed(value, text if float(text) == value else f"{value:.17g}")


def _signed(value: float, text: str) -> str:
    """Even what is no number has a sign."""
    return f"-{text}" if math.isnan(value) and math.copysign(1, value) < 0 else text


def _quoted(text: bytes) -> str:
    return f'"{escaped(text)}"'
