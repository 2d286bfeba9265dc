"""The texts that a decoder gives, in whatever form it does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from mobileprep.data.metrics.base import LabelError, Metric, MetricBatch, MetricOptions, OutputError
from mobileprep.errors import AccuracyError
from mobileprep.graph.tensor import Array


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
        message = f"a label of {name!r} is no UTF-8: {error.reason}"
        raise LabelError(message, "save the references as texts") from error
    message = f"the labels {name!r} are {labels.dtype} of shape {list(labels.shape)}, no texts"
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
        hint = "give 'characters' an entry for each class, '' for those that stand for nothing"
        raise kind(message, hint)
    return "".join(characters[int(found)] for found in classes)


def _decoded(text: str | bytes, *, errors: str) -> str:
    return text.decode("utf-8", errors) if isinstance(text, bytes) else str(text)


def _no_texts(name: str, output: Array) -> OutputError:
    message = f"the output {name!r} is {output.dtype} of shape {list(output.shape)}, no texts"
    hint = "name an output of texts or classes, or the indices, values and shape of a sparse one"
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
            message = "the labels are empty texts: nothing was said that could be missed"
            raise AccuracyError(message, "validate on samples with texts")
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
