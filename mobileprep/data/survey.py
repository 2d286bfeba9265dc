"""What is to be known of samples as a whole: whether they differ, and which cannot be read."""

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
# Fewer samples than this leave much to chance.
_FEW: Final = 10
# How many pictures are looked at for noise, how large they are at least, and what is noise.
_PICTURES: Final = 16
_SIDE: Final = 8
_CHANNELS: Final = (1, 3, 4)
_NOISE: Final = 0.1
# How much larger than expected values have another scale; what of bytes is from 0 to 1 has too.
_WIDER: Final = 8
_BYTES: Final = 128
_SHARES: Final = 2


@dataclass
class DataSurvey:
    """Notes on the samples that were read; those on parts of the data add up to those on all.

    Args:
        data: what messages call the data.
        unread: the samples that cannot be read.
        ends: the least and the greatest value of each input.
        elements: of the largest batch.
        digests: of each sample, all inputs together.
        rotated: the pictures with an EXIF orientation, which decoders ignore.
        likeness: of some pictures, how far pixels are like their neighbors: 0 in noise, 1 at most.
    """

    data: str
    unread: list[Unread] = field(default_factory=list)
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    elements: int = 0
    digests: list[str] = field(default_factory=list)
    rotated: list[str] = field(default_factory=list)
    likeness: list[float] = field(default_factory=list)

    def look(self, batch: Batch) -> None:
        """Take note of samples."""
        self.digests += [_digest(batch, at) for at in range(len(batch.names))]
        self.rotated += batch.rotated
        for name, array in batch.feeds.items():
            if len(self.likeness) < _PICTURES:
                self.likeness += _likeness(array[: _PICTURES - len(self.likeness)])
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
        """Take note of the range of an input's values."""
        if array.size and array.dtype.kind in "iufb":
            ends = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
            self._widen(name, float(ends[0]), float(ends[1]))

    def merge(self, other: DataSurvey) -> None:
        """Add the notes on samples that come after these."""
        self.unread += other.unread
        self.elements = max(self.elements, other.elements)
        self.digests += other.digests
        self.rotated += other.rotated
        self.likeness = (self.likeness + other.likeness)[:_PICTURES]
        for name, (low, high) in other.ends.items():
            self._widen(name, low, high)

    def check(self, count: int, warn: Callable[[str], None]) -> None:
        """Tell what is to be told of all ``count`` samples together."""
        if self.unread:
            warn(left_out(self.data, self.unread, count))
        self.check_spread()

    def check_spread(self) -> None:
        """Make sure that some input has two values."""
        if self.elements < 2 or any(low != high for low, high in self.ends.values()):
            return
        told = ", ".join(f"{name!r} is {low:g}" for name, (low, _) in self.ends.items())
        message = f"{self.data}: all samples hold one value: {told} throughout"
        raise AccuracyError(message, "name data that differs from sample to sample")

    def doubts(self, graph: Graph, inputs: Sequence[FedTensor]) -> Iterator[str]:
        """What makes any run on these samples doubtful, a sentence each with its evidence.

        Args:
            graph: the source, whose first layers show the range that an input was trained with.
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
        """Inputs of pictures that are fed bytes' values, where the graph shows no range."""
        for fed in inputs:
            low, high = self.ends.get(fed.name, (0.0, 0.0))
            ops = first_ops(graph, fed.ref)
            is_picture = fed.dtype.is_floating and ops.is_picture
            if is_picture and low >= 0 and _BYTES <= high < 256 and len(value_ranges(fed, ops)) > 1:
                yield f"the input {fed.name!r} is fed {low:.4g} to {high:.4g}"

    def calibration_doubts(self) -> Iterator[str]:
        """What makes ranges that were measured on these samples doubtful."""
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
    """The samples that have no number at all."""
    if array.dtype.kind != "f" or not array.size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isnan(array.reshape(len(array), -1)).all(axis=1))


def _digest(batch: Batch, at: int) -> str:
    """A digest of one sample."""
    found = hashlib.blake2b(digest_size=6)
    for name, array in sorted(batch.feeds.items()):
        part = np.asarray(array[at])
        is_object = part.dtype == object
        found.update(f"{name} {part.shape} {part.dtype}".encode())
        found.update(repr(part.tolist()).encode() if is_object else part.tobytes())
    return found.hexdigest()


