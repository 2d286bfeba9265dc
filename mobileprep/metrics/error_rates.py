"""The share of words or characters that a recognizer gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from mobileprep.errors import AccuracyError
from mobileprep.metrics.base import LabelError, Metric, MetricBatch, MetricOptions, OutputError
from mobileprep.metrics.texts import found_texts, wanted_texts

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
        """See ``Metric.update``; see ``metrics.texts`` for the forms of outputs and labels."""
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
