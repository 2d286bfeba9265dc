"""StringNGrams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused
from tests.ops.graphs import run_all
from tests.ops.strings.test_joining import texts

OPTIONS = {
    "separator": " ",
    "ngram_widths": (2,),
    "left_pad": "",
    "right_pad": "",
    "pad_width": 0,
    "preserve_short_sequences": False,
}

OP_CASES = [
    case("StringNGrams", [(9,), (4,)], [(-1,), (4,)], **OPTIONS),
    case("StringNGrams", [None, None], [(-1,), (-1,)], **OPTIONS),
    refused("StringNGrams", [(9, 1), (4,)], **OPTIONS),
    refused("StringNGrams", [(9,), (4, 1)], **OPTIONS),
]

test_shapes_and_costs = case_tests(OP_CASES)


def ngrams_of(words: str, splits: list[int], **attrs: Any) -> tuple[list[str], list[int]]:
    """The n-grams, and the end of each row."""
    options = {**OPTIONS, "separator": "|", "left_pad": "L", "right_pad": "R", **attrs}
    result, ends = run_all("StringNGrams", texts(*words), np.array(splits), **options)
    return [ngram.decode() for ngram in result], ends.tolist()


def test_ngrams_of_several_widths() -> None:
    """Matches ``tf.raw_ops.StringNGrams``: every n-gram has at least one word."""
    first = ["L|L|a", "L|a|b", "a|b|R", "b|R|R", "a", "b"]
    last = ["L|L|c", "L|c|R", "c|R|R", "c"]
    ngrams = [*first, "L|L|R", "L|R|R", *last]
    assert ngrams_of("abc", [0, 2, 2, 3], ngram_widths=(3, 1), pad_width=-1) == (
        ngrams,
        [0, 6, 8, 12],
    )


def test_pad_width_is_limited() -> None:
    ngrams = ["L|a|b", "a|b|R", "L|c|R"]
    assert ngrams_of("abc", [0, 2, 2, 3], ngram_widths=(3,), pad_width=1) == (ngrams, [0, 2, 2, 3])
    assert ngrams_of("abc", [0, 3], pad_width=9) == (["L|a", "a|b", "b|c", "c|R"], [0, 4])
    assert ngrams_of("abc", [0, 3]) == (["a|b", "b|c"], [0, 2])


def test_short_sequences() -> None:
    wide: dict[str, Any] = {"ngram_widths": (5,), "pad_width": 1}
    assert ngrams_of("abc", [0, 2, 2, 3], **wide) == ([], [0, 0, 0, 0])
    preserved = ngrams_of("abc", [0, 2, 2, 3], **wide, preserve_short_sequences=True)
    assert preserved == (["L|a|b|R", "L|c|R"], [0, 1, 1, 2])
    bare = ngrams_of("abc", [0, 2, 3], ngram_widths=(3,), preserve_short_sequences=True)
    assert bare == (["a|b", "c"], [0, 1, 2])


@pytest.mark.parametrize("widths", [(), (2, 0), (-1,)])
def test_invalid_widths_are_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match="runs of"):
        ngrams_of("abc", [0, 3], ngram_widths=widths)
