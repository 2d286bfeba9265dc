"""Recorded runs of the real models in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def assert_close(
    outputs: Iterable[Array], expected: Iterable[Array], share: float, *, min_peak: float = 0.0
) -> None:
    """Compare outputs, with a tolerance that is a share of the peak of each expected output.

    No output may be NaN.
    """
    for output, reference in zip(outputs, expected, strict=True):
        assert output.shape == reference.shape
        peak = max(float(np.abs(reference.astype(np.float64)).max(initial=0)), min_peak)
        np.testing.assert_allclose(output, reference, rtol=0, atol=share * peak, equal_nan=False)


def _as_object(array: Array) -> Array:
    """Keep the trailing zero bytes of a string, which NumPy strips when it reads an element."""
    if array.dtype.kind != "S" or array.ndim:
        return array
    return np.array(array.tobytes(), dtype=object)
