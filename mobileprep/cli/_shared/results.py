"""Format the outputs of a graph as lines and as JSON."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from mobileprep.cli._shared.terminal import encodable
from mobileprep.core.files import read_bytes
from mobileprep.core.printable import plain
from mobileprep.errors import UsageError
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Printed, Printer

_MOST_LABELS = 16 << 20


# Tensors of more elements are described, not printed.
_MOST_VALUES = 64


class Score(Struct, frozen=True):
    """One class of a classification.

    Args:
        index: index of the class.
        label: name of the class; empty without labels.
        score: score of the class.
    """

    index: int
    label: str
    score: float

    def __str__(self) -> str:
        name = f"{self.label} ({self.index})" if self.label else f"({self.index})"
        return f"{name}: {self.score:g}"

    def as_data(self) -> dict[str, Any]:
        """Return the score as JSON data."""
        return asdict(self) | {"score": _number(self.score)}


class RunOutputs(Struct, frozen=True):
    """Outputs of one run.

    Args:
        title: the input files; empty for a single run.
        scores: the best classes of each sample; empty if not requested.
        facts: each tensor as JSON data.
    """

    title: str
    scores: list[list[Score]]
    facts: list[dict[str, Any]]

    @classmethod
    def of(
        cls, title: str, outputs: Mapping[str, Array], labels: Sequence[str], count: int
    ) -> RunOutputs:
        """Describe tensors and find the ``count`` best classes of the first one."""
        scores = best_scores(next(iter(outputs.values())), labels, count) if count > 0 else []
        return cls(title, scores, [described(name, array) for name, array in outputs.items()])

    def __str__(self) -> str:
        head = [f"{self.title}:"] if self.title else []
        shown = self.facts[1:] if self.scores else self.facts
        return "\n".join([*head, *(str(s) for row in self.scores for s in row), *map(line, shown)])

    def as_data(self) -> dict[str, Any]:
        """Return the outputs as JSON data."""
        return {"outputs": self.facts, "top": [[s.as_data() for s in r] for r in self.scores]}


def read_labels(path: Path) -> list[str]:
    """Read class names, one per line."""
    text = read_bytes(path, limit=_MOST_LABELS).decode("utf-8", "replace")
    return [line.rstrip() for line in text.splitlines()]


def best_scores(output: Array, labels: Sequence[str], count: int) -> list[list[Score]]:
    """Return the ``count`` highest scores of each sample, best first.

    Of equal scores, the lower index comes first.

    Raises:
        UsageError: the output is empty, a scalar, complex, or a string.
    """
    if output.dtype == object or output.dtype.kind == "c" or output.ndim == 0 or not output.size:
        message = f"an output of type {output.dtype} and shape {list(output.shape)} has no scores"
        raise UsageError(message, "fetch the scores of the classes first")
    rows = output.reshape(-1, output.shape[-1]).astype(np.float64)
    return [_best(row, labels, count) for row in rows]


def _best(row: Array, labels: Sequence[str], count: int) -> list[Score]:
    order = np.argsort(-row, kind="stable")[:count].tolist()
    return [Score(i, labels[i] if i < len(labels) else "", float(row[i])) for i in order]


def described(name: str, array: Array) -> dict[str, Any]:
    """Return the dtype, shape, range, mean, and (if few) values of a tensor as JSON data."""
    facts: dict[str, Any] = {
        "name": name,
        "dtype": "string" if array.dtype == object else str(array.dtype),
        "shape": list(array.shape),
    }
    if array.size and array.dtype.kind in "biuf":
        with np.errstate(invalid="ignore", over="ignore"):  # infinities are printed unchanged
            mean = float(array.mean(dtype=np.float64))
        facts |= {
            "min": _number(float(array.min())),
            "max": _number(float(array.max())),
            "mean": _number(mean),
        }
    # An array without elements can still have many nested lists.
    if math.prod(itertools.takewhile(bool, array.shape)) <= _MOST_VALUES:
        facts["values"] = _values(array)
    return facts


def line(facts: dict[str, Any]) -> str:
    """Format the description of a tensor as one line."""
    shown = f"{plain(facts['name'])}: {facts['dtype']}{facts['shape']}"
    if "values" in facts:
        return f"{shown} {_mapped(_rounded, facts['values'])}"
    if "min" in facts:
        shown += f" from {_short(facts['min'])} to {_short(facts['max'])}"
        shown += f", mean {_short(facts['mean'])}"
    return shown


def _values(array: Array) -> Any:  # noqa: ANN401 - nested lists
    if array.dtype == object:
        return _mapped(_text, array.tolist())
    if array.dtype.kind == "c":
        return str(array.tolist())
    if array.dtype.kind in "biu":
        return array.tolist()
    return _mapped(_number, array.astype(np.float64).tolist())


def _mapped(convert: Callable[[Any], Any], value: Any) -> Any:  # noqa: ANN401
    """Convert each element of nested lists."""
    return [_mapped(convert, v) for v in value] if isinstance(value, list) else convert(value)


def _rounded(value: Any) -> Any:  # noqa: ANN401
    """Round a float to six significant digits."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _number(value: float) -> float | str:
    """Convert infinities and NaN to strings, which JSON has no numbers for."""
    return value if math.isfinite(value) else str(value)


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


_LOG = "log("


_FILE = "file://"


def printer(*, is_result_data: bool) -> Printer:
    """Return a function that prints text of ``Print`` ops to the stream that the graph selects.

    Log lines start with their level. Text for a file is printed with its path and not written,
    because the graph may be untrusted.

    Args:
        is_result_data: whether the standard output is reserved for JSON.
    """

    def show(printed: Printed) -> None:
        out = sys.stdout if printed.stream == "stdout" and not is_result_data else sys.stderr
        out.write(_plain(_placed(printed), out))

    return show


def _placed(printed: Printed) -> str:
    line = printed.text.removesuffix("\n")
    if printed.stream.startswith(_LOG):
        return f"{printed.stream.removeprefix(_LOG).removesuffix(')')}: {line}\n"
    if printed.stream.startswith(_FILE):
        return f"not written to {printed.stream}: {line}\n"
    return printed.text


def _plain(text: str, out: TextIO) -> str:
    """Escape control characters for a terminal, and characters that the stream cannot encode."""
    if out.isatty():
        text = plain(text, keep="\n\t")
    return encodable(text, out)
