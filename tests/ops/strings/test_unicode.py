"""Unicode ops."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, unlike

OP_CASES = [
    unlike(case("UnicodeDecode", [(4,)], [(-1,), (-1,)], input_encoding="UTF-8")),
    case("UnicodeTranscode", [(2, -1)], [(2, -1)], input_encoding="UTF-8", output_encoding="UTF-8"),
    case("UnicodeScript", [(2, -1)], [(2, -1)]),
]

test_shapes_and_costs = case_tests(OP_CASES)
