"""Metrics that are Python functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.metrics import base
from mobileprep.data.metrics.base import PythonFunction
from mobileprep.errors import AccuracyError, UsageError
from tests.data.metrics.batches import batch


def metric(folder: Path, body: str, *, function: str = "score", count: int = 2) -> PythonFunction:
    """A metric with the body of ``score(outputs, labels)``, updated with two batches."""
    path = folder / "metric.py"
    path.write_text(f"import sys, os\n\ndef score(outputs, labels):\n    {body}\n")
    function_metric = PythonFunction(path, function)
    for at in range(count):
        outputs = {"y": np.full((2, 3), at), "shape": np.array([2, at, 7])}
        function_metric.update(batch(outputs, np.array([at, at]), first=2 * at))
    return function_metric


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return outputs['y'].sum()", 6.0),
        ("return labels.sum() + len(labels)", 6.0),
        ("return outputs['y'].shape[0] * 10 + outputs['y'].shape[1]", 43.0),
        ("return [a.tolist() for a in outputs['shape']] == [[2, 0, 7], [2, 1, 7]]", 1.0),
        ("import numpy; return numpy.array(0.5)", 0.5),
        ("import numpy; return numpy.float32(0.25)", 0.25),
    ],
)
def test_function_gets_all_samples_at_once(tmp_path: Path, body: str, value: float) -> None:
    assert metric(tmp_path, body).value() == value


def test_labels_are_none_for_data_without_labels(tmp_path: Path) -> None:
    function_metric = metric(tmp_path, "return 1.0 if labels is None else 0.0", count=0)
    function_metric.update(batch([1.0, 2.0], None))
    assert function_metric.value() == 1


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("raise ValueError('no such class')", "ValueError: no such class", ":4"),
        ("return outputs['z']", "KeyError: 'z'", ":4"),
        ("sys.exit(0)", "the metric ended the program", ":4"),
        ("os._exit(0)", "the metric ended the program", ":4"),
        ("return 'good'", "the metric returned str, no number", ", score"),
        ("return None", "the metric returned NoneType", ", score"),
        ("return outputs['y']", "the metric returned ndarray", ", score"),
        ("return float('nan')", "the metric returned nan", ", score"),
        ("return float('inf')", "the metric returned inf", ", score"),
    ],
)
def test_errors_are_reported_with_their_line(
    tmp_path: Path, body: str, message: str, line: str
) -> None:
    function_metric = metric(tmp_path, body)
    with pytest.raises(AccuracyError, match=message) as caught:
        function_metric.value()
    assert caught.value.where == f"{tmp_path / 'metric.py'}{line}"
    assert caught.value.hint


def test_invalid_files_and_functions_are_reported(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="SyntaxError") as caught:
        metric(tmp_path, "return (")
    assert caught.value.where == f"{tmp_path / 'metric.py'}:4"
    with pytest.raises(AccuracyError, match="has no function 'other'"):
        metric(tmp_path, "return 1.0", function="other")
    with pytest.raises(UsageError, match=r"the metric .* does not exist"):
        PythonFunction(tmp_path / "none.py", "score")


def test_stored_outputs_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_KEPT", 100)
    with pytest.raises(AccuracyError, match="needs all outputs at once"):
        metric(tmp_path, "return 1.0")
