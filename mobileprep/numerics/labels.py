"""Whether labels are the numbers of a model's classes; what is wrong is told in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array

Fault = tuple[str, str]
"""What is wrong, and its mend."""

_EACH: Final = "every array needs one entry a sample"
INTEGERS: Final = "save them as whole numbers from 0 on"


def labels_fault(labels: Array, name: str, samples: int) -> Fault | None:
    """What is wrong with labels, whatever the model: a message and its mend, or None.

    Args:
        labels: an entry a sample; axes of one do not matter.
        name: what the array is called.
        samples: how many there are.
    """
    if labels.ndim == 2 and labels.shape[1] > 1 and len(labels) == samples and _one_hot(labels):
        message = f"the labels {name!r} are one-hot, of shape {list(labels.shape)}"
        return message, "save the number of each class: labels.argmax(axis=1)"
    if labels.dtype.kind not in "iu":
        message = f"the labels {name!r} are {labels.dtype}, not the numbers of classes"
        if labels.dtype.kind == "f" and not bool(np.all(labels == np.floor(labels))):
            message += ", and have fractions" if np.isfinite(labels).all() else ", and have NaN"
        return message, INTEGERS
    return None


def counts_fault(labels: int, lengths: Mapping[str, int]) -> Fault | None:
    """What is wrong with the number of labels and of each input's samples, or None."""
    if lengths and labels and all(length == labels for length in lengths.values()):
        return None
    message = f"the data does not fit together: {labels} labels, and {_told(lengths)}"
    return message, _EACH


def lengths_fault(lengths: Mapping[str, int]) -> Fault | None:
    """What is wrong with the number of each input's samples, or None."""
    if len(set(lengths.values())) == 1 and all(lengths.values()):
        return None
    return f"the data does not fit together: {_told(lengths)}", _EACH


def no_scores(found: str) -> Fault:
    """That the first output, told in words, has no score for each class."""
    message = f"top-1 needs a score for each class, and the first output is {found}"
    return message, "list the scores as the first output"


def range_fault(labels: Array, name: str, classes: int, *, first: int = 0) -> Fault | None:
    """What is wrong with labels of a model with so many classes: a message and its mend, or None.

    Args:
        labels: whole numbers.
        name: what the array is called.
        classes: how many scores the model gives a sample.
        first: the number of the first sample, for messages.
    """
    flat = labels.ravel()
    wrong = np.flatnonzero((flat < 0) | (flat >= classes))
    if not len(wrong):
        return None
    at = int(wrong[0])
    message = (
        f"{len(wrong)} of {len(flat)} labels {name!r} are none of the model's {classes} classes, "
        f"0 to {classes - 1}: the first is {int(flat[at])}, of sample {first + at}"
    )
    if flat.min() == 1 and flat.max() == classes:
        return message, "they seem to count from 1: save labels - 1"
    return message, f"{INTEGERS}, in the order of the model's outputs"


def class_count(shape: Sequence[int]) -> int | None:
    """How many classes an output of a shape scores; None where it is no score a class.

    Args:
        shape: the output's, its first axis the samples; -1 where a size is open.
    """
    sizes = [size for size in shape[1:] if size != 1]
    return sizes[0] if len(sizes) == 1 and sizes[0] != 0 else None


def _told(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{n} has {k}" for n, k in lengths.items()) or "no inputs are named"


def _one_hot(labels: Array) -> bool:
    if labels.dtype.kind not in "biuf":
        return False
    ones = labels == 1
    return bool((ones | (labels == 0)).all() and (ones.sum(axis=1) == 1).all())
