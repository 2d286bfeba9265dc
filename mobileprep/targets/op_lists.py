"""Pairs of op and kernel class, from the flag ``default_ops`` or from JSON files."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from mobileprep.core.files import read_bytes
from mobileprep.errors import CorruptFileError, UsageError

_LARGEST_FILE: Final = 1 << 24
_EXAMPLE: Final = 'such as [["Add", "BinaryOp<CPUDevice, functor::add<float>>"], ["NoOp", "NoOp"]]'


class OpKernel(Struct, frozen=True):
    """An op to register, and the class of its kernel.

    ``kernel`` is spelled as in the kernel's registration. None registers only the op.
    """

    op: str
    kernel: str | None = None


class RegisteredOps(Struct, frozen=True):
    """Contents of a registration header: some ops and kernel classes, or everything."""

    ops: Container[str] = ()
    kernels: Container[str] = ()
    everything: bool = False


DEFAULT_OPS: Final = (
    OpKernel("NoOp", "NoOp"),
    OpKernel("_Recv", "RecvOp"),
    OpKernel("_Send", "SendOp"),
)
"""Ops that every TensorFlow session needs, regardless of the graph."""


def parse_default_ops(text: str) -> tuple[OpKernel, ...]:
    """Parse ``Op:Kernel,Op:Kernel``. An empty string has no pairs.

    Commas inside angle brackets and colons after the first one are part of the class.

    Raises:
        UsageError: a pair is malformed.
    """
    pairs = []
    for part in _split(text):
        op, colon, kernel = (piece.strip() for piece in part.partition(":"))
        if not (colon and _is_name(op) and _is_name(kernel)):
            message = f"{part.strip()!r} is not a pair of an op and its kernel class"
            raise UsageError(message, "write 'Op:KernelClass,Op:KernelClass'")
        pairs.append(OpKernel(op, kernel))
    return tuple(pairs)


def read_ops_list(path: Path) -> tuple[OpKernel, ...]:
    """Read pairs from a JSON file. An empty or null class registers only the op.

    Raises:
        CorruptFileError: the file is malformed.
    """
    file, hint = str(path), f"give a JSON list, {_EXAMPLE}"
    try:
        listed = json.loads(read_bytes(path, limit=_LARGEST_FILE).decode("utf-8"))
    except UnicodeDecodeError as error:
        where = f"{file}, byte {error.start}"
        message = "is not valid UTF-8"
        raise CorruptFileError(message, hint, where) from error
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}:{error.colno}"
        message = f"is not JSON: {error.msg}"
        raise CorruptFileError(message, hint, where) from error
    except ValueError as error:
        message = "has a number of more digits than can be read"
        raise CorruptFileError(message, hint, file) from error
    except RecursionError as error:
        message = "is nested too deeply"
        raise CorruptFileError(message, hint, file) from error
    if not isinstance(listed, list):
        message = "is not a list of pairs"
        raise CorruptFileError(message, hint, file)
    return tuple(_pair(entry, f"{file}, entry {i}") for i, entry in enumerate(listed, 1))


def _pair(entry: Any, where: str) -> OpKernel:  # noqa: ANN401 - any JSON
    if isinstance(entry, list) and len(entry) == 2:
        op, kernel = entry
        if _is_name(op) and (not kernel or _is_name(kernel)):
            return OpKernel(op, kernel or None)
    message = "is not a pair of an op and its kernel class"
    raise CorruptFileError(message, f"give a JSON list, {_EXAMPLE}", where)


def _is_name(text: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether a string needs no escapes in a C++ literal."""
    if not isinstance(text, str) or not text:
        return False
    return text.isascii() and text.isprintable() and not set(text) & {'"', "\\"}


def _split(text: str) -> Iterator[str]:
    """Split a string at commas outside angle brackets."""
    depth = start = 0
    for i, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "," and depth <= 0:
            yield text[start:i]
            start = i + 1
    if text[start:].strip():
        yield text[start:]
