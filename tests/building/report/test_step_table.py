"""The table of steps at every terminal width."""

from __future__ import annotations

import pytest

from mobileprep.building.report.collect import Report
from mobileprep.building.stages.transform.report import difference_text, rounded_text, step_table
from tests.building.report.reports import check, make_report, step

INCEPTION = {
    "nodes": 1234,
    "parameters": 23_869_000,
    "bytes": 95_746_802,
    "matched": 94,
    "added": 1188,
    "removed": 1376,
    "changed": 94,
}
LONG = "freeze_requantization_ranges"


def inception(*names: str, checked: bool = False) -> Report:
    """The report of a large network."""
    checks = [check(1.5e-7) for _ in names] if checked else []
    return make_report(steps=[step(name, **INCEPTION) for name in names], checks=checks)


def table(report: Report, width: int) -> list[str]:
    return step_table(report.source, report.steps, width)


def test_full_numbers_if_they_fit() -> None:
    assert table(inception("sort"), 100) == [
        "step    nodes  parameters       bytes  matched  added  removed  changed",
        "frozen     72      10,349      49,261",
        "sort    1,234  23,869,000  95,746,802       94  1,188    1,376       94",
    ]


def test_large_numbers_are_rounded_to_fit() -> None:
    assert table(inception("fold_old_batch_norms"), 80) == [
        "step                  nodes  params  bytes  matched  added  removed  changed",
        "frozen                   72   10.3k  49.3k",
        "fold_old_batch_norms  1,234   23.9M  95.7M       94  1,188    1,376       94",
    ]


def test_numbers_are_below_the_names_to_fit() -> None:
    assert table(inception(LONG, checked=True), 80) == [
        "  nodes  parameters       bytes  matched  added  removed  changed  difference",
        "frozen",
        "     72      10,349      49,261",
        "freeze_requantization_ranges",
        "  1,234  23,869,000  95,746,802       94  1,188    1,376       94     1.5e-07",
    ]
    assert table(inception(LONG, checked=True), 70)[-1] == (
        "  1,234   23.9M  95.7M       94  1,188    1,376       94     1.5e-07"
    )


def test_columns_become_words_to_fit() -> None:
    assert table(inception(LONG, checked=True), 40) == [
        "frozen",
        "  nodes 72, params 10.3k, bytes 49.3k",
        "freeze_requantization_ranges",
        "  nodes 1,234, params 23.9M,",
        "  bytes 95.7M, matched 94, added 1,188,",
        "  removed 1,376, changed 94,",
        "  difference 1.5e-07",
    ]


@pytest.mark.parametrize("width", [1, 2, 20, 28, 40, 60, 66, 80, 100, 132])
@pytest.mark.parametrize("checked", [False, True])
def test_lines_fit_the_width_except_for_longer_words(width: int, checked: bool) -> None:
    lines = table(inception("sort", LONG, checked=checked), width)
    assert all(len(line) <= width for line in lines if " " in line.strip() and width >= 20)
    for name in ("frozen", "sort", LONG):
        assert [line for line in lines if line.startswith(name)]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (99_949, "99.9k"),
        (99_950, "100k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (1_999_999_999, "2.0G"),
        (5 * 10**15, "5000T"),
    ],
)
def test_rounded_numbers_have_two_or_three_digits(count: int, text: str) -> None:
    assert rounded_text(count) == text


def test_missing_difference_is_a_dash() -> None:
    assert (difference_text(None), difference_text(0.00821)) == ("-", "0.00821")
