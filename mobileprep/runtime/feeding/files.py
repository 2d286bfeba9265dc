"""Files as inputs of tensors: arrays, images, audio, and several of them as one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from mobileprep.core.files import read_bytes
from mobileprep.errors import CorruptFileError, UnsupportedError, UsageError, named, nearest_hint
from mobileprep.formats.arrays import read_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.reachability import placeholders
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.image_files import Normalization, load_image
from mobileprep.ops.numerics.texts import decode_wav
from mobileprep.runtime.interpreter import converted

_ARRAYS = frozenset({".npy", ".npz"})


_NPZ = ".npz"


_MEMBER = f"{_NPZ}:"


_IMAGES = frozenset({".jpg", ".jpeg", ".png", ".gif", ".bmp"})


_AUDIO = ".wav"


_KNOWN = _ARRAYS | _IMAGES | {_AUDIO}


_PATTERN = frozenset("*?[")


_MOST_BYTES = 1 << 31


_MOST_FILES = 100_000


_SIDE = 299


_ONE_BY_ONE = "give --each to run the graph once for each file"


class FeedOptions(Struct, frozen=True):
    """Options for the conversion of files to arrays.

    Args:
        width, height: of images in pixels; None for the sizes of the placeholder, or else 299.
        mean, std: normalization of images.
        seed: of random arrays.
    """

    width: int | None = None
    height: int | None = None
    mean: float = 0.0
    std: float = 255.0
    seed: int = 0


def several_files(what: str) -> list[str] | None:
    """Return the files of a pattern, a directory, or a comma-separated list; None for one file."""
    path = Path(what)
    if path.is_dir():
        files = [str(p) for p in sorted(path.iterdir()) if p.suffix.lower() in _KNOWN]
        return _some(files, f"the folder {what!r} holds no file that can be fed")
    if path.exists():
        return None
    parts = [part.strip() for part in what.split(",")]
    if len(parts) > 1 and all(Path(p).suffix.lower() in _KNOWN or Path(p).exists() for p in parts):
        return parts
    if _PATTERN & set(what):
        root = Path(path.anchor)
        files = sorted(str(p) for p in root.glob(str(path.relative_to(root))) if p.is_file())
        return _some(files, f"no file fits the pattern {what!r}")
    return None


def from_file(tensor: TensorInfo, what: str, options: FeedOptions) -> Array:
    """Read the array for a tensor from one file."""
    archive, colon, member = what.rpartition(_MEMBER)
    if colon and member:
        return converted(_from_arrays(Path(archive + _NPZ), member), tensor.dtype)
    path = Path(what)
    kind = path.suffix.lower()
    if kind in _ARRAYS:
        return converted(_from_arrays(path, tensor.name), tensor.dtype)
    if tensor.dtype is DType.STRING:
        return _contents(tensor, path)
    data = read_bytes(path, limit=_MOST_BYTES)
    try:
        if kind in _IMAGES:
            return _image(tensor, data, options)
        if kind == _AUDIO:
            return _samples(tensor, data)
    except (CorruptFileError, UnsupportedError) as error:
        place = f"{what}, {error.where}" if error.where else what
        raise error.at(place) from error
    message = f"{tensor.name!r} cannot be fed {what!r}: the extension determines the format"
    hint = "use .npy, .npz, .wav, .png, .jpg, .gif, .bmp, a number, or 'random'"
    raise UsageError(message, hint)


def batch_of(tensor: TensorInfo, files: Sequence[str], options: FeedOptions) -> Array:
    """Read several files as one batch.

    Arrays with all axes of the tensor are concatenated along the first axis. Scalars and arrays
    that lack an axis are stacked.
    """
    arrays: list[Array] = []
    size = 0
    for file in files:
        arrays.append(from_file(tensor, file, options))
        first, last = arrays[0].shape, arrays[-1].shape
        if last[1:] != first[1:] or len(last) != len(first):
            message = f"{file} has the shape {list(last)}, and {files[0]} {list(first)}"
            raise UsageError(message, f"{_ONE_BY_ONE}: they do not form a batch")
        size += arrays[-1].nbytes
        if size > _MOST_BYTES:
            message = f"the {len(files)} files for {tensor.name!r} are too much for one batch"
            raise UsageError(message, _ONE_BY_ONE)
    shape = arrays[0].shape
    lacks_one = tensor.shape is not None and len(tensor.shape) == len(shape) + 1
    batch = np.stack(arrays) if lacks_one or not shape else np.concatenate(arrays)
    if tensor.shape is not None and not _takes(tensor.shape, batch):
        message = f"{tensor.name!r} ({tensor}) does not take {len(files)} files at a time"
        raise UsageError(message, _ONE_BY_ONE)
    return batch


def _takes(shape: tuple[int, ...], batch: Array) -> bool:
    return len(shape) == batch.ndim and shape[0] in (-1, len(batch))


def _some(files: list[str], message: str) -> list[str]:
    if not files:
        raise UsageError(message, "name files, a pattern such as 'photos/*.jpg', or their folder")
    if len(files) > _MOST_FILES:
        more = f"{len(files):,} files are more than the {_MOST_FILES:,} that one call takes"
        raise UsageError(more, "name a part of them with a pattern")
    return files


def _contents(tensor: TensorInfo, path: Path) -> Array:
    """Return the bytes of a file, with the tensor's rank."""
    try:
        data = read_bytes(path, limit=_MOST_BYTES)
    except CorruptFileError as error:
        hint = f"for a text itself write {tensor.name}=text:..."
        raise CorruptFileError(error.message, hint, error.where) from error
    contents = np.array(data, dtype=object)
    one = all(d in (-1, 1) for d in tensor.shape or ())
    return contents.reshape((1,) * len(tensor.shape or ())) if one else contents


