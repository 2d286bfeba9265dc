"""What a metric is: batches of outputs and labels in, one number out."""

from __future__ import annotations

import itertools
import math
import numbers
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.core.loading import Author, blaming, load_file
from mobileprep.errors import AccuracyError, InternalError
from mobileprep.graph.tensor import Array

MOST_KEPT: Final = 1 << 30
"""The most bytes that a metric keeps which needs all samples at once."""


class LabelError(AccuracyError):
    """Labels that a metric cannot use; who runs it knows the place."""


class OutputError(AccuracyError):
    """Outputs that a metric cannot use; who runs it knows the place."""


class MetricOptions(Struct, frozen=True):
    """What a metric is told besides its name; each takes note of what concerns it.

    Args:
        peak: of ``psnr``: the largest value that an element may have.
        threshold: of ``mean_iou``: a single score above it is class 1.
        ignore: of ``mean_iou``: the label of elements that do not count.
        characters: of the error rates: the text that each class stands for.
    """

    peak: float | None = None
    threshold: float | None = None
    ignore: int | None = None
    characters: tuple[str, ...] = ()


class MetricBatch(Struct, frozen=True):
    """What a model gave for some samples, and what it should have given.

    Args:
        outputs: the fetched tensors by name.
        chosen: those that the metric is of, in its order.
        count: how many samples.
        labels: an entry for each sample; None where there are none.
        labels_name: what they are called, for messages.
        first: the number of the first sample, for messages.
    """

    outputs: Mapping[str, Array]
    chosen: tuple[str, ...]
    count: int
    labels: Array | None = None
    labels_name: str = "label"
    first: int = 0

    @property
    def name(self) -> str:
        """The output that the metric is of, or the first of them."""
        return self.chosen[0]

    def each_sample(self, name: str = "") -> Array:
        """An output with an entry for each sample."""
        output = self.outputs[name or self.name]
        if output.ndim and len(output) == self.count:
            return output
        shape = list(output.shape)
        message = f"the output {name or self.name!r} has the shape {shape} for {self.count} samples"
        raise OutputError(message, "name an output of the metric that has an entry a sample")

    def needed_labels(self) -> Array:
        """The labels."""
        if self.labels is None:
            message = "the data has no labels, and the metric needs them"
            raise LabelError(message, "name them: 'labels: ...', or write 'metric: agreement'")
        return self.labels


class Metric(ABC):
    """One number for many samples, which come batch by batch."""

    @abstractmethod
    def update(self, batch: MetricBatch) -> None:
        """Take more samples."""

    @abstractmethod
    def value(self) -> float:
        """The metric of all samples that it was given, at least one; always finite."""

    def notes(self) -> tuple[str, ...]:
        """What makes the value worth less than it seems, once it is asked for."""
        return ()


def numbers_of(batch: MetricBatch) -> Array:
    """The metric's output as finite float64, flattened to [samples, elements]."""
    output = batch.each_sample()
    if output.dtype.kind not in "biuf":
        message = f"the output {batch.name!r} is {output.dtype}, and the metric needs numbers"
        raise OutputError(message, "name an output of numbers")
    flat = output.reshape(len(output), -1).astype(np.float64)
    check_numbers(flat, f"values of {batch.name!r}", batch)
    return flat


def check_numbers(array: Array, what: str, batch: MetricBatch, *, infinite: bool = False) -> None:
    """Whether outputs are numbers; that they are not is no fault of the choice of an output."""
    flat = array.reshape(batch.count, -1)
    lost = np.flatnonzero((np.isnan(flat) if infinite else ~np.isfinite(flat)).any(axis=1))
    if len(lost):
        message = (
            f"the {what} of {len(lost)} of {batch.count} samples are "
            f"{'NaN' if infinite else 'NaN or infinite'}, the first of them those of sample "
            f"{batch.first + int(lost[0])}; a metric of them would mean nothing"
        )
        hint = "look for NaN in the data, and for a transform that breaks the model (check: true)"
        raise AccuracyError(message, hint)


