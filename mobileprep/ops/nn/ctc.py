"""Connectionist temporal classification: decoding labels from the classes of each step."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.core.limits import STEP, spend
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Sizes, flop_rule, kernel, per_input
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    merge_dim,
    shape_fn,
    with_rank,
)

# Steps for an entry of a batch.
_STEPS = 8
# Steps of a beam for each time step: the interpreter's own work, and one numpy call.
_BEAM_STEPS = 8


@kernel("CTCGreedyDecoder", flops=per_input(1))
def ctc_greedy_decoder(node: Node, inputs: Array, lengths: Array) -> tuple[Array, ...]:
    """Return the best class of each step, without blanks (and, optionally, repetitions).

    Returns:
        Indices, values, and shape of a sparse matrix, and the negated sum of the largest logits.
    """
    steps, batch, classes = inputs.shape
    if lengths.shape != (batch,) or (lengths > steps).any() or not classes:
        message = f"lengths of shape {list(lengths.shape)} for inputs {list(inputs.shape)}"
        raise ValueError(message)
    spend(_STEPS * STEP * batch)
    blank = node.attr_int("blank_index", -1) % classes
    merged = node.attr_bool("merge_repeated", False)
    best = inputs.argmax(axis=2)
    rows = []
    scores = np.zeros((batch, 1), dtype=inputs.dtype)
    for entry, length in enumerate(lengths.tolist()):
        labels = best[:length, entry]
        scores[entry] = -np.sum(inputs[:length, entry].max(axis=1), dtype=inputs.dtype)
        mask = labels != blank
        if merged:
            mask &= np.concatenate([[True], labels[1:] != labels[:-1]])[:length]
        rows.append(labels[mask].tolist())
    return (*_sparse_rows(rows), scores)


@shape_fn("CTCGreedyDecoder")
def ctc_greedy_decoder_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of a sparse tensor of labels, and of a score for each batch entry."""
    batch = merge_dim(with_rank(args.shapes[0], 3)[1], with_rank(args.shapes[1], 1)[0])
    return [(UNKNOWN, 2), (UNKNOWN,), (2,), (batch, 1)]


@kernel("CTCBeamSearchDecoder")
def ctc_beam_search_decoder(node: Node, inputs: Array, lengths: Array) -> tuple[Array, ...]:
    """Find the likeliest sequences of labels by a beam search over prefixes.

    Returns:
        The indices, then the values, then the shapes of ``top_paths`` sparse matrices, and the log
        probabilities [batch, top_paths]. Equally likely prefixes are in the order in which they
        were found; TensorFlow's order of those depends on its C++ library.

    TensorFlow's own scores of float64 logits are accurate to 1e-8.

    Source:
    https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/util/ctc/ctc_beam_search.h
    """
    steps, batch, classes = inputs.shape
    width, count = node.attr_int("beam_width"), node.attr_int("top_paths")
    merged = node.attr_bool("merge_repeated", True)
    if lengths.shape != (batch,) or (lengths > steps).any() or not classes:
        message = f"lengths of shape {list(lengths.shape)} for inputs {list(inputs.shape)}"
        raise ValueError(message)
    if not 1 <= count <= width:
        message = f"{count} paths are requested of a beam of {width}"
        raise ValueError(message)
    spend(_BEAM_STEPS * STEP * width * int(np.maximum(lengths, 0).sum()))
    scores = np.zeros((batch, count), dtype=inputs.dtype)
    paths: list[list[list[int]]] = [[] for _ in range(count)]
    for entry, length in enumerate(lengths.tolist()):
        search = _BeamSearch(width, inputs.dtype)
        for logits in inputs[:length, entry]:
            search.step(logits)
        best = search.leaves.by_score()[:count]
        if len(best) < count:
            message = f"{count} paths are requested and batch entry {entry} has {len(best)}"
            raise ValueError(message)
        for place, beam in enumerate(best):
            scores[entry, place] = beam.total
            paths[place].append(beam.labels(merged=merged))
    sparse = [_sparse_rows(rows) for rows in paths]
    return (*(part for parts in zip(*sparse, strict=True) for part in parts), scores)


