"""Samples from data files, and recorded samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from mobileprep.errors import AccuracyError, named, nearest_hint
from mobileprep.formats.arrays import Header, read_arrays, read_headers
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.texts import (
    Fault,
    class_count,
    counts_fault,
    labels_fault,
    no_scores,
    range_fault,
)
from mobileprep.runtime.interpreter import converted
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.first_ops import first_ops
from mobileprep.runtime.sampling.inputs import FedTensor, fed_tensors, is_single_image

_TEXT: Final = "OSU"
_HOW_TO_NAME: Final = "save the array under that name, or name its own with 'inputs' or 'labels'"
T = TypeVar("T")


def array_of(arrays: Mapping[str, T], name: str, data: str) -> T:
    """Return the array for a tensor, under the tensor's name or its node's."""
    plain = parse_ref(name).node
    for key in (name, plain):
        if key in arrays:
            return arrays[key]
    message = f"{data} has no array {plain!r}; it has {named(sorted(arrays))}"
    raise AccuracyError(message, nearest_hint(plain, arrays) or _HOW_TO_NAME)


def is_nearly(name: str, arrays: Iterable[str], inputs: Iterable[str]) -> bool:
    """Return whether arrays that are not inputs have a similar, possibly misspelled name."""
    nodes = {parse_ref(tensor).node for tensor in inputs}
    return bool(nearest_hint(name, {key for key in arrays if key.partition(":")[0] not in nodes}))


def misfit(fed: FedTensor, header: Header) -> str:
    """Return why an array does not hold samples of an input; empty if it does."""
    expected = fed.dtype.numpy
    is_text = header.dtype.kind in _TEXT
    if fed.dtype is DType.STRING or is_text:
        fits = is_text == (fed.dtype is DType.STRING)
    else:
        fits = expected is None or np.can_cast(header.dtype, expected, "same_kind")
    if not fits:
        dtype = dtype_from_numpy(header.dtype)
        actual = "text" if is_text else str(header.dtype) if dtype is None else dtype.short
        return f"the input {fed.name!r} takes {fed.dtype.short}, and the array is {actual}"
    if fed.shape is not None and not _fits(fed.shape, header.shape):
        expected_shape = ", ".join("?" if size < 0 else str(size) for size in fed.shape)
        return (
            f"the input {fed.name!r} takes the shape [{expected_shape}], "
            f"and the array has {list(header.shape)}"
        )
    return ""


def recorded_feeds(
    arrays: Mapping[str, Array],
    inputs: Sequence[FedTensor],
    ops: Sequence[FirstOps],
    count: int,
    data: str,
) -> tuple[dict[str, Array], ...]:
    """Return the feeds for each run.

    An array has the shape of its input, with the samples as first axis, or an additional axis
    before it. Inputs that are the same for all samples have a single one.

    Args:
        count: maximum number of runs; if there are more samples, an evenly spread selection.

    Raises:
        AccuracyError: an array is missing, or does not fit its input or the other arrays.
    """
    pieces: dict[str, list[Array]] = {}
    for fed, findings in zip(inputs, ops, strict=True):
        array = array_of(arrays, fed.name, data)
        reason = misfit(fed, Header(array.shape, array.dtype))
        if reason:
            message = f"{data}: {reason}"
            raise AccuracyError(message, "save samples as the model takes them")
        pieces[fed.name] = _pieces(converted(array, fed.dtype), fed.shape, findings)
        _check_numbers(pieces[fed.name], fed.name, data)
    most = max((len(parts) for parts in pieces.values()), default=0)
    if any(len(parts) not in (1, most) for parts in pieces.values()) or not most:
        lengths = ", ".join(f"{name} has {len(parts)}" for name, parts in pieces.items())
        message = f"{data}: the arrays do not fit together: {lengths or 'no inputs are named'}"
        raise AccuracyError(message, "give every input as many samples, or a single one")
    chosen = range(most) if most <= count else [at * most // count for at in range(count)]
    return tuple(
        {name: parts[at if len(parts) > 1 else 0] for name, parts in pieces.items()}
        for at in chosen
    )


def _check_numbers(parts: Sequence[Array], name: str, data: str) -> None:
    lost = [
        at
        for at, part in enumerate(parts)
        if part.dtype.kind in "fc" and part.size and np.isnan(part).all()
    ]
    if lost:
        message = f"{data}: {len(lost)} of {len(parts)} samples of {name!r} are NaN throughout, "
        message += f"the first of them sample {lost[0]}"
        raise AccuracyError(message, "leave them out, counting from 0")


def _fits(expected: Sequence[int], actual: Sequence[int]) -> bool:
    """Return whether an array has an input's shape with any number of samples, or an axis more."""
    if len(actual) == len(expected) + 1:
        return all(e in (-1, a) for e, a in zip(expected, actual[1:], strict=True))
    if len(actual) != len(expected):
        return False
    return all(e in (-1, a) for e, a in zip(expected[1:], actual[1:], strict=True))