class KeptArrays:
    """Arrays that a metric keeps until all samples are there, within ``MOST_KEPT`` bytes."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._bytes = 0

    def add(self, array: Array) -> None:
        """Keep one more."""
        self._bytes += array.nbytes
        if self._bytes > MOST_KEPT:
            message = f"the metric needs all outputs at once, and they pass {MOST_KEPT >> 20} MiB"
            raise AccuracyError(message, "validate on fewer samples, or name a smaller output")
        self.arrays.append(array)


def _regression(name: str, options: MetricOptions) -> Metric:
    from mobileprep.data.metrics.regression import R2, Cosine, MeanError, Psnr

    if name == "psnr":
        return Psnr(options)
    if name == "r2":
        return R2()
    if name == "cosine":
        return Cosine()
    return MeanError(1 if name == "mean_absolute_error" else 2)


def _mean_iou(_: str, options: MetricOptions) -> Metric:
    from mobileprep.data.metrics.classification import MeanIoU

    return MeanIoU(options)


def _auc(_: str, _options: MetricOptions) -> Metric:
    from mobileprep.data.metrics.classification import Auc

    return Auc()


def _error_rate(name: str, options: MetricOptions) -> Metric:
    from mobileprep.data.metrics.base import ErrorRate, characters, words

    return ErrorRate(words if name == "word_error_rate" else characters, options)


def _mean_average_precision(_: str, _options: MetricOptions) -> Metric:
    from mobileprep.data.metrics.detection import MeanAveragePrecision

    return MeanAveragePrecision()


_TOP_K: Final = re.compile(r"top([1-9][0-9]{0,4})")


METRICS: Final[Mapping[str, Callable[[str, MetricOptions], Metric]]] = {
    "mean_absolute_error": _regression,
    "mean_squared_error": _regression,
    "r2": _regression,
    "psnr": _regression,
    "cosine": _regression,
    "mean_iou": _mean_iou,
    "auc": _auc,
    "word_error_rate": _error_rate,
    "character_error_rate": _error_rate,
    "mean_average_precision": _mean_average_precision,
}
"""Those that compare outputs with labels, but ``top1``, ``top2`` and so on."""


FREE_SHAPES: Final = frozenset(
    {"word_error_rate", "character_error_rate", "mean_average_precision"}
)
"""Those whose outputs may have other shapes than the source's without being broken."""


def make_metric(name: str, options: MetricOptions) -> Metric:
    """A metric of labels by its name."""
    top = _TOP_K.fullmatch(name)
    if top is not None:
        from mobileprep.data.metrics.classification import TopK

        return TopK(int(top[1]))
    kind = METRICS.get(name)
    if kind is None:
        message = f"unknown metric {name!r} of labels"
        raise InternalError(message)
    return kind(name, options)


_AUTHOR: Final = Author("metric", AccuracyError, "so that nothing would have been measured")


