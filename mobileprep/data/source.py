"""Interfaces and helpers shared by the readers of samples."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.core.files import unreadable
from mobileprep.data.options import DataKind, Reading
from mobileprep.errors import AccuracyError, MobileprepError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import SWITCHES
from mobileprep.graph.refs import Ref, edge
from mobileprep.graph.tensor import Array
from mobileprep.ops.shape_function import is_full
from mobileprep.runtime.sampling.inputs import FedTensor, fed_tensors


class DataFiles(Struct, frozen=True):
    """Files of samples.

    Args:
        name: the name for messages.
        root: the file or directory.
        kind: the format; None to detect it from the content.
        reading: how files are converted to samples.
        labels: the file of labels, if any.
        classes: the file that lists the class names, if any.
    """

    name: str
    root: Path
    kind: DataKind | None = None
    reading: Reading = field(default_factory=Reading)
    labels: Path | None = None
    classes: Path | None = None


class SampleChoice(Struct, frozen=True):
    """Which samples to use.

    Args:
        samples: the number of samples; None for all.
        seed: draws one random sample from each of ``samples`` equal parts; None uses the first of
            each part.
        strict: whether an unreadable sample is an error.
        exactly: whether fewer than ``samples`` are an error.
    """

    samples: int | None = None
    seed: int | None = None
    strict: bool = False
    exactly: bool = True

    def indices(self, count: int, name: str) -> Sequence[int]:
        """Return the indices of the selected samples out of ``count``, in order."""
        if not count:
            raise no_samples(name)
        requested = count if self.samples is None else self.samples
        if requested > count and self.exactly:
            raise too_few(name, count, requested)
        if requested >= count:
            return range(count)
        return [self._nth(at, requested, count) for at in range(requested)]

    def _nth(self, at: int, requested: int, count: int) -> int:
        first, end = at * count // requested, (at + 1) * count // requested
        if self.seed is None:
            return first
        # A digest, because random number generators can change between releases.
        drawn = hashlib.sha256(f"{self.seed} {at}".encode()).digest()[:8]
        return first + int.from_bytes(drawn, "little") % (end - first)


class SampleSource(Protocol):
    """Samples in files, each read on demand, from any thread."""

    def __len__(self) -> int:
        """Return the number of samples in the files."""

    def read(self, indices: Sequence[int]) -> tuple[Batch | None, Sequence[Unread]]:
        """Read samples by index.

        Returns:
            A batch, or None if no sample can be read; and the unreadable samples.
        """


_HOW_TO_LABEL: Final = (
    "name the labels that it has by 'labels', or take a metric that needs none, such as 'agreement'"
)


class NoLabelsError(AccuracyError):
    """The data has no labels of the requested or a similar name.

    The default hint explains how to name labels, and which metrics do not need any.
    """

    def __init__(self, message: str = "", hint: str = "", where: str = "") -> None:
        super().__init__(message, hint or _HOW_TO_LABEL, where)


def no_samples(name: str, what: str = "samples") -> AccuracyError:
    """Return the error for data without samples."""
    return AccuracyError(f"{name} holds no {what}", "name data that has some")


def too_few(name: str, count: int, requested: int) -> AccuracyError:
    """Return the error for data with fewer samples than requested."""
    message = f"{name} has {count:,} samples, and {requested:,} are asked for"
    return AccuracyError(message, f"add samples, or write 'samples: {count}'")


def at_sample(error: MobileprepError, name: str) -> MobileprepError:
    """Return an error with the sample's name added to its location."""
    return error.at(f"{name}, {error.where}" if error.where else name)


def only_keys(keys: Mapping[str, object], names: Sequence[str], what: str) -> None:
    """Raise ``AccuracyError`` for names of inputs that the model does not have."""
    for name in keys:
        if name not in names:
            message = f"{what} names the input {name!r}; the model has {', '.join(names)}"
            raise AccuracyError(message, nearest_hint(name, names))


class Batch(Struct, frozen=True):
    """A batch of samples.

    Args:
        feeds: an array for each input, with samples along its first axis.
        labels: one entry per sample, or None if the data has no labels.
        names: the name of each sample, for messages: ``cats/1.jpg``, ``sample 3``.
        rotated: the names of images with an EXIF orientation.
    """

    feeds: Mapping[str, Array]
    labels: Array | None
    names: tuple[str, ...]
    rotated: tuple[str, ...] = ()


class Unread(Struct, frozen=True):
    """A sample that cannot be read, and the error."""

    name: str
    error: MobileprepError


class Dataset(Protocol):
    """Samples that are read on demand, in the same order each time."""

    @property
    def name(self) -> str:
        """The name for messages: the file or directory as written in the recipe."""

    def __len__(self) -> int:
        """Return the number of samples, including any that turn out to be unreadable."""

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        unread: list[Unread] | None = None,
    ) -> Iterator[Batch]:
        """Yield the samples from ``start`` to ``stop`` in batches of at most ``size``.

        Unreadable samples are skipped and added to ``unread``. Without such a list, one warning at
        the end reports them.
        """


