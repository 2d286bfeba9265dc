"""Runs of neighbouring words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import OpCase, case, refused
from tests.ops.graphs import run_all
from tests.ops.strings.test_joining import texts

RUNS = {
    "separator": " ",
    "ngram_widths": (2,),
    "left_pad": "",
    "right_pad": "",
    "pad_width": 0,
    "preserve_short_sequences": False,
}

OP_CASES = [
    case("StringNGrams", [(9,), (4,)], [(-1,), (4,)], **RUNS),
    case("StringNGrams", [None, None], [(-1,), (-1,)], **RUNS),
    refused("StringNGrams", [(9, 1), (4,)], **RUNS),
    refused("StringNGrams", [(9,), (4, 1)], **RUNS),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()


def joined(words: str, splits: list[int], **attrs: Any) -> tuple[list[str], list[int]]:
    """The runs, and where each row of them ends."""
    runs = {**RUNS, "separator": "|", "left_pad": "L", "right_pad": "R", **attrs}
    found, ends = run_all("StringNGrams", texts(*words), np.array(splits), **runs)
    return [run.decode() for run in found], ends.tolist()


def test_runs_of_each_width_follow_one_another_in_each_row() -> None:
    """As ``tf.raw_ops.StringNGrams`` puts out: as many pads as a run still has a word with."""
    first = ["L|L|a", "L|a|b", "a|b|R", "b|R|R", "a", "b"]
    last = ["L|L|c", "L|c|R", "c|R|R", "c"]
    runs = [*first, "L|L|R", "L|R|R", *last]
    assert joined("abc", [0, 2, 2, 3], ngram_widths=(3, 1), pad_width=-1) == (runs, [0, 6, 8, 12])


def test_pads_are_no_more_than_asked_and_fewer_than_the_width() -> None:
    runs = ["L|a|b", "a|b|R", "L|c|R"]
    assert joined("abc", [0, 2, 2, 3], ngram_widths=(3,), pad_width=1) == (runs, [0, 2, 2, 3])
    assert joined("abc", [0, 3], pad_width=9) == (["L|a", "a|b", "b|c", "c|R"], [0, 4])
    assert joined("abc", [0, 3]) == (["a|b", "b|c"], [0, 2])


def test_rows_too_short_for_a_run_are_dropped_or_kept_whole() -> None:
    wide: dict[str, Any] = {"ngram_widths": (5,), "pad_width": 1}
    assert joined("abc", [0, 2, 2, 3], **wide) == ([], [0, 0, 0, 0])
    kept = joined("abc", [0, 2, 2, 3], **wide, preserve_short_sequences=True)
    assert kept == (["L|a|b|R", "L|c|R"], [0, 1, 1, 2])
    bare = joined("abc", [0, 2, 3], ngram_widths=(3,), preserve_short_sequences=True)
    assert bare == (["a|b", "c"], [0, 1, 2])


@pytest.mark.parametrize("widths", [(), (2, 0), (-1,)])
def test_runs_have_words(widths: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match="runs of"):
        joined("abc", [0, 3], ngram_widths=widths)
