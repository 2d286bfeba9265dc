"""Conversion of ``name=what`` on the command line to the array that a tensor is fed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from mobileprep.core.files import read_bytes
from mobileprep.core.limits import memory_limit
from mobileprep.errors import InvalidGraphError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.refs import edge
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import MAX_AXES
from mobileprep.ops.numerics.texts import as_texts
from mobileprep.runtime.engines.subgraph import known_ref
from mobileprep.runtime.feeding.files import (
    FeedOptions,
    TensorInfo,
    batch_of,
    from_file,
    several_files,
    tensor_info,
)
from mobileprep.runtime.selection import needed_nodes

_RANDOM = "random"


_TEXT = "text:"


_WRITTEN_IN = "@"


def split_feed(text: str) -> tuple[str, str]:
    """Split ``name=what``."""
    name, equals, what = text.partition("=")
    if not (name and equals and what):
        message = f"--feed takes name=file, name=number or name=random, and got {text!r}"
        raise UsageError(message)
    return name, what


def files_of(what: str) -> list[str] | None:
    """Return the files of a feed that names several; None for one file or any other value."""
    is_list = what.startswith("[") and what.endswith("]")
    if is_list or what == _RANDOM or what.startswith((f"{_RANDOM}:", _TEXT, _WRITTEN_IN)):
        return None
    return several_files(what)


def read_feed(graph: Graph, name: str, what: str, options: FeedOptions) -> Array:
    """Create the array that a tensor is fed.

    Args:
        what: "random", "random:1,224,224,3", one or several numbers, "true", "false", a JSON list,
            "text:" and a string, "@" and a file that contains any of these, or a file: ``.npy``,
            ``.npz`` (the array of the tensor's name, or the only one), ``x.npz:name``, an image, or
            ``.wav``. A string tensor is fed the bytes of the file. Several files, separated by
            commas, as a pattern, or as a directory, become one batch.

    Raises:
        UsageError: the value does not fit the tensor.
    """
    tensor = tensor_info(graph, name)
    if what == _RANDOM or what.startswith(f"{_RANDOM}:"):
        return random_values(tensor, what[len(_RANDOM) + 1 :], options.seed)
    if what.startswith(_TEXT):
        return text_value(tensor, what.removeprefix(_TEXT))
    if what.startswith(_WRITTEN_IN):
        return value_in(tensor, what.removeprefix(_WRITTEN_IN))
    value = written(tensor, what)
    if value is not None:
        return value
    files = files_of(what)
    if files is None:
        return from_file(tensor, what, options)
    return batch_of(tensor, files, options)


def check_fed(graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str], where: str) -> None:
    """Raise an error unless every required placeholder is fed."""
    refs = [known_ref(graph, name, "fetch", where) for name in fetches]
    fed = {edge(known_ref(graph, name, "feed", where)) for name in feeds}
    needed = needed_nodes(graph, refs, fed, where)
    unfed = [tensor_info(graph, n.name) for n in needed if n.op in PLACEHOLDERS]
    if unfed:
        tensors = ", ".join(f"{t.name!r} ({t})" for t in unfed)
        message = f"nothing is fed to the placeholder{'s' * (len(unfed) > 1)} {tensors}"
        hint = f"feed it; --feed {unfed[0].name}=FILE takes a number or 'random' for the file too"
        raise UsageError(message, hint, where)


def with_fed_shapes(
    error: InvalidGraphError, graph: Graph, feeds: Mapping[str, Array]
) -> InvalidGraphError:
    """Extend a run's error by the shapes of feeds for which the graph does not record one."""
    shapes = [
        f"{name!r} is fed {'a scalar' if not array.ndim else f'the shape {list(array.shape)}'}"
        for name, array in feeds.items()
        if tensor_info(graph, name).shape is None
    ]
    if not shapes:
        return error
    note = f"the graph does not record its shape: {', '.join(shapes)}"
    return error.at(error.where, hint=f"{error.hint}; {note}")


_MOST_BYTES = 1 << 31


_MOST_WRITTEN = 1 << 26


_SHOWN = 4


_MOST_AXES = 32


_TRUTHS = {"true": True, "false": False}


def written(tensor: TensorInfo, what: str) -> Array | None:
    """Parse numbers such as ``1``, ``0.5,2``, ``true``, or ``[[1, 2], [3, 4]]``.

    Lists may contain strings, too. Return None if it is not such a string.
    """
    if what.lstrip().startswith("["):
        values = _parsed(what)
        return None if values is None else _listed(tensor, values)
    if tensor.dtype is DType.STRING:
        return None
    numbers = _numbers(what)
    return None if numbers is None else _filled(tensor, _typed(tensor, numbers))


def text_value(tensor: TensorInfo, text: str) -> Array:
    """Create a string tensor that fills the whole shape of the tensor, if known."""
    return _filled(tensor, _typed(tensor, [text]))


def value_in(tensor: TensorInfo, file: str) -> Array:
    """Read a value from a file: as on the command line, or a string."""
    data = read_bytes(Path(file), limit=_MOST_WRITTEN)
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    value = written(tensor, text.strip())
    if value is not None:
        return value
    if tensor.dtype is DType.STRING:
        return text_value(tensor, text.removesuffix("\n").removesuffix("\r"))
    message = f"holds no value for {tensor.name!r} ({tensor})"
    raise UsageError(message, "write numbers with commas, or a list as JSON has it", file)


def random_values(tensor: TensorInfo, dims: str, seed: int) -> Array:
    """Draw seeded random numbers: from 0 to 1, integers from 0 to 9, or booleans.

    Args:
        dims: comma-separated sizes; empty for the tensor's own, with 1 for unknown ones.
    """
    shape = _parsed_shape(dims) if dims else tuple(max(d, 1) for d in tensor.shape or ())
    if not dims and tensor.shape is None:
        message = f"the shape of {tensor.name!r} is not known"
        hint = f"give it, --feed {tensor.name}=random:1,224,224,3, or a number, {tensor.name}=1"
        raise UsageError(message, hint)
    kind = tensor.dtype.numpy if tensor.dtype is not None else np.dtype(np.float32)
    if kind is None:
        message = f"{tensor.name!r} holds {tensor.dtype.short if tensor.dtype else 'nothing'}"
        raise UsageError(message, "random numbers are not a value for it: name a file")
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
    """Parse a number; integers keep all their digits, unlike floats."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _parsed(text: str) -> list[Any] | None:
    """Parse a JSON list; None for a string that only begins like one."""
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
    """Return the sizes of nested lists, which must be regular."""
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
    """Convert values to the type of the tensor, as a vector."""
    if tensor.dtype is DType.STRING:
        if all(isinstance(value, str) for value in values):
            return as_texts([v.encode("utf-8", "surrogateescape") for v in values], (len(values),))
        raise _unfit(tensor, values)
    kind = tensor.dtype.numpy if tensor.dtype is not None else np.dtype(np.float32)
    array = np.array(values) if values else np.zeros(0)
    if kind is None or array.dtype.kind not in "biuf":
        raise _unfit(tensor, values)
    with np.errstate(all="ignore"):
        typed = array.astype(kind)
    if kind.kind in "biu" and any(int(t) != v for t, v in zip(typed.tolist(), values, strict=True)):
        raise _unfit(tensor, values)
    return typed


def _unfit(tensor: TensorInfo, values: Sequence[Any]) -> UsageError:
    shown = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values[:_SHOWN])
    more = ", ..." if len(values) > _SHOWN else ""
    kind = tensor.dtype.short if tensor.dtype else ""
    message = f"{tensor.name!r} takes {kind}, not {shown}{more}"
    if tensor.dtype is DType.STRING:
        hint = f"write {tensor.name}=text:... or a list of strings, or name a file"
        return UsageError(message, hint)
    return UsageError(message, "write numbers of that type, or name a file")


def _filled(tensor: TensorInfo, values: Array) -> Array:
    """Reshape values to the tensor's shape; a single one is repeated."""
    shape = tuple(max(d, 1) for d in tensor.shape or ())
    if values.size == 1:
        _check_size(shape)
        return np.full(shape, values[0], values.dtype)
    return values.reshape(shape if math.prod(shape) == values.size else (-1,))


def _check_size(shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_AXES:
        message = f"a tensor of {len(shape)} axes, and numpy's arrays have at most {MAX_AXES}"
        raise UsageError(message, "give fewer sizes")
    # They are drawn and parsed as 64 bits each.
    if math.prod(shape) * 8 > min(_MOST_BYTES, memory_limit()):
        message = f"numbers of shape {list(shape)} are too many"
        raise UsageError(message, "give a smaller shape, or allow more memory")


def _parsed_shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(d) for d in text.split(","))
    except ValueError as error:
        message = f"{text!r} is not a shape"
        raise UsageError(message, "write sizes with commas: random:1,224,224,3") from error
    if min(shape) < 0:
        message = f"the shape {text!r} has a negative size"
        raise UsageError(message, "write every size: random:1,224,224,3")
    return shape


class Round(Struct, frozen=True):
    """One run of a graph.

    Args:
        feeds: the feed of each tensor, in the form of ``read_feed``.
        title: the files of this run alone, or an empty string if there is one run.
    """

    feeds: Mapping[str, str]
    title: str = ""


def named_feeds(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``name=what`` arguments into a dictionary."""
    feeds: dict[str, str] = {}
    for text in texts:
        name, what = split_feed(text)
        if name in feeds:
            message = f"{name!r} is fed twice"
            raise UsageError(message, f"name several files in one: {name}=a.png,b.png")
        feeds[name] = what
    return feeds


def rounds(feeds: Mapping[str, str], apart: Sequence[str]) -> list[Round]:
    """Return the runs for some feeds.

    Args:
        apart: names of feeds whose files are run one by one.
    """
    lists = {name: files for name in apart if (files := files_of(feeds[name])) is not None}
    if not lists:
        return [Round(feeds)]
    counts = {name: len(files) for name, files in lists.items()}
    if len(set(counts.values())) > 1:
        summary = " and ".join(f"{count} files for {name!r}" for name, count in counts.items())
        message = f"there are {summary}, which do not go together"
        raise UsageError(message, "give as many files for each")
    return [
        Round({**feeds, **dict(zip(lists, files, strict=True))}, ", ".join(files))
        for files in zip(*lists.values(), strict=True)
    ]
