"""What a reader of samples is given, and what it gives."""

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
        name: what messages call them.
        root: the file or folder.
        kind: what it is; None where its content tells.
        reading: how it becomes samples.
        labels: the file of labels, where there is one.
        classes: the file that lists the names of the classes, where there is one.
    """

    name: str
    root: Path
    kind: DataKind | None = None
    reading: Reading = field(default_factory=Reading)
    labels: Path | None = None
    classes: Path | None = None


class SampleChoice(Struct, frozen=True):
    """Which samples are taken.

    Args:
        samples: how many; None for all.
        seed: draws them; None takes the first of each of as many equal parts.
        strict: whether one that cannot be read is an error.
        exactly: whether fewer than ``samples`` are an error.
    """

    samples: int | None = None
    seed: int | None = None
    strict: bool = False
    exactly: bool = True

    def indices(self, count: int, name: str) -> Sequence[int]:
        """The samples out of ``count``, in order."""
        if not count:
            raise no_samples(name)
        wanted = count if self.samples is None else self.samples
        if wanted > count and self.exactly:
            raise too_few(name, count, wanted)
        if wanted >= count:
            return range(count)
        return [self._nth(at, wanted, count) for at in range(wanted)]

    def _nth(self, at: int, wanted: int, count: int) -> int:
        first, end = at * count // wanted, (at + 1) * count // wanted
        if self.seed is None:
            return first
        # A digest, since generators of random numbers change from release to release.
        drawn = hashlib.sha256(f"{self.seed} {at}".encode()).digest()[:8]
        return first + int.from_bytes(drawn, "little") % (end - first)


class SampleSource(Protocol):
    """Samples in files, each read when it is asked for, from any thread."""

    def __len__(self) -> int:
        """How many samples the files hold."""

    def read(self, indices: Sequence[int]) -> tuple[Batch | None, Sequence[Unread]]:
        """Samples by number, and those that cannot be read; None where that is all of them."""


_HOW_TO_LABEL: Final = (
    "name the labels that it has by 'labels', or take a metric that needs none, such as 'agreement'"
)


class NoLabelsError(AccuracyError):
    """The data has no labels of the name that is asked for, nor any of nearly that name.

    Without a hint of its own, it tells how labels are named and how to do without.
    """

    def __init__(self, message: str = "", hint: str = "", where: str = "") -> None:
        super().__init__(message, hint or _HOW_TO_LABEL, where)


def no_samples(name: str, what: str = "samples") -> AccuracyError:
    """The error for data without anything to read."""
    return AccuracyError(f"{name} holds no {what}", "name data that has some")


def too_few(name: str, count: int, wanted: int) -> AccuracyError:
    """The error for data with fewer samples than are asked for."""
    message = f"{name} has {count:,} samples, and {wanted:,} are asked for"
    return AccuracyError(message, f"add samples, or write 'samples: {count}'")


def at_sample(error: MobileprepError, name: str) -> MobileprepError:
    """An error about a sample, naming it."""
    return error.at(f"{name}, {error.where}" if error.where else name)


def only_keys(given: Mapping[str, object], known: Sequence[str], what: str) -> None:
    """Refuse names of inputs that the model does not have."""
    for name in given:
        if name not in known:
            message = f"{what} names the input {name!r}; the model has {', '.join(known)}"
            raise AccuracyError(message, nearest_hint(name, known))


class Batch(Struct, frozen=True):
    """Some samples.

    Args:
        feeds: an array for each input, the samples along its first axis.
        labels: an entry for each sample, or None where the data has none.
        names: what each sample is called, for messages: ``cats/1.jpg``, ``sample 3``.
        rotated: the names of pictures with an EXIF orientation.
    """

    feeds: Mapping[str, Array]
    labels: Array | None
    names: tuple[str, ...]
    rotated: tuple[str, ...] = ()


class Unread(Struct, frozen=True):
    """A sample that cannot be read, and why."""

    name: str
    error: MobileprepError


class Dataset(Protocol):
    """Samples that are read when they are asked for, the same ones in the same order each time."""

    @property
    def name(self) -> str:
        """What messages call the data: the file or folder as the recipe names it."""

    def __len__(self) -> int:
        """How many samples there are; one that turns out to be unreadable counts."""

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        unread: list[Unread] | None = None,
    ) -> Iterator[Batch]:
        """The samples ``start`` to ``stop``, ``size`` at a time; a batch may be smaller.

        Samples that cannot be read are left out, and added to ``unread``; without such a list,
        there is one warning at the end.
        """


# These read one file at a time, a text without axes.
_ONE_FILE: Final = frozenset(
    {"DecodeWav", "DecodePng", "DecodeBmp", "DecodeJpeg", "DecodeImage", "DecodeGif"}
    | {"DecodeAndCropJpeg", "ParseSingleExample"}
)


def data_inputs(
    graph: Graph, names: Iterable[str], declared: Mapping[str, TensorShape]
) -> list[FedTensor]:
    """The tensors of these names. Of those without a known shape, one that a file is decoded from
    takes one file at a time, and one that decides on a branch is a scalar.
    """
    return [_sharpened(graph, fed) for fed in fed_tensors(graph, names, declared)]


def _decides(graph: Graph, ref: Ref) -> bool:
    """Whether a tensor is the predicate of a Switch, as ``tf.cond`` makes it."""
    readers = (node for node in graph.consumers.get(ref.node, ()) if node.op in SWITCHES)
    return any(edge(node.data_inputs[1]) == edge(ref) for node in readers)


def _sharpened(graph: Graph, fed: FedTensor) -> FedTensor:
    if fed.shape is not None:
        return fed
    if fed.dtype is DType.BOOL:
        return replace(fed, shape=()) if _decides(graph, fed.ref) else fed
    if fed.dtype is not DType.STRING:
        return fed
    from mobileprep.runtime.sampling.first_ops import first_ops  # few graphs take texts

    reader = first_ops(graph, fed.ref).file
    is_one = reader is not None and reader.op in _ONE_FILE
    return replace(fed, shape=()) if is_one else fed


def only_input(inputs: Sequence[FedTensor], named: str | None, data: str) -> FedTensor:
    """The one input that data of a single kind is for."""
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
    """A sample as an input takes it: with or without the input's first axis, see ``is_single``.

    A last axis of one, as sounds of one channel have it, goes where the input has none; a row of
    numbers takes the input's shape.
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
    for found in (fits, flat):
        if _matches(found.shape, shape) or (shape and _matches(found.shape, shape[1:])):
            return found
    if shape and fits.ndim == 1 and is_full(shape[1:]) and fits.size == math.prod(shape[1:]):
        return fits.reshape(shape[1:])
    told = ", ".join("?" if size < 0 else str(size) for size in shape)
    message = f"{name}: the input {fed.name!r} takes the shape [{told}], "
    message += f"and the sample has {list(array.shape)}"
    raise AccuracyError(message, "make samples as the model takes them, the first axis left out")


def _typed(array: Array, fed: FedTensor) -> Array | None:
    """An array in an input's type, where that is a matter of width; None where it is not."""
    if fed.dtype is DType.STRING or array.dtype.kind in "OSU":
        return array if fed.dtype is DType.STRING and array.dtype.kind in "OSU" else None
    wanted = fed.dtype.numpy
    if wanted is None:
        return array
    fits = np.can_cast(array.dtype, wanted, "same_kind")
    return array.astype(wanted, copy=False) if fits else None


def _matches(found: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(found) == len(wanted) and all(
        w in (-1, f) for w, f in zip(wanted, found, strict=True)
    )


def files_below(root: Path, suffixes: Collection[str] = ()) -> list[str]:
    """The names of the files below a folder, with ``/``, sorted.

    Hidden files and folders, whose names start with a dot, are passed over, and folders that a
    link leads to.
    """
    found: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(folder).relative_to(root)
        found += [
            (below / name).as_posix()
            for name in names
            if not name.startswith(".") and (not suffixes or Path(name).suffix.lower() in suffixes)
        ]
    return sorted(found)


def _refuse(error: OSError) -> None:
    raise unreadable(Path(str(error.filename)), error) from error
