"""A metric that is a Python function of the app's repository."""

from __future__ import annotations

import math
import numbers
from collections import defaultdict
from pathlib import Path
from typing import Final

import numpy as np

from mobileprep.core.loading import Author, blaming, load_file
from mobileprep.errors import AccuracyError
from mobileprep.ir.tensor import Array
from mobileprep.metrics.base import KeptArrays, Metric, MetricBatch

_AUTHOR: Final = Author("metric", AccuracyError, "so that nothing would have been measured")


class PythonFunction(Metric):
    """Calls ``function(outputs, labels)`` once, with all samples.

    ``outputs`` is a dict of the fetched tensors by name, joined along the first axis; a list with
    an array for each batch where a tensor has no entry for each sample. ``labels`` is an array, or
    None where the data has none. It returns a number.

    Args:
        path: the Python file; it is run anew.
        function: the name of the function.

    Raises:
        AccuracyError: the file cannot be run, or has no such function.
        UsageError: it is not there.
    """

    def __init__(self, path: Path, function: str) -> None:
        module = load_file(path, "mobileprep_metric", _AUTHOR)
        self._path, self._name = path, function
        self._function = getattr(module, function, None)
        if not callable(self._function):
            message = f"the metric's file has no function {function!r}"
            raise AccuracyError(message, f"define it: 'def {function}(outputs, labels)'", str(path))
        self._kept = KeptArrays()
        self._outputs: dict[str, list[Array]] = defaultdict(list)
        self._labels: list[Array] = []
        self._by_sample: dict[str, bool] = {}

    def update(self, batch: MetricBatch) -> None:
        """See ``Metric.update``."""
        for name, array in batch.outputs.items():
            self._kept.add(array)
            self._outputs[name].append(array)
            is_each = bool(array.ndim) and len(array) == batch.count
            self._by_sample[name] = self._by_sample.get(name, True) and is_each
        if batch.labels is not None:
            self._kept.add(batch.labels)
            self._labels.append(batch.labels)

    def value(self) -> float:
        """See ``Metric.value``.

        Raises:
            AccuracyError: what the function raises, at its line, or that it returns no number.
        """
        outputs = {name: self._joined(name, parts) for name, parts in self._outputs.items()}
        labels = np.concatenate(self._labels) if self._labels else None
        assert callable(self._function)
        with blaming(self._path, _AUTHOR):
            found = self._function(outputs, labels)
        where = f"{self._path}, {self._name}"
        if isinstance(found, np.ndarray) and found.shape == ():
            found = found[()]
        if not isinstance(found, numbers.Real | np.bool_):
            message = f"the metric returned {type(found).__name__}, no number"
            raise AccuracyError(message, "return a float", where)
        if not math.isfinite(found):
            message = f"the metric returned {float(found)}"
            raise AccuracyError(message, "return a finite number", where)
        return float(found)

    def _joined(self, name: str, parts: list[Array]) -> Array | list[Array]:
        alike = len({part.shape[1:] for part in parts}) == 1
        return np.concatenate(parts) if self._by_sample[name] and alike else parts
