"""Runs of neighbouring words."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, refused

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
