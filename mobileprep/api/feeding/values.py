"""Values that stand on the command line: numbers, lists, texts, random numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.api.feeding.tensors import TensorInfo
from mobileprep.core.files import read_bytes
from mobileprep.core.limits import memory_limit
from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import MAX_AXES
from mobileprep.numerics.texts import as_texts

_MOST_BYTES = 1 << 31
_MOST_WRITTEN = 1 << 26
_SHOWN = 4
_MOST_AXES = 32
_TRUTHS = {"true": True, "false": False}


def written(tensor: TensorInfo, what: str) -> Array | None:
    """The numbers of a text such as ``1``, ``0.5,2``, ``true`` or ``[[1, 2], [3, 4]]``.

    Lists may hold texts too. None where it is no such text.

    Raises:
        UsageError: it is, and the tensor takes no such values.
    """
    if what.lstrip().startswith("["):
        values = _parsed(what)
        return None if values is None else _listed(tensor, values)
    if tensor.dtype is DType.STRING:
        return None
    numbers = _numbers(what)
    return None if numbers is None else _filled(tensor, _typed(tensor, numbers))


def text_value(tensor: TensorInfo, text: str) -> Array:
    """A text, which fills the whole shape of the tensor where that is known.

    Raises:
        UsageError: the tensor takes no texts.
    """
    return _filled(tensor, _typed(tensor, [text]))


def value_in(tensor: TensorInfo, file: str) -> Array:
    """The value that is written in a file: as on the command line, or a text.

    Raises:
        UsageError: the file holds no value for the tensor.
        CorruptFileError: it is missing, or beyond all measure.
    """
    data = read_bytes(Path(file), limit=_MOST_WRITTEN)
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    found = written(tensor, text.strip())
    if found is not None:
        return found
    if tensor.dtype is DType.STRING:
        return text_value(tensor, text.removesuffix("\n").removesuffix("\r"))
    message = f"holds no value for {tensor.name!r} ({tensor})"
    raise UsageError(message, "write numbers with commas, or a list as JSON has it", file)


def random_values(tensor: TensorInfo, dims: str, seed: int) -> Array:
    """Seeded random numbers: from 0 to 1, integers from 0 to 9, or truth values.

    Args:
        tensor: what they are for.
        dims: the sizes, with commas; empty for the tensor's own, unknown ones as 1.
        seed: the seed.

    Raises:
        UsageError: the shape is none, or is not known, or the tensor holds no numbers.
    """
    shape = _parsed_shape(dims) if dims else tuple(max(d, 1) for d in tensor.shape or ())
    if not dims and tensor.shape is None:
        message = f"the shape of {tensor.name!r} is not known"
        hint = f"give it, --feed {tensor.name}=random:1,224,224,3, or a number, {tensor.name}=1"
        raise UsageError(message, hint)
    kind = tensor.dtype.numpy if tensor.dtype is not None else np.dtype(np.float32)
    if kind is None:
        message = f"{tensor.name!r} holds {tensor.dtype.short if tensor.dtype else 'nothing'}"
        raise UsageError(message, "random numbers are no value for it: name a file")
    _check_size(shape)
    generator = np.random.default_rng(seed)
    if tensor.dtype is None or tensor.dtype.is_floating or kind.kind == "c":
        return generator.random(shape).astype(kind)
    return generator.integers(0, 2 if kind.kind == "b" else 10, shape).astype(kind)


def _numbers(text: str) -> list[float] | None:
    truth = _TRUTHS.get(text.lower())
    if truth is not None:
        return [truth]
    try:
        return [_number(part) for part in text.split(",")]
    except ValueError:
        return None


def _number(text: str) -> float:
    """A number; whole ones with all their digits, which a float has not."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _parsed(text: str) -> list[Any] | None:
    """A list as JSON has it; None for a text that only begins like one."""
    try:
        values = json.loads(text)
    except ValueError:
        return None
    except RecursionError as error:
        raise _too_deep() from error
    return values if isinstance(values, list) else None


