"""Checks over all samples, and the batches that are fed to a graph."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.data.singles import left_out
from mobileprep.data.source import Batch, Dataset, Unread
from mobileprep.errors import AccuracyError, MemoryLimitError
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import OverBudgetError, check_total
from mobileprep.runtime.sampling.first_ops import first_ops, value_ranges
from mobileprep.runtime.sampling.inputs import FedTensor

_LEAVE_OUT: Final = "leave them out of the data"
_MORE: Final = "100 that differ are usual"
# Fewer samples than this are not representative.
_FEW: Final = 10
# Noise check: number of images, their minimum size, channels, and the correlation limit.
_IMAGES: Final = 16
_SIDE: Final = 8
_CHANNELS: Final = (1, 3, 4)
_NOISE: Final = 0.1
# Scale check: values are suspicious if they exceed the expected ones by the factor _WIDER, or if
# an image input expects magnitudes of at least _BYTES but gets at most _SHARES.
_WIDER: Final = 8
_BYTES: Final = 128
_SHARES: Final = 2


@dataclass
class DataSurvey:
    """Statistics of the samples that were read; those of parts of the data can be merged.

    Args:
        data: the name of the data, for messages.
        unread: the unreadable samples.
        ends: the minimum and maximum of each input.
        elements: the number of elements of the largest batch.
        digests: a digest per sample, over all inputs.
        rotated: the images with an EXIF orientation, which decoders ignore.
        likeness: the correlation of neighboring pixels in some images: 0 for noise, 1 at most.
    """

    data: str
    unread: list[Unread] = field(default_factory=list)
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    elements: int = 0
    digests: list[str] = field(default_factory=list)
    rotated: list[str] = field(default_factory=list)
    likeness: list[float] = field(default_factory=list)

    def look(self, batch: Batch) -> None:
        """Add the samples of a batch.

        Raises:
            AccuracyError: a sample is NaN throughout.
        """
        self.digests += [_digest(batch, at) for at in range(len(batch.names))]
        self.rotated += batch.rotated
        for name, array in batch.feeds.items():
            if len(self.likeness) < _IMAGES:
                self.likeness += _likeness(array[: _IMAGES - len(self.likeness)])
            if array.dtype.kind not in "iufb":
                self.ends[name] = (0, 1)
                continue
            lost = _all_nan(array)
            if len(lost):
                message = f"{self.data}: {len(lost)} of {len(batch.names)} samples of {name!r} "
                message += f"are NaN throughout, the first of them {batch.names[lost[0]]}"
                raise AccuracyError(message, _LEAVE_OUT)
            self.elements = max(self.elements, array.size)
            self.note(name, array)

    def note(self, name: str, array: Array) -> None:
        """Extend the range of an input's values."""
        if array.size and array.dtype.kind in "iufb":
            ends = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
            self._widen(name, float(ends[0]), float(ends[1]))

    def merge(self, other: DataSurvey) -> None:
        """Add the statistics of the samples that follow."""
        self.unread += other.unread
        self.elements = max(self.elements, other.elements)
        self.digests += other.digests
        self.rotated += other.rotated
        self.likeness = (self.likeness + other.likeness)[:_IMAGES]
        for name, (low, high) in other.ends.items():
            self._widen(name, low, high)

    def check(self, count: int, warn: Callable[[str], None]) -> None:
        """Report problems of all ``count`` samples together."""
        if self.unread:
            warn(left_out(self.data, self.unread, count))
        self.check_spread()

    def check_spread(self) -> None:
        """Raise ``AccuracyError`` if every input has the same value in all samples."""
        if self.elements < 2 or any(low != high for low, high in self.ends.values()):
            return
        values = ", ".join(f"{name!r} is {low:g}" for name, (low, _) in self.ends.items())
        message = f"{self.data}: all samples hold one value: {values} throughout"
        raise AccuracyError(message, "name data that differs from sample to sample")

    def doubts(self, graph: Graph, inputs: Sequence[FedTensor]) -> Iterator[str]:
        """Yield reasons to doubt any run on these samples, one sentence each with its evidence.

        Args:
            graph: the source graph, whose first layers show the range that an input was trained
                with.
            inputs: the inputs of the graph.
        """
        if self.rotated:
            yield (
                f"{self.data}: {len(self.rotated)} of {len(self.digests)} images have an EXIF "
                f"orientation, such as {self.rotated[0]}; it is ignored, as TensorFlow's decoders "
                "do: rotate the pixels if the app feeds upright images"
            )
        for fed in inputs:
            if fed.name in self.ends:
                yield from _range_doubts(self.data, graph, fed, *self.ends[fed.name])

    def unscaled(self, graph: Graph, inputs: Sequence[FedTensor]) -> Iterator[str]:
        """Yield image inputs that are fed byte values although the graph does not show a range."""
        for fed in inputs:
            low, high = self.ends.get(fed.name, (0.0, 0.0))
            ops = first_ops(graph, fed.ref)
            is_image = fed.dtype.is_floating and ops.is_image
            if is_image and low >= 0 and _BYTES <= high < 256 and len(value_ranges(fed, ops)) > 1:
                yield f"the input {fed.name!r} is fed {low:.4g} to {high:.4g}"

    def calibration_doubts(self) -> Iterator[str]:
        """Yield reasons to doubt ranges that were calibrated on these samples."""
        count, distinct = len(self.digests), len(set(self.digests))
        if distinct <= count // 2:
            yield (
                f"{self.data}: only {distinct} of {count} samples are distinct, so the ranges are "
                f"those of {distinct}; {_MORE}"
            )
        elif count < _FEW:
            samples = "1 sample" if count == 1 else f"{count} samples"
            yield f"{self.data}: the ranges are those of {samples}; {_MORE}"
        likeness = float(np.mean(self.likeness)) if self.likeness else 1.0
        if abs(likeness) < _NOISE:
            yield (
                f"{self.data}: the images look like noise, because neighboring pixels correlate by "
                f"{likeness:.2f}; calibrate on images like those of the app"
            )

    def _widen(self, name: str, low: float, high: float) -> None:
        least, greatest = self.ends.get(name, (np.inf, -np.inf))
        self.ends[name] = min(least, low), max(greatest, high)