@shape_fn("CTCBeamSearchDecoder")
def ctc_beam_search_decoder_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of sparse tensors of labels, and of a score of each per batch entry."""
    batch = merge_dim(with_rank(args.shapes[0], 3)[1], with_rank(args.shapes[1], 1)[0])
    count = args.node.attr_int("top_paths")
    return [*[(UNKNOWN, 2)] * count, *[(UNKNOWN,)] * count, *[(2,)] * count, (batch, count)]


@flop_rule("CTCBeamSearchDecoder")
def ctc_beam_search_decoder_flops(sizes: Sizes) -> float:
    """Count a softmax for each step, and an addition and comparison of each class per beam."""
    return (3 + 2 * sizes.node.attr_int("beam_width")) * sizes.input_elements()


class _Beam:
    """A prefix of labels, with log probabilities now and, with ``old_``, one step before.

    ``label`` is that of all alignments that end in the last label, ``blank`` that of those that end
    in a blank. A beam outside the search has the total -inf.
    """

    __slots__ = ("blank", "children", "label", "last", "old_blank", "old_total", "parent", "total")

    def __init__(self, parent: _Beam | None, last: int, zero: np.floating[Any]) -> None:
        self.parent, self.last = parent, last
        self.children: dict[int, _Beam] = {}
        self.total = self.blank = self.label = self.old_total = self.old_blank = zero

    def labels(self, *, merged: bool) -> list[int]:
        """Return the labels from the first to the last, optionally merging repeated ones."""
        labels: list[int] = []
        beam, previous = self, -1
        while beam.parent is not None:
            if not merged or beam.last != previous:
                labels.append(beam.last)
            beam, previous = beam.parent, beam.last
        return labels[::-1]


class _Leaves:
    """The likeliest beams, at most ``width``."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._heap: list[tuple[float, int, _Beam]] = []
        self._pushed = 0

    def push(self, beam: _Beam) -> _Beam | None:
        """Add a beam and return the one that it displaces."""
        self._pushed += 1
        item = (float(beam.total), -self._pushed, beam)
        if len(self._heap) < self._width:
            heapq.heappush(self._heap, item)
            return None
        return heapq.heapreplace(self._heap, item)[2]

    def floor(self) -> float:
        """Return the log probability that a new beam has to exceed."""
        return self._heap[0][0] if len(self._heap) == self._width else -math.inf

    def by_score(self) -> list[_Beam]:
        """Return all beams, likeliest first."""
        return [beam for _, _, beam in sorted(self._heap, key=lambda i: (-i[0], -i[1]))]


class _BeamSearch:
    """The search over one sequence, in the precision of its logits."""

    def __init__(self, width: int, dtype: np.dtype[Any]) -> None:
        self._width = width
        self._zero = dtype.type(-np.inf)
        root = _Beam(None, -1, self._zero)
        root.total = root.blank = dtype.type(0)
        self.leaves = _Leaves(width)
        self.leaves.push(root)

    def step(self, logits: Array) -> None:
        """Advance by one time step."""
        peak = logits.max()
        log_probabilities = logits - (peak + np.log(np.exp(logits - peak).sum(dtype=logits.dtype)))
        beams = self.leaves.by_score()
        self.leaves = _Leaves(self._width)
        for beam in beams:
            beam.old_total, beam.old_blank = beam.total, beam.blank
        for beam in beams:
            self._stay(beam, log_probabilities)
            self.leaves.push(beam)
        for beam in beams:
            if beam.old_total > self.leaves.floor():
                self._grow(beam, log_probabilities[:-1])

    def _stay(self, beam: _Beam, log_probabilities: Array) -> None:
        """Update the probabilities of a prefix for a blank, or a repetition of its last label."""
        parent = beam.parent
        if parent is not None:
            if parent.total > -math.inf:
                is_repeated = beam.last == parent.last
                previous = parent.old_blank if is_repeated else parent.old_total
                beam.label = _log_sum(beam.label, previous)
            beam.label = beam.label + log_probabilities[beam.last]
        beam.blank = beam.old_total + log_probabilities[-1]
        beam.total = _log_sum(beam.blank, beam.label)

    def _grow(self, beam: _Beam, log_probabilities: Array) -> None:
        """Add the prefixes with one more label that are likely enough."""
        scores = log_probabilities + beam.old_total
        if beam.last >= 0:
            scores[beam.last] = log_probabilities[beam.last] + beam.old_blank
        # Few are likely enough; the floor only rises while they are added.
        likely = np.flatnonzero(scores > self.leaves.floor()).tolist()
        for label in sorted({*likely, *beam.children}):
            child = beam.children.get(label)
            if child is not None and child.total > -math.inf:
                continue
            if scores[label] > self.leaves.floor():
                child = child or _Beam(beam, label, self._zero)
                beam.children[label] = child
                child.label = child.total = scores[label]
                displaced = self.leaves.push(child)
                if displaced is not None:
                    displaced.total = displaced.blank = displaced.label = self._zero
            elif child is not None:
                # A child that was displaced in this step does not grow in its turn.
                child.old_total = child.old_blank = self._zero


def _log_sum(a: np.floating[Any], b: np.floating[Any]) -> np.floating[Any]:
    """Return the logarithm of the sum of two probabilities, given by their logarithms."""
    larger, smaller = (a, b) if a > b else (b, a)
    if smaller == -math.inf:
        return larger
    total: np.floating[Any] = larger + np.log1p(np.exp(smaller - larger))
    return total


def _sparse_rows(rows: Sequence[Sequence[int]]) -> tuple[Array, Array, Array]:
    """Return indices, values, and shape of a sparse matrix of int64."""
    indices = [(entry, place) for entry, row in enumerate(rows) for place in range(len(row))]
    return (
        np.array(indices, dtype=np.int64).reshape(-1, 2),
        np.array([label for row in rows for label in row], dtype=np.int64),
        np.array([len(rows), max(map(len, rows), default=0)], dtype=np.int64),
    )
