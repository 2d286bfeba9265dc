"""What a .tflite file holds, as records: names where the file has numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from mobileprep.errors import UnsupportedError

OptionValue = int | float | bool | str | tuple[int, ...] | tuple[float, ...]


class Quantization(Struct, frozen=True):
    """How integers stand for real numbers: ``scale * (integer - zero_point)``.

    Args:
        scales: one, or one for each slice along ``axis``.
        zero_points: as many.
        axis: the dimension along which they differ.
    """

    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]
    axis: int = 0


class LiteTensor(Struct, frozen=True):
    """A tensor of a subgraph.

    Args:
        name: any text.
        type: its element type by the format's name, such as ``FLOAT32``.
        shape: its sizes; 1 stands for one that is not known.
        signature: its sizes with -1 for those that are not known, None where all are.
        buffer: which buffer holds its elements; 0 for none.
        quantization: None for plain numbers.
        is_variable: whether it keeps its elements between runs.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    signature: tuple[int, ...] | None = None
    buffer: int = 0
    quantization: Quantization | None = None
    is_variable: bool = False


class Options(Struct, frozen=True):
    """The options of an operator: the format's table, and values by the names of its fields.

    Enumerations are given by name; what is not given has the format's default.
    """

    table: str
    values: Mapping[str, OptionValue] = field(default_factory=dict)


class OperatorCode(Struct, frozen=True):
    """Which operator: a builtin's name or ``CUSTOM`` with a name of its own, and its version."""

    builtin: str
    custom: str = ""
    version: int = 1


class OperatorRecord(Struct, frozen=True):
    """An operator of a subgraph.

    Args:
        code: which operator.
        inputs: indices of tensors, -1 for an optional one that is not there.
        outputs: indices of tensors.
        options: None where it has none.
        custom_options: bytes that a custom operator reads, FlexBuffers as a rule.
    """

    code: OperatorCode
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Options | None = None
    custom_options: bytes = b""


class SubGraphRecord(Struct, frozen=True):
    """Tensors, and operators in the order in which they run."""

    name: str
    tensors: tuple[LiteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[OperatorRecord, ...]


class SignatureRecord(Struct, frozen=True):
    """Names of a subgraph's inputs and outputs, each with its tensor."""

    key: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    subgraph: int = 0


class ModelRecord(Struct, frozen=True):
    """A whole file.

    Args:
        subgraphs: the first one is what runs.
        buffers: bytes of constants; the first one is empty.
        signatures: names for callers.
        metadata: bytes by name.
        description: any text.
    """

    subgraphs: tuple[SubGraphRecord, ...]
    buffers: tuple[bytes | memoryview, ...]
    signatures: tuple[SignatureRecord, ...] = ()
    metadata: tuple[tuple[str, bytes], ...] = ()
    description: str = ""


_MOST_BYTES: Final = (1 << 31) - 1


_WIDTH: Final = 4


def text_bytes(texts: Sequence[bytes]) -> bytes:
    """The buffer of some texts."""
    lengths = [_WIDTH * (len(texts) + 2), *map(len, texts)]
    if sum(lengths) > _MOST_BYTES:
        message = f"strings of {sum(lengths)} bytes do not fit a tensor of a .tflite file"
        raise UnsupportedError(message, "make the table smaller")
    head = np.array([len(texts), *np.cumsum(lengths)], "<i4")
    return head.tobytes() + b"".join(texts)


def fault_of_texts(content: bytes | memoryview, count: int) -> str:
    """What is wrong with a buffer of so many texts, in a part of a sentence; empty for nothing."""
    if len(content) < 2 * _WIDTH:
        return f"has {len(content)} bytes, too few for strings"
    told = int(np.frombuffer(content, "<i4", 1)[0])
    if told != count:
        return f"has {told} strings, but its shape has {count}"
    begin = _WIDTH * (count + 2)
    if begin > len(content):
        return f"has {len(content)} bytes, too few for the places of {count} strings"
    places = np.frombuffer(content, "<i4", count + 1, _WIDTH)
    if places[0] < begin or (places[1:] < places[:-1]).any() or places[-1] > len(content):
        return "has strings outside of its buffer"
    return ""
