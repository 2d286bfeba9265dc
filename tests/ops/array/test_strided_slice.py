"""StridedSlice."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused, unlike

OP_CASES = [
    case("StridedSlice", [(9, 8), [1, 2], [7, 8], [2, 3]], [(3, 2)]),
    case("StridedSlice", [(9, 8), [1], [7], [2]], [(3, 8)]),
    case("StridedSlice", [(9, 8), [1, 2], [7, 8], [2, 3]], [(5, 2)], begin_mask=1, end_mask=1),
    case("StridedSlice", [(9, 8), [1, 2], [7, 5], [2, 3]], [(3, 2)], end_mask=2),
    case("StridedSlice", [(9, 8), [-1, 2], [0, 8], [-2, 3]], [(4, 2)]),
    case("StridedSlice", [(9, 8), [1, 2], [2, 8], [1, 3]], [(2,)], shrink_axis_mask=1),
    case("StridedSlice", [(9, 8, 7), [0, 1], [0, 3], [1, 1]], [(9, 8, 2)], ellipsis_mask=1),
    case("StridedSlice", [(9, 8), [0, 1], [0, 3], [1, 1]], [(1, 2, 8)], new_axis_mask=1),
    case("StridedSlice", [(9, 8), (2,), [7, 8], [2, 3]], [(-1, -1)]),
    unlike(case("StridedSlice", [(9, 8), (2,), [7, 8], [2, 3]], [(4, -1)], begin_mask=1)),
    unlike(case("StridedSlice", [(9, 8), [1, 2], (2,), [2, 3]], [(-1, 2)], end_mask=2)),
    case("StridedSlice", [(-1, 8), [1, 2], [7, 8], [2, 3]], [(-1, 2)]),
    case("StridedSlice", [(9, 8), [1, 2], [7, 8], (2,)], [None]),
    case("StridedSlice", [None, [1, 2], [7, 8], [2, 3]], [None]),
    refused("StridedSlice", [(9,), [1, 2], [7, 8], [2, 3]]),
    refused("StridedSlice", [(9, 8), [1], [7, 8], [2, 3]]),
    refused("StridedSlice", [(9, 8), [1, 2], [7, 8], [0, 3]]),
    case("TensorStridedSliceUpdate", [(9, 8), [1, 2], [7, 8], [2, 3], (3, 2)], [(9, 8)]),
    case("StridedSlice", [(0, 8), [0, 2], [7, 8], [2, 3]], [(0, 2)]),
    case(
        "StridedSlice",
        [(9, 8, 7), [1, 0, 3], [7, 0, 4], [1, 1, 1]],
        [(6, 8)],
        ellipsis_mask=2,
        shrink_axis_mask=4,
    ),
    case("StridedSlice", [(9, 8), [1, 0, 3], [7, 0, 5], [1, 1, 1]], [(6, 1, 2)], new_axis_mask=2),
    case("StridedSlice", [(9, 8), [1, 3], [7, 5], [1, 1]], [(6, 5)], begin_mask=2),
]

test_shapes_and_costs = case_tests(OP_CASES)
