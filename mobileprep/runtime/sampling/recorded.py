"""Samples from arrays that the user gives, cut into what a graph takes at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from mobileprep.errors import AccuracyError, named, nearest_hint
from mobileprep.formats.arrays import Header
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.runtime.feeds import converted
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.runtime.sampling.sizes import is_single_picture

_TEXT: Final = "OSU"
_HOW_TO_NAME: Final = "save the array under that name, or tell its own by 'inputs' or 'labels'"
T = TypeVar("T")


def array_of(arrays: Mapping[str, T], name: str, data: str) -> T:
    """The array for a tensor, under the tensor's name or its node's.

    Args:
        arrays: arrays, or their headers, by name.
        name: the tensor's.
        data: what the file is called, for messages.

    Raises:
        AccuracyError: there is none; the nearest name is told, or how arrays are named.
    """
    plain = parse_ref(name).node
    for key in (name, plain):
        if key in arrays:
            return arrays[key]
    message = f"{data} has no array {plain!r}; it has {named(sorted(arrays))}"
    raise AccuracyError(message, nearest_hint(plain, arrays) or _HOW_TO_NAME)


def is_nearly(name: str, arrays: Iterable[str], inputs: Iterable[str]) -> bool:
    """Whether arrays that are no inputs have a name so near that it may be misspelt.

    Args:
        name: what is looked for.
        arrays: the names of the arrays.
        inputs: the names of the inputs.
    """
    nodes = {parse_ref(given).node for given in inputs}
    return bool(nearest_hint(name, {key for key in arrays if key.partition(":")[0] not in nodes}))


def misfit(fed: FedTensor, header: Header) -> str:
    """Why an array holds no samples of an input; empty where it does."""
    wanted = fed.dtype.numpy
    is_text = header.dtype.kind in _TEXT
    if fed.dtype is DType.STRING or is_text:
        fits = is_text == (fed.dtype is DType.STRING)
    else:
        fits = wanted is None or np.can_cast(header.dtype, wanted, "same_kind")
    if not fits:
        given = dtype_from_numpy(header.dtype)
        found = "text" if is_text else str(header.dtype) if given is None else given.short
        return f"the input {fed.name!r} takes {fed.dtype.short}, and the array is {found}"
    if fed.shape is not None and not _fits(fed.shape, header.shape):
        wanted_shape = ", ".join("?" if size < 0 else str(size) for size in fed.shape)
        return (
            f"the input {fed.name!r} takes the shape [{wanted_shape}], "
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
    """What to feed, run by run.

    An array has the shape of its input, whose first axis counts the samples, or one axis more
    in front of it. Inputs that are the same for all samples have a single one.

    Args:
        arrays: by name.
        inputs: what to feed.
        ops: what the first ops tell of each input.
        count: how many runs at most; of more samples, some spread evenly.
        data: what the arrays are called, for messages.

    Raises:
        AccuracyError: an array is missing, does not fit, or has samples that are all NaN.
    """
    pieces: dict[str, list[Array]] = {}
    for fed, found in zip(inputs, ops, strict=True):
        array = array_of(arrays, fed.name, data)
        reason = misfit(fed, Header(array.shape, array.dtype))
        if reason:
            message = f"{data}: {reason}"
            raise AccuracyError(message, "save samples as the model takes them")
        pieces[fed.name] = _pieces(converted(array, fed.dtype), fed.shape, found)
        _check_numbers(pieces[fed.name], fed.name, data)
    most = max((len(parts) for parts in pieces.values()), default=0)
    if any(len(parts) not in (1, most) for parts in pieces.values()) or not most:
        told = ", ".join(f"{name} has {len(parts)}" for name, parts in pieces.items())
        message = f"{data}: the arrays do not fit together: {told or 'no inputs are named'}"
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


def _fits(wanted: Sequence[int], found: Sequence[int]) -> bool:
    """Whether an array has an input's shape with any number of samples, or an axis more."""
    if len(found) == len(wanted) + 1:
        return all(w in (-1, f) for w, f in zip(wanted, found[1:], strict=True))
    if len(found) != len(wanted):
        return False
    return all(w in (-1, f) for w, f in zip(wanted[1:], found[1:], strict=True))


def _pieces(array: Array, wanted: TensorShape, ops: FirstOps) -> list[Array]:
    """An array cut into what the input takes at once."""
    if array.ndim == 0:
        return [array]
    if wanted is not None and array.ndim == len(wanted) + 1:
        return [np.asarray(part) for part in array]
    if wanted is None and array.ndim == 1:
        return [array]  # a batch of values, or one row of them: the model takes it as it is
    if wanted is None:
        return [array[at : at + 1] for at in range(len(array))]
    if wanted[0] < 0:
        # One sound, or one picture, of any length.
        whole = is_single_picture(wanted, ops) or (len(wanted) == 1 and ops.is_sound)
        return [array] if whole else [array[at : at + 1] for at in range(len(array))]
    size = max(wanted[0], 1)
    starts = range(0, len(array), size)
    return [array[np.arange(start, start + size) % len(array)] for start in starts]