class PythonFunction(Metric):
    """Calls ``function(outputs, labels)`` once, with all samples.

    ``outputs`` is a dict of the fetched tensors by name, joined along the first axis; a list with
    an array for each batch where a tensor has no entry for each sample. ``labels`` is an array, or
    None where the data has none. It returns a number.

    Args:
        path: the Python file; it is run anew.
        function: the name of the function.

    Raises:
        AccuracyError: the file cannot be run, or has no such function.
        UsageError: it is not there.
    """

    def __init__(self, path: Path, function: str) -> None:
        module = load_file(path, "mobileprep_metric", _AUTHOR)
        self._path, self._name = path, function
        self._function = getattr(module, function, None)
        if not callable(self._function):
            message = f"the metric's file has no function {function!r}"
            raise AccuracyError(message, f"define it: 'def {function}(outputs, labels)'", str(path))
        self._kept = KeptArrays()
        self._outputs: dict[str, list[Array]] = defaultdict(list)
        self._labels: list[Array] = []
        self._by_sample: dict[str, bool] = {}

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``."""
        for name, array in batch.outputs.items():
            self._kept.add(array)
            self._outputs[name].append(array)
            is_each = bool(array.ndim) and len(array) == batch.count
            self._by_sample[name] = self._by_sample.get(name, True) and is_each
        if batch.labels is not None:
            self._kept.add(batch.labels)
            self._labels.append(batch.labels)

    def value(self) -> float:
        """See ``Metric.value``."""
        outputs = {name: self._joined(name, parts) for name, parts in self._outputs.items()}
        labels = np.concatenate(self._labels) if self._labels else None
        assert callable(self._function)
        with blaming(self._path, _AUTHOR):
            found = self._function(outputs, labels)
        where = f"{self._path}, {self._name}"
        if isinstance(found, np.ndarray) and found.shape == ():
            found = found[()]
        if not isinstance(found, numbers.Real | np.bool_):
            message = f"the metric returned {type(found).__name__}, no number"
            raise AccuracyError(message, "return a float", where)
        if not math.isfinite(found):
            message = f"the metric returned {float(found)}"
            raise AccuracyError(message, "return a finite number", where)
        return float(found)

    def _joined(self, name: str, parts: list[Array]) -> Array | list[Array]:
        alike = len({part.shape[1:] for part in parts}) == 1
        return np.concatenate(parts) if self._by_sample[name] and alike else parts


def found_texts(batch: MetricBatch, characters: Sequence[str]) -> list[str]:
    """The text of each sample that a decoder gave.

    Args:
        batch: with one output chosen: texts ``[samples]``, or classes ``[samples, time]`` filled
            up with negative numbers; or with three: the indices ``[n, 2]``, values ``[n]`` and
            shape ``[2]`` of such classes as a sparse tensor, as ``CTCGreedyDecoder`` and
            ``CTCBeamSearchDecoder`` give them.
    """
    if len(batch.chosen) == 3:
        return _sparse_texts(batch, characters)
    output = batch.each_sample()
    if output.dtype.kind in "OSU":
        if output.size != batch.count:
            raise _no_texts(batch.name, output)
        # What a model gives that is no UTF-8 is wrong, and counts so.
        return [_decoded(text, errors="replace") for text in output.reshape(-1).tolist()]
    rows = output.reshape(batch.count, -1) if output.size else output.reshape(batch.count, 0)
    if output.dtype.kind not in "iu" or output.ndim < 2 or rows.shape[1] != max(output.shape[1:]):
        raise _no_texts(batch.name, output)
    return [_spelt(row[row >= 0], characters, batch.name, OutputError) for row in rows]


def wanted_texts(batch: MetricBatch, characters: Sequence[str]) -> list[str]:
    """The references: texts, or classes ``[samples, time]`` filled up with negative numbers."""
    labels, name = batch.needed_labels(), batch.labels_name
    try:
        if labels.dtype.kind in "OSU" and labels.size == batch.count:
            return [_decoded(text, errors="strict") for text in labels.reshape(-1).tolist()]
        if labels.dtype.kind in "iu" and labels.ndim == 2:
            return [_spelt(row[row >= 0], characters, name, LabelError) for row in labels]
    except UnicodeDecodeError as error:
        message = f"a label of {name!r} is not valid UTF-8: {error.reason}"
        raise LabelError(message, "save the references as strings") from error
    message = f"the labels {name!r} are {labels.dtype} of shape {list(labels.shape)}, not strings"
    raise LabelError(message, "save a text for each sample")


def _sparse_texts(batch: MetricBatch, characters: Sequence[str]) -> list[str]:
    indices, values = (batch.outputs[name] for name in batch.chosen[:2])
    is_sparse = indices.ndim == 2 and indices.shape[1] == 2 and values.shape == indices.shape[:1]
    if not is_sparse or indices.dtype.kind not in "iu" or values.dtype.kind not in "iu":
        message = (
            f"the outputs {', '.join(map(repr, batch.chosen))} are {list(indices.shape)}, "
            f"{list(values.shape)}, no indices, values and shape of a sparse tensor of classes"
        )
        raise OutputError(message, "name the three outputs of the decoder in this order")
    # By sample, then by time; samples beyond are those that a fixed batch was filled up with.
    order = np.lexsort((indices[:, 1], indices[:, 0]))
    samples, classes = indices[order, 0], values[order]
    ends = np.searchsorted(samples, np.arange(batch.count + 1))
    return [
        _spelt(classes[start:end], characters, batch.chosen[1], OutputError)
        for start, end in itertools.pairwise(ends)
    ]


def _spelt(classes: Array, characters: Sequence[str], name: str, kind: type[AccuracyError]) -> str:
    unknown = [int(found) for found in classes if not 0 <= found < len(characters)]
    if unknown:
        message = f"class {unknown[0]} of {name!r} has no character; there are {len(characters)}"
        hint = "give 'characters' an entry for each class, '' for classes to ignore"
        raise kind(message, hint)
    return "".join(characters[int(found)] for found in classes)


def _decoded(text: str | bytes, *, errors: str) -> str:
    return text.decode("utf-8", errors) if isinstance(text, bytes) else str(text)


def _no_texts(name: str, output: Array) -> OutputError:
    message = f"the output {name!r} is {output.dtype} of shape {list(output.shape)}, not strings"
    hint = "name an output of strings or classes, or the indices, values, and shape of a sparse one"
    return OutputError(message, hint)


# The time is the product of two texts' lengths.
_LONGEST: Final = 20_000


class ErrorRate(Metric):
    """The edits between what was recognized and what was said, as a share of what was said.

    Edits are insertions, deletions and substitutions (Levenshtein, 1966), summed over all samples,
    as ``jiwer`` counts them; more than 1 where much is recognized that was not said.

    Args:
        split: a text as the tokens to compare.
        options: ``characters``.
    """

    def __init__(self, split: Callable[[str], Sequence[str]], options: MetricOptions) -> None:
        self._split = split
        self._characters = options.characters
        self._edits = 0
        self._tokens = 0

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``; see `data.metrics.texts` for the forms of outputs and labels."""
        found, wanted = (
            [self._split(text) for text in texts(batch, self._characters)]
            for texts in (found_texts, wanted_texts)
        )
        for error, what, said in ((OutputError, "output", found), (LabelError, "label", wanted)):
            longest = max(map(len, said), default=0)
            if longest > _LONGEST:
                message = f"an {what} has {longest:,} words or characters"
                raise error(message, f"at most {_LONGEST:,} are compared: cut the recordings")
        self._edits += sum(edit_distance(w, f) for w, f in zip(wanted, found, strict=True))
        self._tokens += sum(map(len, wanted))

    def value(self) -> float:
        """See ``Metric.value``: 0 at best."""
        if not self._tokens:
            message = "the labels are empty strings, so the error rate is undefined"
            raise AccuracyError(message, "validate on samples with text")
        return self._edits / self._tokens


def words(text: str) -> list[str]:
    """What white space parts."""
    return text.split()


def characters(text: str) -> str:
    """All characters, without white space around the text."""
    return text.strip()


def edit_distance(wanted: Sequence[str], found: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that make one of the other.

    A row of the table of Wagner and Fischer (1974) at a time: insertions within a row are a
    running minimum.
    """
    known: dict[str, int] = {}
    rows, columns = ([known.setdefault(token, len(known)) for token in t] for t in (wanted, found))
    across, steps = np.array(columns, np.int64), np.arange(len(columns) + 1)
    row = steps
    for number, token in enumerate(rows, start=1):
        best = np.empty_like(row)
        best[0] = number
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (across != token))
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])
