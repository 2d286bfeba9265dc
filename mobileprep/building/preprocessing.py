"""Find the preprocessing of images that a classifier was trained with, from labeled samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.data.opening import open_dataset
from mobileprep.data.options import Channels, Reading
from mobileprep.data.source import DataFiles, SampleChoice
from mobileprep.data.survey import FedRun, runs
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.inspection.costs import node_flops
from mobileprep.ops.numerics.texts import class_count
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.runtime.engines.agreement import Engine
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.sampling.inputs import FedTensor, fed_tensors

_BYTES: Final = 255.0
_BATCH: Final = 4
# Samples for all combinations and for the best of them, and the number of the best scalings.
_FIRST: Final = (4, 16)
_ALL: Final = 64
_BEST: Final = 3
# Floating-point operations in total, about 40 seconds; images cost the same in each combination.
_BUDGET: Final = 2.5e12
# Probability of a result by chance, below which it is clear.
_CHANCE: Final = 0.05
_OFFSETS: Final = (0, 1, -1)


class Scaling(Struct, frozen=True):
    """A scaling of pixel values of 0 to 255: ``(value - mean) / std``, channels in order RGB."""

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def applied(self, pixels: Array, *, is_reversed: bool) -> Array:
        """Scale pixels whose last axis is the channels; ``is_reversed`` for BGR."""
        mean, std = (np.array(v[::-1] if is_reversed else v, np.float32) for v in self.values)
        return ((pixels - mean) / std).astype(np.float32)

    @property
    def values(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.mean, self.std


SCALINGS: Final = (
    Scaling("0 to 1", (0.0,), (255.0,)),
    Scaling("-1 to 1", (127.5,), (127.5,)),
    Scaling("0 to 255", (0.0,), (1.0,)),
    Scaling("ImageNet mean and std", (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    Scaling("ImageNet mean", (123.68, 116.779, 103.939), (1.0,)),
)


class Trial(Struct, frozen=True):
    """Predictions with one preprocessing.

    Args:
        scaling: scaling of pixels.
        channels: order of the channels.
        offset: difference between the model's class and the label.
        hits: whether the prediction of each sample is right.
    """

    scaling: Scaling
    channels: Channels
    offset: int
    hits: tuple[bool, ...]

    @property
    def accuracy(self) -> float:
        return sum(self.hits) / len(self.hits)

    @property
    def ordered(self) -> tuple[str, str]:
        """Mean and standard deviation as YAML, in the order of the channels."""
        step = -1 if self.channels == "bgr" else 1
        lists = ([f"{v:g}" for v in values[::step]] for values in self.scaling.values)
        mean, std = (v[0] if len(v) == 1 else f"[{', '.join(v)}]" for v in lists)
        return mean, std

    def is_clearly_better(self, other: Trial) -> bool:
        """Return whether the difference is not chance, by a sign test on the common samples."""
        pairs = list(zip(self.hits, other.hits, strict=False))
        wins, losses = (sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs))
        return _tail(wins, wins + losses, 0.5) < _CHANCE


class PreprocessingFit(Struct, frozen=True):
    """The preprocessing that fits the samples best.

    Args:
        trials: the best label offset of each scaling and order of channels, best first.
        choice: the best trial; None if it is not clear.
        stored: name of the scaling of an array's values; empty for image files.
        doubt: reason for the missing choice, or the unclear part of it; empty otherwise.
    """

    trials: tuple[Trial, ...]
    choice: Trial | None
    stored: str = ""
    doubt: str = ""

    def table(self) -> Iterator[str]:
        """Yield lines for printing: a header, and a line for each trial."""
        if not self.trials:
            return
        yield "scaling                channels   class    top-1  samples"
        for trial in self.trials:
            first = "label" if not trial.offset else f"label {trial.offset:+d}"
            yield (
                f"{trial.scaling.name:21}  {trial.channels:9}  {first:8} {trial.accuracy:.3f}"
                f"  {len(trial.hits):7}"
            )


def find_preprocessing(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str], data: DataFiles, labels: str
) -> PreprocessingFit | None:
    """Run a classifier of images with the usual scalings, orders of channels, and label offsets.

    All combinations see a few samples, and the best scalings see more.

    Args:
        graph: a frozen graph.
        inputs: its inputs.
        outputs: its outputs; the first with a score for each class counts.
        data: directory of images, or arrays.
        labels: name of the array of labels; unused for images.

    Returns:
        The result, or None if the model does not classify images, or the samples have no labels.

    Raises:
        MobileprepError: the data cannot be read, or the graph cannot be run.
    """
    fed = fed_tensors(graph, inputs)
    if len(fed) != 1 or not _takes_images(fed[0]):
        return None
    orders: tuple[Channels, ...] = (
        ("rgb", "bgr") if (fed[0].shape or ())[-1:] == (3,) else ("grayscale",)
    )
    images = _images(data, fed[0], labels, orders[0])
    return None if images is None else _Search(graph, fed[0], outputs, orders, images).run()


def _takes_images(fed: FedTensor) -> bool:
    shape = fed.shape or ()
    return fed.dtype is DType.FLOAT and len(shape) == 4 and shape[-1] in (1, 3)


class _Search:
    def __init__(
        self,
        graph: Graph,
        fed: FedTensor,
        outputs: Sequence[str],
        orders: Sequence[Channels],
        images: _Images,
    ) -> None:
        self._fed = fed
        self._outputs = tuple(outputs)
        self._engine: Engine = open_engine("numpy", graph, None, where="the model")
        self._flops = _flops(graph, fed)
        self._orders = orders
        self._images = images
        self._classes = 0

    def run(self) -> PreprocessingFit | None:
        """Return the result; None without class scores or labels."""
        width = len(self._orders)
        scalings = [s for s in SCALINGS if width > 1 or len(s.mean) == 1]
        ways = list(itertools.product(scalings, self._orders))
        budget = _BUDGET / self._flops
        first = int(min(max(budget * 0.6 / len(ways), _FIRST[0]), _FIRST[1]))
        more = int(min(max(budget * 0.4 / (_BEST + 1), first), _ALL))
        trials = [t for way in ways if (t := self._trial(*way, first)) is not None]
        if not trials and self._classes:
            labels = self._images.labels
            ends = f"labels are {labels.min()} to {labels.max()}"
            doubt = f"{ends}, and the model has {self._classes} classes"
            return PreprocessingFit((), None, self._images.stored, doubt)
        if not trials:
            return None
        trials.sort(key=lambda t: -t.accuracy)
        best = trials[0]
        rivals = [t for t in _each_scaling(trials) if not best.is_clearly_better(t)][:_BEST]
        rivals += [t for t in trials[1:] if t.scaling == best.scaling]
        longer = [self._trial(t.scaling, t.channels, more) or t for t in rivals]
        longer.sort(key=lambda t: -t.accuracy)
        return self._judged([*longer, *(t for t in trials if t not in rivals)])

    def _judged(self, trials: list[Trial]) -> PreprocessingFit:
        best, count = trials[0], len(trials[0].hits)
        labels = self._images.labels[:count]
        share = max(int(n) for n in np.unique(labels, return_counts=True)[1]) / len(labels)
        chance = max(1 / self._classes, share)
        if _tail(sum(best.hits), count, chance) >= _CHANCE / (len(trials) * len(_OFFSETS)):
            doubt = f"no preprocessing is clearly better than chance, which is {chance:.3f}"
            return PreprocessingFit(tuple(trials), None, self._images.stored, doubt)
        rivals = [t for t in _each_scaling(trials)[1:] if not best.is_clearly_better(t)]
        if rivals:
            names = ", ".join(t.scaling.name for t in rivals)
            doubt = f"{best.scaling.name} is not clearly better than {names} on {count} samples"
            return PreprocessingFit(tuple(trials), None, self._images.stored, doubt)
        same = [t for t in trials[1:] if t.scaling == best.scaling]
        orders = [t for t in same if not best.is_clearly_better(t)]
        if not orders:
            return PreprocessingFit(tuple(trials), best, self._images.stored)
        plain = next((t for t in (best, *orders) if t.channels != "bgr"), best)
        doubt = "the order of channels makes no clear difference"
        return PreprocessingFit(tuple(trials), plain, self._images.stored, doubt)

    def _trial(self, scaling: Scaling, channels: Channels, count: int) -> Trial | None:
        predictions: list[Array] = []
        for run in self._images.batches:
            if sum(map(len, predictions)) >= count:
                break
            scores = self._scores(run, scaling, is_reversed=channels == "bgr")
            if scores is None:
                return None
            predictions.append(np.argmax(scores, axis=1))
        classes = np.concatenate(predictions)
        labels = self._images.labels
        gaps = classes - labels[: len(classes)]
        trials = [
            Trial(scaling, channels, offset, tuple(bool(hit) for hit in gaps == offset))
            for offset in _OFFSETS
            if labels.min() + offset >= 0 and labels.max() + offset < self._classes
        ]
        return max(trials, key=lambda t: t.accuracy, default=None)

    def _scores(self, run: FedRun, scaling: Scaling, *, is_reversed: bool) -> Array | None:
        """Return the scores [samples, classes] of a batch; None if no output has scores."""
        pixels = run.feeds[self._fed.name]
        values = pixels[..., ::-1] if is_reversed else pixels
        fed = scaling.applied(values, is_reversed=is_reversed)
        feeds = {self._fed.name: np.ascontiguousarray(fed)}
        for output in self._engine.run(self._outputs, feeds):
            is_batched = output.ndim and len(output) == run.fed and output.dtype.kind in "iuf"
            classes = class_count(output.shape) if is_batched else None
            if classes is not None and classes > 1:
                self._classes = classes
                return output[: run.count].reshape(run.count, -1)
        return None


def _each_scaling(trials: Sequence[Trial]) -> list[Trial]:
    """Return the first trial of each scaling."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(trial.scaling.name, trial)
    return list(first.values())


