"""Transpose and permutations."""

from __future__ import annotations

import numpy as np

from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import i32, run

OP_CASES = [
    case("Transpose", [(4, 5, 6), [2, 0, 1]], [(6, 4, 5)]),
    case("Transpose", [None, [1, 0]], [(-1, -1)]),
    case("Transpose", [(4, 5), (2,)], [(-1, -1)]),
    unlike(case("Transpose", [(4,), (1,)], [(4,)])),
    unlike(case("Transpose", [(4, 4), (2,)], [(4, 4)])),
    case("Transpose", [None, (3,)], [(-1, -1, -1)]),
    case("Transpose", [None, (-1,)], [None]),
    unlike(case("Transpose", [None, (255,)], [None])),
    unlike(case("Transpose", [None, (254,)], [(-1,) * 254])),
    unlike(refused("Transpose", [(4, 5), [0, 0]])),
    refused("Transpose", [(4, 5), [0]]),
    case("ConjugateTranspose", [(4, -1), [1, 0]], [(-1, 4)]),
    case("InvertPermutation", [(4,)], [(4,)]),
    refused("InvertPermutation", [(4, 4)]),
    unlike(case("Transpose", [None, (0,)], [()])),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_conjugate_transpose_of_bool() -> None:
    out = run("ConjugateTranspose", np.array([[True, False]]), i32([1, 0]))
    assert (out.dtype, out.tolist()) == (np.bool_, [[True], [False]])