def _pieces(array: Array, shape: TensorShape, ops: FirstOps) -> list[Array]:
    """Split an array into the inputs of single runs."""
    if array.ndim == 0:
        return [array]
    if shape is not None and array.ndim == len(shape) + 1:
        return [np.asarray(part) for part in array]
    if shape is None and array.ndim == 1:
        return [array]  # a batch of values, or one row of them: fed unchanged
    if shape is None:
        return [array[at : at + 1] for at in range(len(array))]
    if shape[0] < 0:
        # One audio clip or image of any size.
        whole = is_single_image(shape, ops) or (len(shape) == 1 and ops.is_audio)
        return [array] if whole else [array[at : at + 1] for at in range(len(array))]
    size = max(shape[0], 1)
    starts = range(0, len(array), size)
    return [array[np.arange(start, start + size) % len(array)] for start in starts]


def sample_faults(path: Path, name: str, inputs: Sequence[FedTensor]) -> list[Fault]:
    """Return the problems of a file of samples."""
    return _input_headers(read_headers(path), name, inputs)[1]


def has_labels(path: Path, labels: str, inputs: Sequence[FedTensor]) -> bool:
    """Return whether a file has an array of labels, or one with a similar name."""
    headers = read_headers(path)
    return labels in headers or is_nearly(labels, headers, [fed.name for fed in inputs])


def label_faults(path: Path, name: str, labels: str) -> list[Fault]:
    """Return the problem of a file without the labels that it needs."""
    try:
        array_of(read_headers(path), labels, name)
    except AccuracyError as error:
        return [(error.message, error.hint)]
    return []


def class_faults(
    path: Path, name: str, inputs: Sequence[FedTensor], labels: str, scores: TensorShape
) -> list[Fault]:
    """Return the problems of a file of samples whose labels are class indices.

    Args:
        scores: the shape of the output; None if unknown.
    """
    headers = read_headers(path)
    input_headers, faults = _input_headers(headers, name, inputs)
    try:
        array_of(headers, labels, name)
    except AccuracyError as error:
        return [*faults, (error.message, error.hint)]
    indices = next(iter(read_arrays(path, names={labels}).values()))
    lengths = {key: header.shape[0] if header.shape else 0 for key, header in input_headers.items()}
    fault = labels_fault(indices, labels, max(lengths.values(), default=0))
    fault = fault or counts_fault(indices.size, lengths) or _class_fault(indices, labels, scores)
    return faults if fault is None else [*faults, fault]


def _class_fault(indices: Array, labels: str, scores: TensorShape) -> Fault | None:
    if scores is None:
        return None
    classes = class_count(scores)
    if classes is None:
        return no_scores(f"of shape {list(scores)}")
    # An unknown number of classes is checked when the model runs.
    return range_fault(indices, labels, classes) if classes > 0 else None


def _input_headers(
    headers: Mapping[str, Header], name: str, inputs: Sequence[FedTensor]
) -> tuple[dict[str, Header], list[Fault]]:
    """Return the headers of the inputs' arrays, and their problems."""
    matches: dict[str, Header] = {}
    faults: list[Fault] = []
    for fed in inputs:
        try:
            matches[fed.name] = array_of(headers, fed.name, name)
        except AccuracyError as error:
            faults.append((error.message, error.hint))
            continue
        reason = misfit(fed, matches[fed.name])
        if reason:
            faults.append((f"{name}: {reason}", "save samples as the model takes them"))
    return matches, faults


def feeds_from_file(
    graph: Graph, inputs: Sequence[str], path: Path, count: int
) -> tuple[Mapping[str, Array], ...]:
    """Return the feeds for each run.

    Args:
        path: an ``.npz`` file with an array for each input, or an ``.npy`` file for a single one.
        count: maximum number of runs; if there are more samples, an evenly spread selection.
    """
    arrays = read_arrays(path)
    if list(arrays) == [""] and len(inputs) == 1:
        arrays = {inputs[0]: arrays[""]}
    fed = fed_tensors(graph, inputs)
    ops = [first_ops(graph, f.ref) for f in fed]
    return recorded_feeds(arrays, fed, ops, count, str(path))
