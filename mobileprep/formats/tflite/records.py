"""The contents of a .tflite file as records, with names instead of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from mobileprep.errors import UnsupportedError

OptionValue = int | float | bool | str | tuple[int, ...] | tuple[float, ...]


class Quantization(Struct, frozen=True):
    """The quantization of integers: real values are ``scale * (integer - zero_point)``.

    Args:
        scales: one scale, or one for each slice along ``axis``; with blocks ``[slices, blocks]``.
        zero_points: zero points of the scales; empty with blocks, whose zero point is 0.
        axis: dimension of the slices.
        block_size: elements along the last dimension that share a scale; 0 without blocks.
        scale_tensor: index of the tensor with the scales of the blocks; -1 without blocks.
    """

    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]
    axis: int = 0
    block_size: int = 0
    scale_tensor: int = -1


class LiteTensor(Struct, frozen=True):
    """A tensor of a subgraph.

    Args:
        name: arbitrary string.
        type: element type as named by the format, such as ``FLOAT32``.
        shape: sizes, with 1 for unknown sizes.
        signature: sizes, with -1 for unknown sizes; None if all are known.
        buffer: index of the buffer with the elements; 0 for none.
        quantization: quantization, or None.
        is_variable: whether the elements persist between runs.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    signature: tuple[int, ...] | None = None
    buffer: int = 0
    quantization: Quantization | None = None
    is_variable: bool = False


class Options(Struct, frozen=True):
    """The options of an operator: the table of the format, and values by field name.

    Enumerations are represented by name; omitted fields have the format's default.
    """

    table: str
    values: Mapping[str, OptionValue] = field(default_factory=dict)


class OperatorCode(Struct, frozen=True):
    """An operator type: the name of a builtin or ``CUSTOM`` with a custom name, and its version."""

    builtin: str
    custom: str = ""
    version: int = 1


class OperatorRecord(Struct, frozen=True):
    """An operator of a subgraph.

    Args:
        code: type of the operator.
        inputs: tensor indices, -1 for an omitted optional input.
        outputs: tensor indices.
        options: options of a builtin operator, or None.
        custom_options: options of a custom operator, usually FlexBuffers.
        intermediates: indices of tensors that only describe the quantization of inner results.
    """

    code: OperatorCode
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Options | None = None
    custom_options: bytes = b""
    intermediates: tuple[int, ...] = ()


class SubGraphRecord(Struct, frozen=True):
    """A subgraph: its tensors, and its operators in execution order."""

    name: str
    tensors: tuple[LiteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[OperatorRecord, ...]


class SignatureRecord(Struct, frozen=True):
    """Names and tensors of a subgraph's inputs and outputs."""

    key: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    subgraph: int = 0


class ModelRecord(Struct, frozen=True):
    """The contents of a file.

    Args:
        subgraphs: subgraphs; the first one is the entry point.
        buffers: contents of constants; the first buffer is empty.
        signatures: signatures for callers.
        metadata: content by name.
        description: arbitrary string.
    """

    subgraphs: tuple[SubGraphRecord, ...]
    buffers: tuple[bytes | memoryview, ...]
    signatures: tuple[SignatureRecord, ...] = ()
    metadata: tuple[tuple[str, bytes], ...] = ()
    description: str = ""


NARROW: Final[Mapping[str, int]] = {"INT4": 4, "INT2": 2}
"""Bits of types with several elements in a byte, the first in its lowest bits."""


def packed(elements: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Store integers of a narrow type as bytes; missing elements of the last byte are 0."""
    count = 8 // bits
    levels = elements.reshape(-1).astype(np.uint8) & np.uint8((1 << bits) - 1)
    columns = np.pad(levels, (0, -levels.size % count)).reshape(-1, count)
    shifts = np.arange(count, dtype=np.uint8) * np.uint8(bits)
    stored: NDArray[np.uint8] = np.bitwise_or.reduce(columns << shifts, axis=1)
    return stored


def unpacked(content: bytes | memoryview, bits: int, shape: tuple[int, ...]) -> NDArray[np.int8]:
    """Return the integers of a narrow type; ``content`` must have the bytes that they need."""
    count = 8 // bits
    stored = np.frombuffer(content, np.int8)[:, None]
    shifts = np.int8(8 - bits) - np.arange(count, dtype=np.int8) * np.int8(bits)
    levels = (stored << shifts) >> np.int8(8 - bits)
    return levels.reshape(-1)[: math.prod(shape)].reshape(shape)


_MOST_BYTES: Final = (1 << 31) - 1


_WIDTH: Final = 4


def text_bytes(texts: Sequence[bytes]) -> bytes:
    """Encode strings as a buffer."""
    lengths = [_WIDTH * (len(texts) + 2), *map(len, texts)]
    if sum(lengths) > _MOST_BYTES:
        message = f"strings of {sum(lengths)} bytes do not fit a tensor of a .tflite file"
        raise UnsupportedError(message, "make the table smaller")
    head = np.array([len(texts), *np.cumsum(lengths)], "<i4")
    return head.tobytes() + b"".join(texts)


def fault_of_texts(content: bytes | memoryview, count: int) -> str:
    """Return the problem of a buffer with ``count`` strings as a predicate, or an empty string."""
    if len(content) < 2 * _WIDTH:
        return f"has {len(content)} bytes, too few for strings"
    stored_count = int(np.frombuffer(content, "<i4", 1)[0])
    if stored_count != count:
        return f"has {stored_count} strings, but its shape has {count}"
    begin = _WIDTH * (count + 2)
    if begin > len(content):
        return f"has {len(content)} bytes, too few for the places of {count} strings"
    places = np.frombuffer(content, "<i4", count + 1, _WIDTH)
    if places[0] < begin or (places[1:] < places[:-1]).any() or places[-1] > len(content):
        return "has strings outside of its buffer"
    return ""