def _likeness(array: Array) -> list[float]:
    """The correlation of neighboring pixels in each of some pictures."""
    if array.ndim != 4 or array.dtype.kind not in "iuf":
        return []
    if array.shape[1] in _CHANNELS and array.shape[3] not in _CHANNELS:
        array = np.moveaxis(array, 1, 3)
    if array.shape[3] not in _CHANNELS or min(array.shape[1:3]) < _SIDE:
        return []
    found = []
    for picture in array.astype(np.float64):
        if not np.isfinite(picture).all():
            continue
        apart = picture - picture.mean(axis=(0, 1))
        power = float((apart * apart).mean())
        if power > 0:
            down = float((apart[1:] * apart[:-1]).mean()) / power
            across = float((apart[:, 1:] * apart[:, :-1]).mean()) / power
            found.append((down + across) / 2)
    return found


def _range_doubts(
    data: str, graph: Graph, fed: FedTensor, low: float, high: float
) -> Iterator[str]:
    """That an input is fed values of another scale than the graph shows."""
    ops = first_ops(graph, fed.ref)
    if not fed.dtype.is_floating or not math.isfinite(low) or not math.isfinite(high):
        return
    expected = next(iter(value_ranges(fed, ops)))
    if not expected.is_of_graph:
        return
    most, found = (max(abs(end) for end in ends) for ends in (expected.ends, (low, high)))
    # Sounds and measurements may be quiet for long; pictures are not.
    is_narrow = ops.is_picture and most >= _BYTES and found <= _SHARES
    if found > _WIDER * most or is_narrow:
        yield (
            f"{data}: the input {fed.name!r} is fed values from {low:.4g} to {high:.4g}, and the "
            f"graph expects {expected}; look at the scale of the samples, such as 'mean' and 'std'"
        )


class FedRun(Struct, frozen=True):
    """What a graph is fed once.

    Args:
        feeds: an array for each input, as the input takes it.
        count: how many samples are in it.
        fed: how many it is fed: more than ``count`` where the graph insists on a size, the first
            samples of the run being repeated.
        labels: an entry for each sample, or None where the data has none.
        names: of the samples, for messages.
        along: the inputs that have the samples along their first axis.
        fixed: whether the graph insists on ``fed``.
    """

    feeds: Mapping[str, Array]
    count: int
    fed: int
    labels: Array | None
    names: tuple[str, ...]
    along: frozenset[str] = frozenset()
    fixed: bool = False

    def head(self, count: int) -> FedRun:
        """The first samples of it, where the graph takes fewer."""
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
    """The samples ``start`` to ``stop`` of a data set, as a graph takes them.

    An input whose samples have as many axes as it has takes one sample at a time, which then holds
    for all; but a value that is the same for all samples of a batch, beside an input that takes
    batches, is fed once.

    Args:
        size: how many samples are fed at once, where the graph does not say.
        survey: takes note of the samples, where these are not all of them: the caller checks it
            once it has them together.
    """
    own = DataSurvey(dataset.name) if survey is None else survey
    unread = None if survey is None else survey.unread
    for batch in dataset.batches(run_size(inputs, size), start, stop, unread):
        own.look(batch)
        yield from _cut(batch, inputs)
    if survey is None:
        own.check_spread()


def run_size(inputs: Iterable[FedTensor], size: int) -> int:
    """How many samples are read at once: what the inputs insist on, or else ``size``."""
    return _fixed(inputs) or size


def _fixed(inputs: Iterable[FedTensor]) -> int:
    """How many samples inputs insist on by their first axes, or 0 for any number."""
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
    """Refuse batches that inputs insist on and no machine holds, however few the samples."""
    wanted = fed * (np.dtype(np.intp).itemsize + sum(array[:1].nbytes for array in arrays))
    try:
        check_total(wanted, f"a batch of {fed:,} samples, on which the inputs insist,")
    except OverBudgetError as error:
        raise MemoryLimitError(str(error), "let -1 be the first size of the inputs") from error


def _same(array: Array) -> bool:
    return bool((array == array[:1]).all())