def _all_nan(array: Array) -> Array:
    """Return the indices of samples that are NaN throughout."""
    if array.dtype.kind != "f" or not array.size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isnan(array.reshape(len(array), -1)).all(axis=1))


def _digest(batch: Batch, at: int) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for name, array in sorted(batch.feeds.items()):
        part = np.asarray(array[at])
        is_object = part.dtype == object
        digest.update(f"{name} {part.shape} {part.dtype}".encode())
        digest.update(repr(part.tolist()).encode() if is_object else part.tobytes())
    return digest.hexdigest()


def _likeness(array: Array) -> list[float]:
    """Return the correlation of neighboring pixels in each image of a batch."""
    if array.ndim != 4 or array.dtype.kind not in "iuf":
        return []
    if array.shape[1] in _CHANNELS and array.shape[3] not in _CHANNELS:
        array = np.moveaxis(array, 1, 3)
    if array.shape[3] not in _CHANNELS or min(array.shape[1:3]) < _SIDE:
        return []
    correlations = []
    for image in array.astype(np.float64):
        if not np.isfinite(image).all():
            continue
        apart = image - image.mean(axis=(0, 1))
        power = float((apart * apart).mean())
        if power > 0:
            down = float((apart[1:] * apart[:-1]).mean()) / power
            across = float((apart[:, 1:] * apart[:, :-1]).mean()) / power
            correlations.append((down + across) / 2)
    return correlations


def _range_doubts(
    data: str, graph: Graph, fed: FedTensor, low: float, high: float
) -> Iterator[str]:
    """Yield a warning if an input is fed values of a different scale than the graph expects."""
    ops = first_ops(graph, fed.ref)
    if not fed.dtype.is_floating or not math.isfinite(low) or not math.isfinite(high):
        return
    expected = next(iter(value_ranges(fed, ops)))
    if not expected.is_of_graph:
        return
    most, largest = (max(abs(end) for end in ends) for ends in (expected.ends, (low, high)))
    # Audio and measurements can stay near zero for long; images do not.
    is_narrow = ops.is_image and most >= _BYTES and largest <= _SHARES
    if largest > _WIDER * most or is_narrow:
        yield (
            f"{data}: the input {fed.name!r} is fed values from {low:.4g} to {high:.4g}, and the "
            f"graph expects {expected}; look at the scale of the samples, such as 'mean' and 'std'"
        )


