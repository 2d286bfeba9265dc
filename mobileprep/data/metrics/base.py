"""Metric interface: batches of outputs and labels in, one number out."""

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
"""Maximum number of bytes stored by a metric that needs all samples at once."""


class LabelError(AccuracyError):
    """Labels that a metric cannot use; the caller adds the location."""


class OutputError(AccuracyError):
    """Outputs that a metric cannot use; the caller adds the location."""


class MetricOptions(Struct, frozen=True):
    """Options of all metrics; each metric reads only its own.

    Args:
        peak: for ``psnr``: the largest possible value of an element.
        threshold: for ``mean_iou``: a single score above it counts as class 1.
        ignore: for ``mean_iou``: the label of elements to skip.
        characters: for the error rates: the string that each class represents.
    """

    peak: float | None = None
    threshold: float | None = None
    ignore: int | None = None
    characters: tuple[str, ...] = ()


class MetricBatch(Struct, frozen=True):
    """Outputs of a model for some samples, with the expected labels.

    Args:
        outputs: the fetched tensors by name.
        chosen: names of the outputs that the metric evaluates, in its order.
        count: the number of samples.
        labels: one entry per sample, or None if the data has no labels.
        labels_name: the name of the labels, for messages.
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
        """The output that the metric evaluates, or the first of several."""
        return self.chosen[0]

    def each_sample(self, name: str = "") -> Array:
        """Return an output that has one entry per sample.

        Args:
            name: the output; the metric's output by default.

        Raises:
            OutputError: the length of the first axis is not the number of samples.
        """
        output = self.outputs[name or self.name]
        if output.ndim and len(output) == self.count:
            return output
        shape = list(output.shape)
        message = f"the output {name or self.name!r} has the shape {shape} for {self.count} samples"
        raise OutputError(message, "name an output of the metric that has an entry a sample")

    def needed_labels(self) -> Array:
        """Return the labels, or raise ``LabelError`` if there are none."""
        if self.labels is None:
            message = "the data has no labels, and the metric needs them"
            raise LabelError(message, "name them: 'labels: ...', or write 'metric: agreement'")
        return self.labels


class Metric(ABC):
    """One number for many samples, accumulated batch by batch."""

    @abstractmethod
    def update(self, batch: MetricBatch) -> None:
        """Add a batch of samples."""

    @abstractmethod
    def value(self) -> float:
        """Return the metric over all samples added so far, at least one; always finite."""

    def notes(self) -> tuple[str, ...]:
        """Return caveats about the value; call it after ``value``."""
        return ()


class MeanMetric(Metric):
    """The mean over samples or elements: ``update`` adds to their sum and their count."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def value(self) -> float:
        return self._sum / self._count


def numbers_of(batch: MetricBatch) -> Array:
    """Return the metric's output as finite float64, flattened to [samples, elements]."""
    output = batch.each_sample()
    if output.dtype.kind not in "biuf":
        message = f"the output {batch.name!r} is {output.dtype}, and the metric needs numbers"
        raise OutputError(message, "name an output of numbers")
    flat = output.reshape(len(output), -1).astype(np.float64)
    check_numbers(flat, f"values of {batch.name!r}", batch)
    return flat


def check_numbers(array: Array, what: str, batch: MetricBatch, *, infinite: bool = False) -> None:
    """Raise ``AccuracyError`` if outputs contain NaN or, unless ``infinite``, infinities.

    This is not an ``OutputError``, because choosing another output would not help.
    """
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
    """Arrays that a metric stores until it has all samples, up to ``MOST_KEPT`` bytes."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._bytes = 0

    def add(self, array: Array) -> None:
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
"""Metrics that compare outputs with labels, except ``top1``, ``top2``, and so on."""


FREE_SHAPES: Final = frozenset(
    {"word_error_rate", "character_error_rate", "mean_average_precision"}
)
"""Metrics whose outputs may differ in shape from the source model's without being wrong."""


