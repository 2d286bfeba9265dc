"""What kernels of ragged tensors share: checked row splits, and ranges laid end to end."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.tensor import Array


def checked_splits(splits: Array, count: int) -> Array:
    """Row splits as int64, which must cover so many values.

    Raises:
        ValueError: they do not ascend from 0 to ``count``.
    """
    if splits.ndim != 1 or not splits.size:
        message = f"row splits of shape {list(splits.shape)} are none"
        raise ValueError(message)
    found: Array = splits.astype(np.int64)
    if found[0] != 0 or found[-1] != count or (np.diff(found) < 0).any():
        message = f"row splits do not ascend from 0 to {count}"
        raise ValueError(message)
    return found


def splits_of(lengths: Array) -> Array:
    """The row splits of rows of those lengths, int64."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def places_within(lengths: Array) -> Array:
    """0, 1, 2, ... for each row of the given length, one row after another."""
    splits = splits_of(lengths)
    places: Array = np.arange(splits[-1]) - np.repeat(splits[:-1], lengths)
    return places
