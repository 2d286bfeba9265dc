"""Ranges from observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.data.calibration.observation import Observation, Watcher, check_fresh, ranges_of
from mobileprep.data.options import Method
from mobileprep.errors import AccuracyError
from mobileprep.formats.range_file import RangeFile, TensorRange
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge
from tests.building.stages.jobs import placeholder
from tests.data.calibration.graphs import Samples, samples, subject
from tests.ops.graphs import n

TENSOR = ("x", 0)


def test_empty_observation_has_no_ranges() -> None:
    assert ranges_of([Observation()], Method("min_max", 99.0, 0.9)) == ({}, 0)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_moving_averages_continue_across_observations(cut: int) -> None:
    ends = [(0.0, 8.0), (4.0, 4.0), (8.0, 0.0)]
    observations = [
        Observation(batches={TENSOR: ends[at : at + cut]}, samples=len(ends[at : at + cut]))
        for at in range(0, len(ends), cut)
    ]
    ranges, samples = ranges_of(observations, Method("moving_average", 0, 0.5))
    assert (ranges, samples) == ({TENSOR: (5.0, 3.0)}, 3)


def test_averages_use_float32() -> None:
    observations = Observation(batches={TENSOR: [(0.0, 1.0), (0.0, 2.0)]}, samples=2)
    ranges, _ = ranges_of([observations], Method("moving_average", 0, 0.9))
    share = np.float32(1) - np.float32(0.9)
    assert ranges[TENSOR] == (0.0, float(np.float32(1) + share))


METHODS = ["min_max", "moving_average", "percentile", "mse", "entropy"]


def graph(*more: Any) -> Graph:
    """A tensor, its activation, and further readers of the tensor."""
    return Graph([placeholder((-1, 4)), n("less", "Neg", "x"), *more])


def ranges(model: Graph, tensors: Sequence[Edge], method: str, data: Samples) -> Any:
    task = subject(method, graph=model, tensors=tuple(tensors))
    return ranges_of([Watcher(task, data).observe(0, 40)], task.method)[0]


@pytest.mark.parametrize("op", ["Relu", "Relu6"])
@pytest.mark.parametrize("scale", [0.01, 1, 10, -1e-42])
@pytest.mark.parametrize("method", METHODS)
def test_range_matches_that_of_the_values(op: str, scale: float, method: str) -> None:
    data = Samples(np.abs(samples().rows) * np.float32(scale) - np.float32(scale) / 2)
    model = graph(n("y", op, "less"))
    both = ranges(model, [("less", 0), ("y", 0)], method, data)
    assert both["y", 0] == ranges(model, [("y", 0)], method, data)["y", 0]


@pytest.mark.parametrize("method", METHODS)
def test_each_reader_of_a_tensor_has_its_own_range(method: str) -> None:
    model = graph(n("one", "Relu", "less"), n("six", "Relu6", "less"), n("y", "Add", "one", "six"))
    data = Samples(samples().rows * np.float32(9))
    tensors = [(name, 0) for name in ("less", "one", "six")]
    assert ranges(model, tensors, method, data) == {
        **ranges(model, tensors[:1], method, data),
        **ranges(model, tensors[1:], method, data),
    }


def test_infinity_is_reported_at_its_source() -> None:
    data = samples()
    data.rows[7, 2] = -np.inf
    model = graph(n("y", "Relu6", "less"))
    with pytest.raises(AccuracyError, match="'less' is NaN or infinite for sample 7"):
        ranges(model, [("less", 0), ("y", 0)], "min_max", data)


METHOD = Method("percentile", 99.99, 0.9)
FILE = RangeFile(
    {"a": TensorRange(0, 1, "1111"), "b:1": TensorRange(0, 2, "2222")},
    "percentile 99.99",
    20,
    "d1",
    ("dead",),
)
DIGESTS = {"a": "1111", "b:1": "2222", "dead": "3333"}


def stale(
    digests: dict[str, str] = DIGESTS,
    method: Method = METHOD,
    samples: int | None = 20,
    data: str | None = "d1",
) -> list[str]:
    try:
        check_fresh(FILE, digests, method, samples, data, "recipe.yaml:3:1")
    except AccuracyError as error:
        assert error.where == "recipe.yaml:3:1"
        assert "mobileprep calibrate" in error.hint
        head, *lines = error.message.split("\n  ")
        assert head == "the range file is stale:"
        return lines
    return []


def test_fresh_range_file_is_accepted() -> None:
    assert stale() == stale(data=None) == stale(samples=None) == []


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"digests": {**DIGESTS, "a": "9"}}, ["a: what computes it has changed"]),
        ({"digests": {**DIGESTS, "c": "9"}}, ["c: it has no range"]),
        ({"data": "d2"}, ["it was measured on other data"]),
        ({"data": None, "samples": 10}, ["it was measured on 20 samples, and 10 are asked"]),
        (
            {"method": Method("mse", 0, 0)},
            ["it was measured with percentile 99.99, not mse"],
        ),
        (
            {"method": Method("percentile", 99.9, 0), "digests": {"a": "", "b:1": ""}},
            [
                "it was measured with percentile 99.99, not percentile 99.9",
                "a: what computes it has changed",
                "b:1: what computes it has changed",
            ],
        ),
    ],
)
def test_all_causes_of_staleness_are_reported(options, messages) -> None:
    assert stale(**options) == messages


def test_many_stale_tensors_are_counted() -> None:
    lines = stale({f"t{n:02}": "" for n in range(30)})
    assert lines[-1] == "... and 10 more"
    assert len(lines) == 21


@pytest.mark.parametrize(
    ("name", "text", "has_histogram"),
    [
        ("auto", "auto", True),
        ("min_max", "min_max", False),
        ("moving_average", "moving_average 0.9", False),
        ("percentile", "percentile 99.5", True),
        ("entropy", "entropy", True),
        ("mse", "mse", True),
    ],
)
def test_method_name_includes_only_its_own_parameter(
    name: str, text: str, has_histogram: bool
) -> None:
    method = Method(name, 99.5, 0.9)
    assert (str(method), method.has_histogram) == (text, has_histogram)