class _Images(Struct, frozen=True):
    """Labeled images as batches for a graph, with values of 0 to 255.

    ``stored`` is the name of the scaling that the values of an array have; empty for image files.
    """

    batches: tuple[FedRun, ...]
    labels: Array
    stored: str


def _images(data: DataFiles, fed: FedTensor, labels: str, channels: Channels) -> _Images | None:
    """Read images in random order; return None if they have no labels, or another scaling."""
    if data.kind == "pictures":
        reading = Reading(mean=(0.0,), std=(1.0,), channels=channels)
        data = replace(data, reading=reading)
    choice = SampleChoice(_ALL, seed=1, exactly=False)
    dataset = open_dataset(data, [fed], choice, labels=labels, labeled=True)
    batches = list(runs(dataset, [fed], _BATCH))
    classes = [_classes(batch) for batch in batches]
    values = [batch.feeds[fed.name].astype(np.float32) for batch in batches]
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    if any(c is None for c in classes) or not -1 <= low <= high <= _BYTES or low < 0 < 1 < high:
        return None
    if data.kind == "pictures" or high > 1:
        stored = SCALINGS[2]
    else:
        stored = SCALINGS[1] if low < 0 else SCALINGS[0]
    # Samples are often sorted by class.
    order = np.random.default_rng(1).permutation(len(batches))
    mean, std = stored.mean[0], stored.std[0]
    return _Images(
        tuple(replace(batches[i], feeds={fed.name: values[i] * std + mean}) for i in order),
        np.concatenate([c for i in order if (c := classes[i]) is not None]),
        "" if data.kind == "pictures" else stored.name,
    )


def _classes(batch: FedRun) -> Array | None:
    labels = batch.labels
    if labels is None or labels.dtype.kind not in "iu" or labels.size != batch.count:
        return None
    return labels.reshape(-1).astype(np.int64)


def _flops(graph: Graph, fed: FedTensor) -> float:
    """Return the operations for one image; 1 if they are not known."""
    shape = tuple(1 if size < 0 else size for size in fed.shape or ())
    shapes = infer_shapes(graph, {fed.name: shape})
    return max(sum(node_flops(graph, shapes).values()) / max(shape[0], 1), 1.0)


def _tail(hits: int, count: int, chance: float) -> float:
    """Return the probability of at least this many hits by chance (binomial distribution)."""
    return sum(
        math.comb(count, k) * chance**k * (1 - chance) ** (count - k)
        for k in range(hits, count + 1)
    )
