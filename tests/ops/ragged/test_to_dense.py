"""RaggedTensorToTensor."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused

TO_DENSE = "RaggedTensorToTensor"
SPLITS = {"row_partition_types": ("ROW_SPLITS",)}
ROW_IDS = {"row_partition_types": ("FIRST_DIM_SIZE", "VALUE_ROWIDS")}

OP_CASES = [
    case(TO_DENSE, [[3, -1], (9,), 0.0, (4,)], [(3, -1)], **SPLITS),
    case(TO_DENSE, [(3,), (9, 5), 0.0, (4,)], [(-1, -1, 5)], **SPLITS),
    case(TO_DENSE, [-1, (9, 5), 0.0, (), (9,)], [(-1, -1, 5)], **ROW_IDS),
    case(TO_DENSE, [[3, 4, -1], (9, 5), 0.0, (), (9,)], [(3, 4, 5)], **ROW_IDS),
    case(TO_DENSE, [[3, 4], None, 0.0, (4,)], [(3, 4)], **SPLITS),
    refused(TO_DENSE, [[3, 4, 6], (9, 5), 0.0, (4,)], **SPLITS),
    refused(TO_DENSE, [[3, 4, 6], (9,), 0.0, (4,)], **SPLITS),
]

test_shapes_and_costs = case_tests(OP_CASES)
