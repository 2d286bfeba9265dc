"""Reports of stale range files."""

from __future__ import annotations

import pytest

from mobileprep.data.calibration.ranges import check_fresh
from mobileprep.data.options import Method
from mobileprep.errors import AccuracyError
from mobileprep.formats.range_file import RangeFile, TensorRange

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
