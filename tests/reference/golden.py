"""Recorded runs of the real models: what was fed, and what TensorFlow returned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Golden(NamedTuple):
    """The inputs and outputs of a run, by tensor name."""

    feeds: dict[str, Array]
    outputs: dict[str, Array]


def read_golden(path: Path, rename: Callable[[str], str] = str) -> Golden:
    """Read a recorded run.

    Args:
        path: an archive with keys such as ``in:scope|x`` and ``out:y``.
        rename: maps recorded names to the names of the graph under test.
    """
    with np.load(path, allow_pickle=True) as archive:
        arrays = {key.replace("|", "/"): _as_object(archive[key]) for key in archive}
    feeds, outputs = (
        {rename(key.removeprefix(kind)): a for key, a in arrays.items() if key.startswith(kind)}
        for kind in ("in:", "out:")
    )
    return Golden(feeds, outputs)


def _as_object(array: Array) -> Array:
    """Keep the trailing zero bytes of a string, which NumPy strips when it reads an element."""
    if array.dtype.kind != "S" or array.ndim:
        return array
    return np.array(array.tobytes(), dtype=object)