def _from_arrays(path: Path, name: str) -> Array:
    arrays = read_arrays(path)
    for key in (name, str(parse_ref(name))):
        if key in arrays:
            return arrays[key]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    message = f"has no array {name!r}; it has {named(sorted(arrays))}"
    usual = f"name one: {path}:{min(arrays)}" if arrays else ""
    raise UsageError(message, nearest_hint(name, arrays) or usual, str(path))


def _image(tensor: TensorInfo, data: bytes, options: FeedOptions) -> Array:
    """Load an image as [1, height, width, 3], or without the first axis for a rank of 3."""
    sizes = tensor.shape or ()
    one = len(sizes) == 3
    dims = (1, *sizes) if one else sizes if len(sizes) == 4 else (-1,) * 4
    height = options.height or (dims[1] if dims[1] > 0 else _SIDE)
    width = options.width or (dims[2] if dims[2] > 0 else _SIDE)
    if tensor.dtype is DType.UINT8:
        # A network with byte inputs normalizes them itself.
        plain = load_image(data, Normalization(height, width, 0.0, 1.0))
        image = np.clip(np.rint(plain), 0, 255).astype(np.uint8)
    else:
        image = load_image(data, Normalization(height, width, options.mean, options.std))
    return image[0] if one else image


def _samples(tensor: TensorInfo, data: bytes) -> Array:
    """Load audio from -1 to 1: [samples, channels], or padded to the placeholder's shape."""
    samples, _ = decode_wav(data)
    shape = tensor.shape
    if shape is None or min(shape, default=0) < 0 or samples.shape[1] != 1:
        return samples
    out = np.zeros(math.prod(shape), np.float32)
    count = min(out.size, len(samples))
    out[:count] = samples[:count, 0]
    return out.reshape(shape)


class TensorInfo(Struct, frozen=True):
    """A tensor's name, type, and shape, as far as the graph declares them.

    Args:
        name: as the user wrote it.
        dtype: None if the op is unknown.
        shape: None for an unknown rank, -1 for an unknown size.
    """

    name: str
    dtype: DType | None
    shape: TensorShape

    def __str__(self) -> str:
        """Format the type and shape: ``float32[?, 784]``."""
        kind = self.dtype.short if self.dtype is not None else "unknown type"
        if self.shape is None:
            return f"{kind} of unknown shape"
        return f"{kind}[{', '.join('?' if d < 0 else str(d) for d in self.shape)}]"


def tensor_info(graph: Graph, name: str) -> TensorInfo:
    """Look up a tensor."""
    ref = parse_ref(name)
    node = graph.get(ref.node)
    if node is None or ref.is_control:
        message = f"the graph has no tensor {name!r}"
        usual = f"its placeholders are {', '.join(placeholders(graph)[:5]) or 'none'}"
        raise UsageError(message, nearest_hint(ref.node, graph.by_name) or usual)
    # Old graphs use an empty shape for an unknown one.
    shape = (node.attr_shape("shape") or None) if node.op in PLACEHOLDERS else None
    return TensorInfo(name, tensor_dtype(graph, ref), shape)
