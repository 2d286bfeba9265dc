"""Bringing one sample into the type and shape that an input takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.errors import AccuracyError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.ir.tensor import Array
from mobileprep.ops.shape_function import is_full
from mobileprep.runtime.sampling.inputs import FedTensor


def only_input(inputs: Sequence[FedTensor], named: str | None, data: str) -> FedTensor:
    """The one input that data of a single kind is for.

    Args:
        inputs: those of the model.
        named: its name, as the recipe has it, or None.
        data: what messages call the data.

    Raises:
        AccuracyError: it is not known which, or others would be fed nothing.
    """
    names = [fed.name for fed in inputs]
    if not inputs:
        message = "no inputs are named, so no data can be fed"
        raise AccuracyError(message, "list the model's under 'inputs'")
    for fed in inputs:
        if named in (fed.name, str(fed.ref)) and len(inputs) == 1:
            return fed
    if named is not None and named not in names:
        message = f"{data} is for the input {named!r}; the model has {', '.join(names)}"
        raise AccuracyError(message, nearest_hint(named, names))
    if len(inputs) > 1:
        message = f"{data} feeds one input, and the model has {', '.join(names)}"
        raise AccuracyError(message, "use an .npz file, a TFRecord or a Python function")
    return inputs[0]


def fitted(array: Array, fed: FedTensor, name: str) -> Array:
    """A sample as an input takes it: with or without the input's first axis, see ``is_single``.

    A last axis of one, as sounds of one channel have it, goes where the input has none; a row of
    numbers takes the input's shape.

    Args:
        array: the sample.
        fed: the input.
        name: what the sample is called.

    Raises:
        AccuracyError: the sample does not fit.
    """
    fits = _typed(array, fed)
    if fits is None:
        message = f"{name}: the input {fed.name!r} takes {fed.dtype.short}, "
        message += f"and the sample is {array.dtype}"
        raise AccuracyError(message, "save samples in the type that the model takes")
    if fed.shape is None:
        return fits
    shape = tuple(fed.shape)
    flat = fits[..., 0] if fits.ndim and fits.shape[-1] == 1 else fits
    for found in (fits, flat):
        if _matches(found.shape, shape) or (shape and _matches(found.shape, shape[1:])):
            return found
    if shape and fits.ndim == 1 and is_full(shape[1:]) and fits.size == math.prod(shape[1:]):
        return fits.reshape(shape[1:])
    told = ", ".join("?" if size < 0 else str(size) for size in shape)
    message = f"{name}: the input {fed.name!r} takes the shape [{told}], "
    message += f"and the sample has {list(array.shape)}"
    raise AccuracyError(message, "make samples as the model takes them, the first axis left out")


def _typed(array: Array, fed: FedTensor) -> Array | None:
    """An array in an input's type, where that is a matter of width; None where it is not."""
    if fed.dtype is DType.STRING or array.dtype.kind in "OSU":
        return array if fed.dtype is DType.STRING and array.dtype.kind in "OSU" else None
    wanted = fed.dtype.numpy
    if wanted is None:
        return array
    fits = np.can_cast(array.dtype, wanted, "same_kind")
    return array.astype(wanted, copy=False) if fits else None


def _matches(found: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(found) == len(wanted) and all(
        w in (-1, f) for w, f in zip(wanted, found, strict=True)
    )