def make_metric(name: str, options: MetricOptions) -> Metric:
    """Create the metric of labels with this name."""
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

    ``outputs`` is a dict of the fetched tensors by name, concatenated along the first axis, or a
    list with one array per batch if a tensor does not have one entry per sample. ``labels`` is an
    array, or None if the data has no labels. The function returns a number.

    Args:
        path: the Python file; each metric executes it again.
        function: the name of the function.

    Raises:
        AccuracyError: the file cannot be executed, or does not define the function.
        UsageError: the file does not exist.
    """

    def __init__(self, path: Path, function: str) -> None:
        module = load_file(path, "mobileprep_metric", _AUTHOR)
        self._path, self._name = path, function
        self._function = getattr(module, function, None)
        if not callable(self._function):
            message = f"the metric's file has no function {function!r}"
            raise AccuracyError(message, f"define it: 'def {function}(outputs, labels)'", str(path))
        self._arrays = KeptArrays()
        self._outputs: dict[str, list[Array]] = defaultdict(list)
        self._labels: list[Array] = []
        self._by_sample: dict[str, bool] = {}

    def update(self, batch: MetricBatch) -> None:
        for name, array in batch.outputs.items():
            self._arrays.add(array)
            self._outputs[name].append(array)
            is_each = bool(array.ndim) and len(array) == batch.count
            self._by_sample[name] = self._by_sample.get(name, True) and is_each
        if batch.labels is not None:
            self._arrays.add(batch.labels)
            self._labels.append(batch.labels)

    def value(self) -> float:
        outputs = {name: self._joined(name, parts) for name, parts in self._outputs.items()}
        labels = np.concatenate(self._labels) if self._labels else None
        assert callable(self._function)
        with blaming(self._path, _AUTHOR):
            result = self._function(outputs, labels)
        where = f"{self._path}, {self._name}"
        if isinstance(result, np.ndarray) and result.shape == ():
            result = result[()]
        if not isinstance(result, numbers.Real | np.bool_):
            message = f"the metric returned {type(result).__name__}, no number"
            raise AccuracyError(message, "return a float", where)
        if not math.isfinite(result):
            message = f"the metric returned {float(result)}"
            raise AccuracyError(message, "return a finite number", where)
        return float(result)

    def _joined(self, name: str, parts: list[Array]) -> Array | list[Array]:
        alike = len({part.shape[1:] for part in parts}) == 1
        return np.concatenate(parts) if self._by_sample[name] and alike else parts


def found_texts(batch: MetricBatch, characters: Sequence[str]) -> list[str]:
    """Return the string that a decoder produced for each sample.

    Args:
        batch: with one output chosen: strings ``[samples]``, or classes ``[samples, time]`` padded
            with negative numbers. With three: the indices ``[n, 2]``, values ``[n]``, and shape
            ``[2]`` of such classes as a sparse tensor, as returned by ``CTCGreedyDecoder`` and
            ``CTCBeamSearchDecoder``.
        characters: the string that each class represents.
    """
    if len(batch.chosen) == 3:
        return _sparse_texts(batch, characters)
    output = batch.each_sample()
    if output.dtype.kind in "OSU":
        if output.size != batch.count:
            raise _no_texts(batch.name, output)
        # Invalid UTF-8 in an output counts as a recognition error.
        return [_decoded(text, errors="replace") for text in output.reshape(-1).tolist()]
    rows = output.reshape(batch.count, -1) if output.size else output.reshape(batch.count, 0)
    if output.dtype.kind not in "iu" or output.ndim < 2 or rows.shape[1] != max(output.shape[1:]):
        raise _no_texts(batch.name, output)
    return [_spelt(row[row >= 0], characters, batch.name, OutputError) for row in rows]


def wanted_texts(batch: MetricBatch, characters: Sequence[str]) -> list[str]:
    """Return the references: strings, or classes ``[samples, time]`` padded with negative ints."""
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
    # By sample, then by time. Samples past ``count`` are padding of a fixed-size batch.
    order = np.lexsort((indices[:, 1], indices[:, 0]))
    samples, classes = indices[order, 0], values[order]
    ends = np.searchsorted(samples, np.arange(batch.count + 1))
    return [
        _spelt(classes[start:end], characters, batch.chosen[1], OutputError)
        for start, end in itertools.pairwise(ends)
    ]


def _spelt(classes: Array, characters: Sequence[str], name: str, kind: type[AccuracyError]) -> str:
    unknown = [int(index) for index in classes if not 0 <= index < len(characters)]
    if unknown:
        message = f"class {unknown[0]} of {name!r} has no character; there are {len(characters)}"
        hint = "give 'characters' an entry for each class, '' for classes to ignore"
        raise kind(message, hint)
    return "".join(characters[int(index)] for index in classes)


def _decoded(text: str | bytes, *, errors: str) -> str:
    return text.decode("utf-8", errors) if isinstance(text, bytes) else str(text)


def _no_texts(name: str, output: Array) -> OutputError:
    message = f"the output {name!r} is {output.dtype} of shape {list(output.shape)}, not strings"
    hint = "name an output of strings or classes, or the indices, values, and shape of a sparse one"
    return OutputError(message, hint)


# The running time grows with the product of the lengths of both strings.
_LONGEST: Final = 20_000


class ErrorRate(Metric):
    """The number of edits between recognized and reference text, divided by the reference length.

    Edits are insertions, deletions, and substitutions (Levenshtein, 1966), summed over all samples
    as in ``jiwer``. The rate can exceed 1 if there are many insertions.

    Args:
        split: splits a string into the tokens to compare.
        options: ``characters``.
    """

    def __init__(self, split: Callable[[str], Sequence[str]], options: MetricOptions) -> None:
        self._split = split
        self._characters = options.characters
        self._edits = 0
        self._tokens = 0

    def update(self, batch: MetricBatch) -> None:
        """Add a batch; see ``found_texts`` and ``wanted_texts`` for the accepted forms."""
        outputs, labels = (
            [self._split(text) for text in texts(batch, self._characters)]
            for texts in (found_texts, wanted_texts)
        )
        for error, what, sequences in (
            (OutputError, "output", outputs),
            (LabelError, "label", labels),
        ):
            longest = max(map(len, sequences), default=0)
            if longest > _LONGEST:
                message = f"an {what} has {longest:,} words or characters"
                raise error(message, f"at most {_LONGEST:,} are compared: cut the recordings")
        self._edits += sum(edit_distance(w, f) for w, f in zip(labels, outputs, strict=True))
        self._tokens += sum(map(len, labels))

    def value(self) -> float:
        """Return the error rate, 0 at best."""
        if not self._tokens:
            message = "the labels are empty strings, so the error rate is undefined"
            raise AccuracyError(message, "validate on samples with text")
        return self._edits / self._tokens


def words(text: str) -> list[str]:
    """Split a string at white space."""
    return text.split()


def characters(text: str) -> str:
    """Strip white space from both ends; each remaining character is a token."""
    return text.strip()


def edit_distance(expected: Sequence[str], actual: Sequence[str]) -> int:
    """Return the minimum number of insertions, deletions, and substitutions between two sequences.

    Computes the table of Wagner and Fischer (1974) row by row; insertions within a row are a
    running minimum.
    """
    codes: dict[str, int] = {}
    rows, columns = (
        [codes.setdefault(token, len(codes)) for token in t] for t in (expected, actual)
    )
    across, steps = np.array(columns, np.int64), np.arange(len(columns) + 1)
    row = steps
    for number, token in enumerate(rows, start=1):
        best = np.empty_like(row)
        best[0] = number
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (across != token))
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])
