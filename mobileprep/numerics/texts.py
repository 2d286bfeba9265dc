"""Tensors of texts: object arrays of bytes, and lists of their elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mobileprep.ir.tensor import Array


def texts(array: Array) -> list[bytes]:
    """The elements of a tensor of texts, in row-major order.

    Raises:
        ValueError: the tensor holds something else.
    """
    if array.dtype != object:
        message = f"texts are needed, not {array.dtype}"
        raise ValueError(message)
    found: list[bytes] = array.ravel().tolist()
    return found


def one_text(array: Array) -> bytes:
    """The only element of a tensor of texts.

    Raises:
        ValueError: there is none, or there are several.
    """
    found = texts(array)
    if len(found) != 1:
        message = f"one text is needed, not {len(found)}"
        raise ValueError(message)
    return found[0]


def as_texts(elements: Iterable[bytes], shape: tuple[int, ...]) -> Array:
    """A tensor of texts from its elements in row-major order."""
    # numpy would make an array of fixed width of a list, and cut zeros off its ends.
    listed = list(elements)
    flat = np.empty(len(listed), dtype=object)
    flat[:] = listed
    return flat.reshape(shape)


def each_text(change: Callable[[bytes], bytes], array: Array) -> Array:
    """A tensor of texts with a function applied to each."""
    return as_texts(map(change, texts(array)), array.shape)
