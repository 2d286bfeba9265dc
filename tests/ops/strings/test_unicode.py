"""Encoded texts turned into characters."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, unlike

OP_CASES = [
    unlike(case("UnicodeDecode", [(4,)], [(-1,), (-1,)], input_encoding="UTF-8")),
    case("UnicodeTranscode", [(2, -1)], [(2, -1)], input_encoding="UTF-8", output_encoding="UTF-8"),
    case("UnicodeScript", [(2, -1)], [(2, -1)]),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