# These ops read one file at a time, as a scalar string.
_ONE_FILE: Final = frozenset(
    {"DecodeWav", "DecodePng", "DecodeBmp", "DecodeJpeg", "DecodeImage", "DecodeGif"}
    | {"DecodeAndCropJpeg", "ParseSingleExample"}
)


def data_inputs(
    graph: Graph, names: Iterable[str], declared: Mapping[str, TensorShape]
) -> list[FedTensor]:
    """Return the tensors with these names, with shapes inferred where they are unknown.

    An input that is decoded as a file, and a predicate of a branch, are scalars.
    """
    return [_sharpened(graph, fed) for fed in fed_tensors(graph, names, declared)]


def _decides(graph: Graph, ref: Ref) -> bool:
    """Return whether a tensor is the predicate of a Switch, as created by ``tf.cond``."""
    readers = (node for node in graph.consumers.get(ref.node, ()) if node.op in SWITCHES)
    return any(edge(node.data_inputs[1]) == edge(ref) for node in readers)


def _sharpened(graph: Graph, fed: FedTensor) -> FedTensor:
    if fed.shape is not None:
        return fed
    if fed.dtype is DType.BOOL:
        return replace(fed, shape=()) if _decides(graph, fed.ref) else fed
    if fed.dtype is not DType.STRING:
        return fed
    from mobileprep.runtime.sampling.first_ops import first_ops  # few graphs have string inputs

    reader = first_ops(graph, fed.ref).file
    is_one = reader is not None and reader.op in _ONE_FILE
    return replace(fed, shape=()) if is_one else fed


def only_input(inputs: Sequence[FedTensor], named: str | None, data: str) -> FedTensor:
    """Return the one input that is fed from a file format with a single array."""
    names = [fed.name for fed in inputs]
    if not inputs:
        message = "no inputs are named, so no data can be fed"
        raise AccuracyError(message, "list the model's under 'inputs'")
    for fed in inputs:
        if named in (fed.name, str(fed.ref)) and len(inputs) == 1:
            return fed
    if named is not None and named not in names:
        message = f"{data} is for the input {named!r}; the model has {', '.join(names)}"
        raise AccuracyError(message, nearest_hint(named, names))
    if len(inputs) > 1:
        message = f"{data} feeds one input, and the model has {', '.join(names)}"
        raise AccuracyError(message, "use an .npz file, a TFRecord or a Python function")
    return inputs[0]


def fitted(array: Array, fed: FedTensor, name: str) -> Array:
    """Return a sample in the shape of an input, with or without the input's first axis.

    If necessary, drops a last axis of size 1 (single-channel audio), or reshapes a vector to the
    input's shape.

    Raises:
        AccuracyError: the dtype or shape does not match the input.
    """
    fits = _typed(array, fed)
    if fits is None:
        message = f"{name}: the input {fed.name!r} takes {fed.dtype.short}, "
        message += f"and the sample is {array.dtype}"
        raise AccuracyError(message, "save samples in the type that the model takes")
    if fed.shape is None:
        return fits
    shape = tuple(fed.shape)
    flat = fits[..., 0] if fits.ndim and fits.shape[-1] == 1 else fits
    for candidate in (fits, flat):
        if _matches(candidate.shape, shape) or (shape and _matches(candidate.shape, shape[1:])):
            return candidate
    if shape and fits.ndim == 1 and is_full(shape[1:]) and fits.size == math.prod(shape[1:]):
        return fits.reshape(shape[1:])
    sizes = ", ".join("?" if size < 0 else str(size) for size in shape)
    message = f"{name}: the input {fed.name!r} takes the shape [{sizes}], "
    message += f"and the sample has {list(array.shape)}"
    raise AccuracyError(message, "make samples as the model takes them, the first axis left out")


def _typed(array: Array, fed: FedTensor) -> Array | None:
    """Cast an array to the input's dtype if the kinds match; otherwise return None."""
    if fed.dtype is DType.STRING or array.dtype.kind in "OSU":
        return array if fed.dtype is DType.STRING and array.dtype.kind in "OSU" else None
    dtype = fed.dtype.numpy
    if dtype is None:
        return array
    fits = np.can_cast(array.dtype, dtype, "same_kind")
    return array.astype(dtype, copy=False) if fits else None


def _matches(actual: Sequence[int], expected: Sequence[int]) -> bool:
    return len(actual) == len(expected) and all(
        w in (-1, f) for w, f in zip(expected, actual, strict=True)
    )


def files_below(root: Path, suffixes: Collection[str] = ()) -> list[str]:
    """List the files below a directory as sorted relative paths with ``/``.

    Hidden files and directories (names that start with a dot) and symlinked directories are
    skipped.
    """
    paths: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(folder).relative_to(root)
        paths += [
            (below / name).as_posix()
            for name in names
            if not name.startswith(".") and (not suffixes or Path(name).suffix.lower() in suffixes)
        ]
    return sorted(paths)


def _refuse(error: OSError) -> None:
    raise unreadable(Path(str(error.filename)), error) from error