class FedRun(Struct, frozen=True):
    """The feeds of one run of a graph.

    Args:
        feeds: an array for each input, in the shape that the input expects.
        count: the number of samples.
        fed: the number of samples fed: more than ``count`` if the graph has a fixed batch size,
            which is filled by repeating the samples.
        labels: one entry per sample, or None if the data has no labels.
        names: the names of the samples, for messages.
        along: the inputs with samples along their first axis.
        fixed: whether the graph has a fixed batch size.
    """

    feeds: Mapping[str, Array]
    count: int
    fed: int
    labels: Array | None
    names: tuple[str, ...]
    along: frozenset[str] = frozenset()
    fixed: bool = False

    def head(self, count: int) -> FedRun:
        """Return the first ``count`` samples, unless the graph has a fixed batch size."""
        if self.fixed or count >= self.count:
            return self
        feeds = {name: a[:count] if name in self.along else a for name, a in self.feeds.items()}
        labels = None if self.labels is None else self.labels[:count]
        return replace(
            self, feeds=feeds, count=count, fed=count, labels=labels, names=self.names[:count]
        )


def runs(
    dataset: Dataset,
    inputs: Sequence[FedTensor],
    size: int,
    *,
    start: int = 0,
    stop: int | None = None,
    survey: DataSurvey | None = None,
) -> Iterator[FedRun]:
    """Yield the samples from ``start`` to ``stop`` of a dataset as feeds of a graph.

    An input with as many axes as its samples takes one sample at a time, so each sample is a run of
    its own. If other inputs take batches and the value is the same for all samples of a batch, it
    is fed once per batch.

    Args:
        dataset: the samples.
        inputs: the inputs of the graph.
        size: the batch size, unless the graph has a fixed one.
        start: the first sample.
        stop: the end of the samples; None for all.
        survey: collects statistics if these are not all samples; the caller checks it once it has
            merged all parts.
    """
    own = DataSurvey(dataset.name) if survey is None else survey
    unread = None if survey is None else survey.unread
    for batch in dataset.batches(run_size(inputs, size), start, stop, unread):
        own.look(batch)
        yield from _cut(batch, inputs)
    if survey is None:
        own.check_spread()


def run_size(inputs: Iterable[FedTensor], size: int) -> int:
    """Return the number of samples to read at once: the inputs' fixed batch size, or ``size``."""
    return _fixed(inputs) or size


def _fixed(inputs: Iterable[FedTensor]) -> int:
    """Return the batch size that the inputs' first axes require, or 0 for any size."""
    return next((fed.shape[0] for fed in inputs if fed.shape and fed.shape[0] > 0), 0)


def _cut(batch: Batch, inputs: Sequence[FedTensor]) -> Iterator[FedRun]:
    ranks = {fed.name: None if fed.shape is None else len(fed.shape) for fed in inputs}
    single = {name for name, array in batch.feeds.items() if array.ndim - 1 == ranks[name]}
    together = batch.feeds.keys() - single
    fixed = _fixed(fed for fed in inputs if fed.name in together)
    feeds = dict(batch.feeds)
    if not single:
        yield _whole(batch, feeds, together, fixed)
    elif together and all(_same(feeds[name]) for name in single):
        feeds |= {name: np.asarray(feeds[name][0]) for name in single}
        yield _whole(batch, feeds, together, fixed)
    else:
        yield from _apart(batch, single)


def _apart(batch: Batch, single: Container[str]) -> Iterator[FedRun]:
    for at, name in enumerate(batch.names):
        one = {
            n: np.asarray(array[at]) if n in single else array[at : at + 1]
            for n, array in batch.feeds.items()
        }
        labels = None if batch.labels is None else batch.labels[at : at + 1]
        yield FedRun(one, 1, 1, labels, (name,))


def _whole(batch: Batch, feeds: Mapping[str, Array], along: Set[str], fixed: int) -> FedRun:
    count = len(batch.names)
    fed = fixed or count
    if fed > count:
        _check_filled([feeds[name] for name in along], fed)
        filled = np.arange(fed) % count
        feeds = {name: a[filled] if name in along else a for name, a in feeds.items()}
    return FedRun(feeds, count, fed, batch.labels, batch.names, frozenset(along), bool(fixed))


def _check_filled(arrays: Iterable[Array], fed: int) -> None:
    """Raise ``MemoryLimitError`` if a fixed batch size is too large for the memory limit."""
    needed = fed * (np.dtype(np.intp).itemsize + sum(array[:1].nbytes for array in arrays))
    try:
        check_total(needed, f"a batch of {fed:,} samples, on which the inputs insist,")
    except OverBudgetError as error:
        raise MemoryLimitError(str(error), "let -1 be the first size of the inputs") from error


def _same(array: Array) -> bool:
    return bool((array == array[:1]).all())
