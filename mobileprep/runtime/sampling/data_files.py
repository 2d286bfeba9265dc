"""Whether files of arrays hold samples of a model, told by their headers and labels alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import Header, read_arrays, read_headers
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.tensor import Array
from mobileprep.numerics.labels import (
    Fault,
    class_count,
    counts_fault,
    labels_fault,
    no_scores,
    range_fault,
)
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.runtime.sampling.recorded import array_of, is_nearly, misfit


def sample_faults(path: Path, name: str, inputs: Sequence[FedTensor]) -> list[Fault]:
    """What is wrong with a file of samples.

    Args:
        path: the file.
        name: what the recipe calls it.
        inputs: what is fed of it.

    Raises:
        CorruptFileError: the file cannot be read.
    """
    return _found(read_headers(path), name, inputs)[1]


def has_labels(path: Path, labels: str, inputs: Sequence[FedTensor]) -> bool:
    """Whether a file has an array of labels, or one of nearly that name.

    Args:
        path: the file.
        labels: the name of the array of labels.
        inputs: what is fed of the file.

    Raises:
        CorruptFileError: the file cannot be read.
    """
    headers = read_headers(path)
    return labels in headers or is_nearly(labels, headers, [fed.name for fed in inputs])


def label_faults(path: Path, name: str, labels: str) -> list[Fault]:
    """What is wrong with a file that needs labels of any kind: that there are none.

    Args:
        path: the file.
        name: what the recipe calls it.
        labels: the name of the array of labels.

    Raises:
        CorruptFileError: the file cannot be read.
    """
    try:
        array_of(read_headers(path), labels, name)
    except AccuracyError as error:
        return [(error.message, error.hint)]
    return []


def class_faults(
    path: Path, name: str, inputs: Sequence[FedTensor], labels: str, scores: TensorShape
) -> list[Fault]:
    """What is wrong with a file of samples whose labels are the numbers of classes.

    Args:
        path: the file.
        name: what the recipe calls it.
        inputs: what is fed of it.
        labels: the name of the array of labels.
        scores: the shape of the output; None where it is not known.

    Raises:
        CorruptFileError: the file cannot be read.
    """
    headers = read_headers(path)
    found, faults = _found(headers, name, inputs)
    try:
        array_of(headers, labels, name)
    except AccuracyError as error:
        return [*faults, (error.message, error.hint)]
    given = next(iter(read_arrays(path, names={labels}).values()))
    lengths = {key: header.shape[0] if header.shape else 0 for key, header in found.items()}
    fault = labels_fault(given, labels, max(lengths.values(), default=0))
    fault = fault or counts_fault(given.size, lengths) or _class_fault(given, labels, scores)
    return faults if fault is None else [*faults, fault]


def _class_fault(given: Array, labels: str, scores: TensorShape) -> Fault | None:
    if scores is None:
        return None
    classes = class_count(scores)
    if classes is None:
        return no_scores(f"of shape {list(scores)}")
    # An open number of classes is known when the model runs.
    return range_fault(given, labels, classes) if classes > 0 else None


def _found(
    headers: Mapping[str, Header], name: str, inputs: Sequence[FedTensor]
) -> tuple[dict[str, Header], list[Fault]]:
    """The headers of the inputs' arrays, and what is wrong with them."""
    found: dict[str, Header] = {}
    faults: list[Fault] = []
    for fed in inputs:
        try:
            found[fed.name] = array_of(headers, fed.name, name)
        except AccuracyError as error:
            faults.append((error.message, error.hint))
            continue
        reason = misfit(fed, found[fed.name])
        if reason:
            faults.append((f"{name}: {reason}", "save samples as the model takes them"))
    return found, faults
