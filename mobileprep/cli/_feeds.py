"""From ``name=file`` on the command line to the array that a tensor is fed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mobileprep.cli._tensors import TensorInfo, tensor_info
from mobileprep.errors import CorruptFileError, UnsupportedError, UsageError, nearest_hint
from mobileprep.formats.arrays import read_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.fsio import read_bytes
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.actions import edge
from mobileprep.ops.engines.subgraph import known_ref
from mobileprep.ops.feeds import converted
from mobileprep.ops.photos import Normalization, picture
from mobileprep.ops.selection import PLACEHOLDERS, needed_nodes
from mobileprep.ops.wav import decode_wav

_RANDOM = "random"
_ARRAYS = frozenset({".npy", ".npz"})
_NPZ = ".npz"
_MEMBER = f"{_NPZ}:"
_PICTURES = frozenset({".jpg", ".jpeg", ".png", ".gif", ".bmp"})
_MOST_BYTES = 1 << 31
_SIDE = 299


@dataclass(frozen=True)
class FeedOptions:
    """How files become arrays.

    Args:
        width, height: of pictures in pixels; None for what the placeholder says, or else 299.
        mean, std: what pictures are normalized with.
        seed: of random arrays.
    """

    width: int | None = None
    height: int | None = None
    mean: float = 0.0
    std: float = 255.0
    seed: int = 0


def split_feed(text: str) -> tuple[str, str]:
    """``name=what`` in two.

    Raises:
        UsageError: there is no equals sign, or nothing on one of its sides.
    """
    name, equals, what = text.partition("=")
    if not (name and equals and what):
        message = f"--feed takes name=file, name=number or name=random, and got {text!r}"
        raise UsageError(message)
    return name, what


def read_feed(graph: Graph, name: str, what: str, options: FeedOptions) -> Array:
    """The array that a tensor is fed.

    Args:
        graph: the graph.
        name: the tensor's.
        what: "random", "random:1,224,224,3", a number or several, "true", "false", or a file:
            ``.npy``, ``.npz`` (the array of the tensor's name, or the only one), ``x.npz:name``,
            a picture, ``.wav``. A tensor of text is fed the bytes of the file.
        options: see there.

    Raises:
        UsageError: the tensor is not in the graph, or the file does not suit it.
        CorruptFileError: the file is missing or damaged.
        UnsupportedError: the file needs a library that is not installed, or has samples of
            another width than 16 bits.
    """
    tensor = tensor_info(graph, name)
    if what == _RANDOM or what.startswith(f"{_RANDOM}:"):
        return _random(tensor, what[len(_RANDOM) + 1 :], options.seed)
    numbers = _numbers(what)
    if numbers is not None and tensor.dtype is not DType.STRING:
        return _written(tensor, numbers)
    archive, colon, member = what.rpartition(_MEMBER)
    if colon and member:
        return converted(_from_arrays(Path(archive + _NPZ), member), tensor.dtype)
    path = Path(what)
    kind = path.suffix.lower()
    if kind in _ARRAYS:
        return converted(_from_arrays(path, name), tensor.dtype)
    data = read_bytes(path, limit=_MOST_BYTES)
    if tensor.dtype is DType.STRING:
        return np.array(data, dtype=object)
    try:
        if kind in _PICTURES:
            return _picture(tensor, data, options)
        if kind == ".wav":
            return _samples(tensor, data)
    except (CorruptFileError, UnsupportedError) as error:
        place = f"{what}, {error.where}" if error.where else what
        raise type(error)(error.message, error.hint, place) from error
    message = f"{name!r} cannot be fed {what!r}: a file's kind is told by the end of its name"
    hint = "use .npy, .npz, .wav, .png, .jpg, .gif, .bmp, a number, or 'random'"
    raise UsageError(message, hint)


def check_fed(graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str], where: str) -> None:
    """Make sure that every placeholder that is needed is fed.

    Args:
        graph: the graph.
        feeds: what is fed.
        fetches: what is to be computed.
        where: what the graph is called.

    Raises:
        UsageError: one is not, with its type and shape; or a name is not in the graph.
    """
    wanted = [known_ref(graph, name, "fetch", where) for name in fetches]
    fed = {edge(known_ref(graph, name, "feed", where)) for name in feeds}
    needed = needed_nodes(graph, wanted, fed, where)
    unfed = [tensor_info(graph, n.name) for n in needed if n.op in PLACEHOLDERS]
    if unfed:
        told = ", ".join(f"{t.name!r} ({t})" for t in unfed)
        message = f"nothing is fed to the placeholder{'s' * (len(unfed) > 1)} {told}"
        hint = f"add --feed {unfed[0].name}=FILE; a number or 'random' may stand for the file"
        raise UsageError(message, hint, where)


def _numbers(text: str) -> list[float] | None:
    """The numbers of a text such as ``1``, ``0.5,2`` or ``true``; None where it is no such text."""
    truth = {"true": 1.0, "false": 0.0}.get(text.lower())
    if truth is not None:
        return [truth]
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return None


def _written(tensor: TensorInfo, numbers: Sequence[float]) -> Array:
    """Numbers in the type of the tensor; one fills its whole shape where that is known."""
    shape = tuple(max(d, 1) for d in tensor.shape or ())
    kind = tensor.dtype.numpy if tensor.dtype is not None else np.dtype(np.float32)
    given = np.array(numbers)
    with np.errstate(all="ignore"):
        values = given if kind is None else given.astype(kind)
    if kind is None or (kind.kind in "biu" and np.any(values != given)):
        told = ", ".join(f"{n:g}" for n in numbers)
        message = f"{tensor.name!r} takes {tensor.dtype.short if tensor.dtype else ''}, not {told}"
        raise UsageError(message, "write numbers of that type, or name a file")
    if len(numbers) == 1:
        _check_size(shape)
        return np.full(shape, values[0], kind)
    return values.reshape(shape if math.prod(shape) == len(numbers) else (-1,))


def _check_size(shape: tuple[int, ...]) -> None:
    if math.prod(shape) * 8 > _MOST_BYTES:
        message = f"numbers of shape {list(shape)} are too many"
        raise UsageError(message, "give a smaller shape")


def _random(tensor: TensorInfo, dims: str, seed: int) -> Array:
    """Seeded random numbers: from 0 to 1, integers from 0 to 9, or truth values."""
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


def _from_arrays(path: Path, name: str) -> Array:
    arrays = read_arrays(path)
    for known in (name, str(parse_ref(name))):
        if known in arrays:
            return arrays[known]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    message = f"has no array {name!r}; it has {', '.join(sorted(arrays)) or 'none'}"
    usual = f"name one: {path}:{min(arrays)}" if arrays else ""
    raise UsageError(message, nearest_hint(name, arrays) or usual, str(path))


def _picture(tensor: TensorInfo, data: bytes, options: FeedOptions) -> Array:
    """A picture as [1, height, width, 3], or without the first where the placeholder has three."""
    sizes = tensor.shape or ()
    one = len(sizes) == 3
    known = (1, *sizes) if one else sizes if len(sizes) == 4 else (-1,) * 4
    height = options.height or (known[1] if known[1] > 0 else _SIDE)
    width = options.width or (known[2] if known[2] > 0 else _SIDE)
    if tensor.dtype is DType.UINT8:
        # A network that takes bytes normalizes them itself.
        plain = picture(data, Normalization(height, width, 0.0, 1.0))
        found = np.clip(np.rint(plain), 0, 255).astype(np.uint8)
    else:
        found = picture(data, Normalization(height, width, options.mean, options.std))
    return found[0] if one else found


def _samples(tensor: TensorInfo, data: bytes) -> Array:
    """Samples from -1 to 1: [samples, channels], or as many as the placeholder's shape holds."""
    samples, _ = decode_wav(data)
    shape = tensor.shape
    if shape is None or min(shape, default=0) < 0 or samples.shape[1] != 1:
        return samples
    out = np.zeros(math.prod(shape), np.float32)
    count = min(out.size, len(samples))
    out[:count] = samples[:count, 0]
    return out.reshape(shape)