def _listed(tensor: TensorInfo, values: list[Any]) -> Array:
    shape = _shape_of(tensor, values)
    flat: list[Any] = values
    for _ in shape[1:]:
        flat = [value for row in flat for value in row]
    return _typed(tensor, flat).reshape(shape)


def _shape_of(tensor: TensorInfo, values: list[Any]) -> tuple[int, ...]:
    """The sizes of nested lists, all of which are alike.

    Raises:
        UsageError: they are not.
    """
    shape: list[int] = []
    level: list[Any] = [values]
    while any(isinstance(value, list) for value in level):
        if len(shape) == _MOST_AXES:
            raise _too_deep()
        lengths = {len(v) if isinstance(v, list) else -1 for v in level}
        if len(lengths) > 1:
            message = f"the lists for {tensor.name!r} differ in length at depth {len(shape) + 1}"
            raise UsageError(message, "give each row as many values as the others")
        shape += lengths
        level = [inner for value in level for inner in value]
    return tuple(shape)


def _too_deep() -> UsageError:
    message = "the list is nested too deeply"
    return UsageError(message, f"a tensor has at most {_MOST_AXES} axes here; name an .npy file")


def _typed(tensor: TensorInfo, values: Sequence[Any]) -> Array:
    """Values in the type of the tensor, in a row.

    Raises:
        UsageError: it takes no such values.
    """
    if tensor.dtype is DType.STRING:
        if all(isinstance(value, str) for value in values):
            return as_texts([v.encode("utf-8", "surrogateescape") for v in values], (len(values),))
        raise _unfit(tensor, values)
    kind = tensor.dtype.numpy if tensor.dtype is not None else np.dtype(np.float32)
    given = np.array(values) if values else np.zeros(0)
    if kind is None or given.dtype.kind not in "biuf":
        raise _unfit(tensor, values)
    with np.errstate(all="ignore"):
        typed = given.astype(kind)
    if kind.kind in "biu" and any(int(t) != v for t, v in zip(typed.tolist(), values, strict=True)):
        raise _unfit(tensor, values)
    return typed


def _unfit(tensor: TensorInfo, values: Sequence[Any]) -> UsageError:
    told = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values[:_SHOWN])
    more = ", ..." if len(values) > _SHOWN else ""
    kind = tensor.dtype.short if tensor.dtype else ""
    message = f"{tensor.name!r} takes {kind}, not {told}{more}"
    if tensor.dtype is DType.STRING:
        hint = f"write {tensor.name}=text:... or a list of texts, or name a file"
        return UsageError(message, hint)
    return UsageError(message, "write numbers of that type, or name a file")


def _filled(tensor: TensorInfo, values: Array) -> Array:
    """Values in the tensor's shape; a single one stands for all."""
    shape = tuple(max(d, 1) for d in tensor.shape or ())
    if values.size == 1:
        _check_size(shape)
        return np.full(shape, values[0], values.dtype)
    return values.reshape(shape if math.prod(shape) == values.size else (-1,))


def _check_size(shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_AXES:
        message = f"a tensor of {len(shape)} axes, and numpy's arrays have at most {MAX_AXES}"
        raise UsageError(message, "give fewer sizes")
    # They are drawn and written as 64 bits each.
    if math.prod(shape) * 8 > min(_MOST_BYTES, memory_limit()):
        message = f"numbers of shape {list(shape)} are too many"
        raise UsageError(message, "give a smaller shape, or allow more memory")


def _parsed_shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(d) for d in text.split(","))
    except ValueError as error:
        message = f"{text!r} is no shape"
        raise UsageError(message, "write sizes with commas: random:1,224,224,3") from error
    if min(shape) < 0:
        message = f"the shape {text!r} has a negative size"
        raise UsageError(message, "write every size: random:1,224,224,3")
    return shape
