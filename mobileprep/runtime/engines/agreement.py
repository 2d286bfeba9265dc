"""The interface of engines, and the comparison of their outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from msgspec import Struct

from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array


class Engine(Protocol):
    """Runs one graph."""

    @property
    def name(self) -> str:
        """Its name: numpy, openvino, litert, or tensorflow."""

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Compute the tensors named by ``fetches``.

        Args:
            fetches: tensor names such as "probabilities" or "split:1".
            feeds: values for tensors by name; any tensor may be fed.

        Returns:
            An array for each fetch, which must not be modified; strings as object arrays of bytes.

        Raises:
            UsageError: a name is not in the graph, a feed does not fit its placeholder, or a
                required placeholder is not fed.
            UnsupportedError: the engine does not support a required op.
            InvalidGraphError: the graph is malformed, or a node's inputs do not fit its op.
        """


Convert: TypeAlias = Callable[[Graph, Mapping[str, Array], Sequence[str], str], bytes]
"""``convert(graph, feeds, fetches, where) -> content`` converts a graph to a float .tflite file.

Its inputs have the names and shapes of the feeds, its outputs the names of the fetches.
"""

TOLERANCE = 1e-4


class Agreement(Struct, frozen=True):
    """The difference between two engines.

    Args:
        engine, reference: their names.
        largest: the largest difference of an element, relative to the largest magnitude in its
            tensor; infinite if shapes, integers, strings, or positions of NaN differ.
        fetch: the tensor with that difference.
        tolerance: the limit for ``largest``.
    """

    engine: str
    reference: str
    largest: float
    fetch: str
    tolerance: float = TOLERANCE

    @property
    def holds(self) -> bool:
        """Whether the engines agree."""
        return self.largest <= self.tolerance

    def __str__(self) -> str:
        verdict = "agrees" if self.holds else "does not agree"
        apart = f"apart by {self.largest:.1e} of the largest value"
        if not math.isfinite(self.largest):
            apart = "apart in shape, type, whole numbers, text, NaN or infinity"
        return f"{self.engine} {verdict} with {self.reference}: {apart} (in {self.fetch})"


def check_agreement(
    engine: Engine, reference: Engine, fetches: Sequence[str], feeds: Mapping[str, Array]
) -> Agreement:
    """Run both engines on the same feeds and compare their outputs."""
    outputs = engine.run(fetches, feeds)
    expected = reference.run(fetches, feeds)
    return agreement_of(engine.name, outputs, reference.name, expected, fetches)


def agreement_of(
    engine: str,
    outputs: Sequence[Array],
    reference: str,
    expected: Sequence[Array],
    fetches: Sequence[str],
) -> Agreement:
    """Compare the outputs of two engines for the same fetches and feeds."""
    apart = [relative_difference(a, b) for a, b in zip(outputs, expected, strict=True)]
    worst = max(range(len(apart)), key=lambda i: apart[i], default=0)
    largest, fetch = (apart[worst], fetches[worst]) if apart else (0.0, "no tensor")
    return Agreement(engine, reference, largest, fetch)


def relative_difference(actual: Array, expected: Array) -> float:
    """Return the largest difference, relative to the largest finite magnitude in ``expected``."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if actual.dtype.kind not in "fc" and actual.dtype.kind != "V":
        return 0.0 if bool(np.all(actual == expected)) else float("inf")
    a, b = (
        x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (actual, expected)
    )
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not _same(a[~finite], b[~finite]):
        return float("inf")
    scale = float(np.abs(b[finite]).max(initial=0.0))
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    if difference == 0:
        return 0.0
    return difference / scale if scale else float("inf")


def _same(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))
