"""The texts that a decoder gives, in whatever form it does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from mobileprep.errors import AccuracyError
from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import LabelError, MetricBatch, OutputError


def found_texts(batch: MetricBatch, characters: Sequence[str]) -> list[str]:
    """The text of each sample that a decoder gave.

    Args:
        batch: with one output chosen: texts ``[samples]``, or classes ``[samples, time]`` filled
            up with negative numbers; or with three: the indices ``[n, 2]``, values ``[n]`` and
            shape ``[2]`` of such classes as a sparse tensor, as ``CTCGreedyDecoder`` and
            ``CTCBeamSearchDecoder`` give them.
        characters: the text that each class stands for.

    Raises:
        OutputError: it is none of these, or a class has no text.
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
    """The references: texts, or classes ``[samples, time]`` filled up with negative numbers.

    Raises:
        LabelError: they are neither, no UTF-8, or a class has no text.
    """
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
